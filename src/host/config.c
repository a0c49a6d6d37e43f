/* SPDX-License-Identifier: BSD-3-Clause
 * The configuration: read once from the environment at the first intercepted call. */
#include "process.h"

#include <errno.h>
#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

#define PREFIX "CLBLAS_SHIM"

/* A variable of config.def: its parser, which stores a valid value in the field, and its help. */
struct variable {
    const char *name;
    bool (*parse)(void *field, const char *value);
    size_t field;
    const char *placeholder;
};

/* Of these words the index. */
#define WORDS(kind, type, ...)                                          \
    static bool parse_##kind(void *field, const char *value)            \
    {                                                                   \
        static const char *const words[] = {__VA_ARGS__};               \
        size_t i = 0;                                                   \
        while (i < CLB_COUNT_OF(words) && strcmp(value, words[i]) != 0) \
            i++;                                                        \
        if (i < CLB_COUNT_OF(words))                                    \
            *(type *)field = (type)i;                                   \
        return i < CLB_COUNT_OF(words);                                 \
    }
WORDS(mode, clb_mode, [CLB_MODE_AUTO] = "auto", [CLB_MODE_OFF] = "off",
      [CLB_MODE_ALWAYS] = "always", [CLB_MODE_DRY_RUN] = "dry-run")
WORDS(math, clb_math, [CLB_MATH_STRICT] = "strict", [CLB_MATH_DEFAULT] = "default",
      [CLB_MATH_FAST] = "fast")
WORDS(log, clb_log_level, [CLB_LOG_ERROR] = "error", [CLB_LOG_WARN] = "warn",
      [CLB_LOG_INFO] = "info", [CLB_LOG_DEBUG] = "debug")

/* Any text; the tuning layer knows the names of kernel families. */
static bool parse_text(void *field, const char *value)
{
    *(const char **)field = value;
    return true;
}

static bool parse_switch(void *field, const char *value)
{
    *(bool *)field = strcmp(value, "1") == 0;
    return strcmp(value, "1") == 0 || strcmp(value, "0") == 0;
}

/* Bytes, or a share of at most `most` percent. */
static bool parse_room(const char *value, double most, uint64_t *bytes, double *percent)
{
    double number;
    bool share;
    if (!clb_parse_bytes(value, strlen(value), &number, &share) || number <= 0 ||
        number > (share ? most : 9e18))
        return false;
    *percent = share ? number : 0;
    *bytes = share ? 0 : (uint64_t)number;
    return true;
}

static bool parse_cache_size(void *field, const char *value)
{
    double percent;
    return parse_room(value, 0, field, &percent);
}

static bool parse_memory(void *field, const char *value)
{
    struct clb_memory_limit *memory = field;
    return parse_room(value, 100, &memory->bytes, &memory->percent);
}

static bool parse_probe(void *field, const char *value)
{
    return (value[0] == '/' || strcmp(value, "none") == 0) && parse_text(field, value);
}

static bool parse_threshold(void *field, const char *value)
{
    return clb_parse_number(value, strlen(value), field);
}

static bool parse_verify(void *field, const char *value)
{
    double number;
    const bool good = clb_parse_number(value, strlen(value), &number) && number <= 1;
    if (good)
        *(double *)field = number;
    return good;
}

bool clb_param_next(const char **list, struct clb_param_override *item)
{
    const size_t length = *list != NULL ? strcspn(*list, ",") : 0;
    const char *equals = length > 0 ? memchr(*list, '=', length) : NULL;
    if (equals == NULL || equals == *list)
        return false;
    item->key = *list;
    item->key_length = (size_t)(equals - *list);
    item->value = equals + 1;
    item->value_length = length - item->key_length - 1;
    *list += length;
    *list += **list == ',';
    return true;
}

/* "key=value,key=value": the keys are checked by the tuning layer, which knows them. */
static bool parse_params(void *field, const char *value)
{
    struct clb_param_override item;
    const char *rest = value;
    while (clb_param_next(&rest, &item))
        ;
    return *rest == '\0' && parse_text(field, value);
}

