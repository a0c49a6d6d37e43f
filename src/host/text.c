/* SPDX-License-Identifier: BSD-3-Clause
 * Text for reports: names of statuses; a growing buffer with locale-independent formatting. */
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

static void add_bytes(struct clb_text *text, const char *bytes, size_t length)
{
    if (text->length + length + 1 > text->capacity && !text->failed) {
        const size_t capacity = 2 * text->capacity + length + 256;
        char *data = realloc(text->data, capacity);
        text->failed = data == NULL;
        text->data = data != NULL ? data : text->data;
        text->capacity = data != NULL ? capacity : text->capacity;
    }
    if (text->failed)
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
    va_list args;
    char *string;
    va_start(args, format);
    const int length = vasprintf(&string, format, args);
    va_end(args);
    if (length < 0) {
        text->failed = true;
        return;
    }
    add_bytes(text, string, (size_t)length);
    free(string);
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
