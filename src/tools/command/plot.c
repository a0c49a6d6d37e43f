/* Pictures of bench, report and ladder, by gnuplot. SPDX-License-Identifier: BSD-3-Clause */
#include "command.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

void clb_plot_quote(FILE *script, const char *text)
{
    fputc('\'', script);
    for (; *text != '\0'; text++) {
        if (*text == '\'')
            fputc('\'', script);
        fputc(*text, script);
    }
    fputc('\'', script);
}

static bool ends_with(const char *text, const char *ending)
{
    size_t length = strlen(text), size = strlen(ending);
    return length > size && strcmp(text + length - size, ending) == 0;
}

bool clb_plot_name(const char *file)
{
    return ends_with(file, ".svg") || ends_with(file, ".png") ||
           clb_fail(false, "%s ends neither in .svg nor in .png", file);
}

void clb_plot_begin(FILE *script, const char *file, size_t width, size_t height)
{
    fprintf(script, "set terminal %s noenhanced size %zu,%zu%s\nset output ",
            ends_with(file, ".svg") ? "svg" : "png", width, height,
            ends_with(file, ".svg") ? " background 'white'" : "");
    clb_plot_quote(script, file);
    fputc('\n', script);
}

void clb_plot_bars(FILE *script, const char *file, const char *title, const char *settings,
                   size_t count)
{
    clb_plot_begin(script, file, 1000, 130 + 26 * count);
    fprintf(script, "set title ");
    clb_plot_quote(script, title);
    fprintf(script,
            "\nset yrange [%zu - 0.5:-0.5]\nset grid xtics\nset style fill solid 0.7\n%s\n"
            "plot $bars using 3:1:2:3:($1-0.4):($1+0.4):ytic(5) with boxxyerror title 'on the "
            "device', $bars using 4:1:3:4:($1-0.4):($1+0.4) with boxxyerror title 'in the next "
            "library', $bars using 4:1:6 with labels left notitle\n",
            count, settings);
}

bool clb_plot_draw(const char *file, void (*write)(FILE *, const json_t *, const char *),
                   const json_t *result)
{
    /* A file of before would hide a failure. */
    if (remove(file) != 0 && errno != ENOENT)
        return clb_fail(false, "%s: %s", file, strerror(errno));
    signal(SIGPIPE, SIG_IGN);
    FILE *script = popen("exec gnuplot 2>/dev/null", "w");
    if (script != NULL)
        write(script, result, file);
    const int status = script != NULL ? pclose(script) : -1;
    return (status == 0 && access(file, R_OK) == 0) ||
           clb_fail(false, status == 127 << 8 ? "%s: a plot needs gnuplot" : "%s: gnuplot failed",
                    file);
}

json_t *clb_result_load(const char *file, const char *key)
{
    json_error_t error;
    json_t *result = json_load_file(file, 0, &error);
    if (result != NULL && json_is_array(json_object_get(result, key)))
        return result;
    if (result == NULL && error.line <= 0)
        clb_fail(0, "%s: %s", file, error.text);
    else
        clb_fail(0, "%s was not written by this command with --json", file);
    json_decref(result);
    return NULL;
}
