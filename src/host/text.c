/* Text for reports: names of statuses; a growing buffer with locale-independent formatting. */
#include "process.h"

#include <locale.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char *clb_status_name(clb_status status)
{
    static const char *const names[] = {
        [CLB_OK] = "ok",
        [CLB_ERR_NOMEM] = "out of memory",
        [CLB_ERR_OPENCL] = "OpenCL failure",
        [CLB_ERR_LAUNCH] = "a kernel needs more than the device has",
        [CLB_ERR_NODEVICE] = "no device",
        [CLB_ERR_BUILD] = "kernel build failure",
        [CLB_ERR_RANGE] = "out of range",
        [CLB_ERR_UNSUPPORTED] = "not supported",
        [CLB_ERR_IO] = "input/output failure",
        [CLB_ERR_STARTING] = "still starting",
    };
    return (size_t)status < CLB_COUNT_OF(names) ? names[status] : "unknown";
}

void clb_text_free(struct clb_text *text)
{
    free(text->data);
    *text = (struct clb_text){0};
}

/* Make room for `more` characters and the terminator. */
static bool reserve(struct clb_text *text, size_t more)
{
    if (text->failed)
        return false;
    if (text->length + more + 1 <= text->capacity)
        return true;
    size_t capacity = 2 * text->capacity + more + 256;
    char *data = realloc(text->data, capacity);
    if (data == NULL) {
        text->failed = true;
        return false;
    }
    text->data = data;
    text->capacity = capacity;
    return true;
}

static void add_bytes(struct clb_text *text, const char *bytes, size_t length)
{
    if (!reserve(text, length))
        return;
    memcpy(text->data + text->length, bytes, length);
    text->length += length;
    text->data[text->length] = '\0';
}

void clb_text_add(struct clb_text *text, const char *string)
{
    add_bytes(text, string, strlen(string));
}

void clb_text_addf(struct clb_text *text, const char *format, ...)
{
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int length = vsnprintf(NULL, 0, format, args);
    if (length < 0) {
        text->failed = true;
    } else if (reserve(text, (size_t)length)) {
        vsnprintf(text->data + text->length, (size_t)length + 1, format, again);
        text->length += (size_t)length;
    }
    va_end(again);
    va_end(args);
}

void clb_text_add_quoted(struct clb_text *text, const char *string)
{
    clb_text_add(text, "\"");
    for (const char *c = string; *c != '\0'; c++) {
        unsigned char byte = (unsigned char)*c;
        if (byte == '"' || byte == '\\')
            clb_text_addf(text, "\\%c", byte);
        else if (byte < 0x20)
            clb_text_addf(text, "\\u%04x", byte);
        else
            add_bytes(text, c, 1);
    }
    clb_text_add(text, "\"");
}

void clb_text_add_double(struct clb_text *text, double value)
{
    const locale_t before = uselocale(newlocale(LC_ALL_MASK, "C", (locale_t)0));
    char digits[64];
    for (int precision = 6; precision <= 17; precision++) {
        snprintf(digits, sizeof digits, "%.*g", precision, value);
        if (strtod(digits, NULL) == value)
            break;
    }
    uselocale(before);
    clb_text_add(text, digits);
}

void clb_text_add_file(struct clb_text *text, const char *name)
{
    for (const char *id; (id = strstr(name, "%p")) != NULL; name = id + 2)
        clb_text_addf(text, "%.*s%ld", (int)(id - name), name, (long)getpid());
    clb_text_add(text, name);
}