static const struct variable variables[] = {
#define CLB_CONFIG(suffix, field, kind, placeholder, default_text, help) \
    {PREFIX suffix, parse_##kind, offsetof(struct clb_config, field), placeholder},
#include "config.def"
#undef CLB_CONFIG
};

void clb_config_parse(struct clb_config *config, const char *(*lookup)(const char *name))
{
    *config = (struct clb_config){.mode = CLB_MODE_AUTO,
                                  .threshold = -1,
                                  .verify = -1,
                                  .memory = {.percent = 80},
                                  .math = CLB_MATH_DEFAULT,
                                  .cache_size = (uint64_t)64 << 20,
                                  .log = CLB_LOG_ERROR};
    for (const struct variable *v = variables; v < variables + CLB_COUNT_OF(variables); v++) {
        const char *value = lookup(v->name);
        if (value != NULL && *value != '\0' && !v->parse((char *)config + v->field, value))
            clb_complain("%s=%s is not valid (expected %s), the default is used", v->name, value,
                         v->placeholder);
    }
}

/* ---- the process's configuration ---- */

const struct clb_config *_Atomic clb_config_known;

static struct clb_config process_config;
static pthread_once_t process_once = PTHREAD_ONCE_INIT;

/* Copies of the values, because the program may change its environment later. Never freed; referred
 * to from here so that leak checkers don't report them; `used`, because nothing reads it. */
static char *copies[CLB_COUNT_OF(variables)] __attribute__((used));
static size_t copied;

static const char *get_copy(const char *name)
{
    const char *value = secure_getenv(name);
    char **copy = &copies[copied++];
    *copy = value == NULL ? NULL : strdup(value);
    return *copy;
}

static void read_process_config(void)
{
    copied = 0; /* pthread_once begins anew in a child forked meanwhile, or after a cancellation */
    clb_config_parse(&process_config, get_copy);
    if (getauxval(AT_SECURE) != 0)
        process_config.mode = CLB_MODE_OFF;
    clb_log_open(process_config.log, process_config.log_file);
    clb_trace_open(process_config.trace);
}

const struct clb_config *clb_config_read(void)
{
    clb_fork_watch();
    pthread_once(&process_once, read_process_config);
    atomic_store_explicit(&clb_config_known, &process_config, memory_order_release);
    return &process_config;
}

bool clb_config_asks_for_table(void)
{
    const char *value = secure_getenv(PREFIX "_STATS");
    return value != NULL && strcmp(value, "-") == 0;
}

/* ---- names of variables ---- */

#define MAX_NAME 64

static void format_threshold_name(char name[MAX_NAME], const char *routine)
{
    snprintf(name, MAX_NAME, PREFIX "_THRESHOLD_%s", routine);
    for (char *c = name; *c != '\0'; c++) /* toupper depends on the locale */
        *c = (*c >= 'a' && *c <= 'z') ? (char)(*c - 'a' + 'A') : *c;
}

static bool is_known(const char *name, const char *(*routine)(size_t index))
{
    char threshold[MAX_NAME];
    const char *stem;
    bool known = false;
    for (size_t i = 0; i < CLB_COUNT_OF(variables); i++)
        known = known || strcmp(name, variables[i].name) == 0;
    for (size_t i = 0; !known && (stem = routine(i)) != NULL; i++) {
        format_threshold_name(threshold, stem);
        known = strcmp(name, threshold) == 0;
    }
    return known;
}

void clb_config_check_names(const char *(*routine)(size_t index))
{
    if (getauxval(AT_SECURE) != 0)
        return;
    for (char **entry = environ; entry != NULL && *entry != NULL; entry++) {
        char name[2 * MAX_NAME];
        const char *value = strchr(*entry, '=');
        if (strncmp(*entry, PREFIX, strlen(PREFIX)) != 0 || value == NULL || value[1] == '\0')
            continue;
        snprintf(name, sizeof name, "%.*s", (int)(value - *entry), *entry);
        if (!is_known(name, routine))
            clb_complain("unknown variable %s", name);
    }
}

double clb_config_threshold(const char *routine)
{
    const struct clb_config *config = clb_config_get();
    char name[MAX_NAME];
    format_threshold_name(name, routine);
    const char *value = secure_getenv(name);
    double number;
    if (value == NULL || *value == '\0')
        return config->threshold;
    if (clb_parse_number(value, strlen(value), &number))
        return number;
    clb_complain("%s=%s is not valid (expected N), the default is used", name, value);
    return config->threshold;
}

/* ---- numbers ---- */

/* A decimal number with optional fraction and exponent, without sign. */
bool clb_parse_number(const char *text, size_t length, double *value)
{
    char copy[64], *end;
    if (length >= sizeof copy || strspn(text, "0123456789.eE+-") < length || text[0] == '+' ||
        text[0] == '-')
        return false;
    memcpy(copy, text, length);
    copy[length] = '\0';
    const int saved = errno;
    errno = 0;
    const double number = strtod_l(copy, &end, newlocale(LC_ALL_MASK, "C", (locale_t)0));
    const bool good = length > 0 && *end == '\0' && errno == 0;
    errno = saved;
    if (good)
        *value = number;
    return good;
}

bool clb_parse_bytes(const char *text, size_t length, double *value, bool *percent)
{
    static const char units[] = "%kKmMgG";
    const char *unit = length > 0 ? memchr(units, text[length - 1], sizeof units - 1) : NULL;
    *percent = unit == units;
    if (!clb_parse_number(text, length - (unit != NULL), value))
        return false;
    *value = unit != NULL ? ldexp(*value, (int)(unit - units + 1) / 2 * 10) : *value;
    return true;
}
