#include "base/settings.h"

#include "base/names.h"
#include "base/text.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char *trim(char *text)
{
    while (isspace((unsigned char)*text))
        text++;
    char *end = text + strlen(text);
    while (end > text && isspace((unsigned char)end[-1]))
        end--;
    *end = '\0';
    return text;
}

Status settings_assign(char *text, SettingTaker *take, void *context, Error *error)
{
    char *equals = strchr(text, '=');
    if (!equals)
        return error_set(error, STATUS_BAD_INPUT, "'%s' is not 'key = value'", text);
    *equals = '\0';
    return take(context, trim(text), trim(equals + 1), error);
}

Status settings_take(const char *path, char *text, size_t size, SettingTaker *take, void *context, Error *error)
{
    unsigned number = 1;
    TRY(text_accept(path, &text, &size, error));
    for (char *line = text, *next; line; line = next, number++) {
        next = strchr(line, '\n');
        if (next)
            *next++ = '\0';
        line[strcspn(line, "#")] = '\0';
        line = trim(line);
        const Status status = *line ? settings_assign(line, take, context, error) : STATUS_OK;
        if (status != STATUS_OK) {
            error_prefix(error, "%s:%u: ", path, number);
            return status;
        }
    }
    return STATUS_OK;
}

bool settings_bytes(const char *text, double *bytes)
{
    static const char units[] = "KMGT";
    char *end;
    *bytes = strtod(text, &end);
    const char *unit = end != text && *end ? strchr(units, *end) : NULL;
    if (unit) {
        *bytes = ldexp(*bytes, 10 * (int)(unit - units + 1));
        end++;
    }
    return end != text && !*end;
}

Status settings_unknown(const char *what, const char *word, const char *const *first, size_t stride, size_t count,
                        Error *error)
{
    NearestWord nearest = nearest_to(word);
    error_set(error, STATUS_BAD_INPUT, "no %s '%s'; there are", what, word);
    for (size_t i = 0; i < count; i++) {
        const char *known = *(const char *const *)((const char *)first + i * stride);
        const size_t used = strlen(error->text);
        nearest_consider(&nearest, known);
        snprintf(error->text + used, sizeof error->text - used, "%s %s", i ? "," : "", known);
    }
    if (nearest.word)
        return error_set(error, STATUS_BAD_INPUT, "no %s '%s'; did you mean %s?", what, word, nearest.word);
    return STATUS_BAD_INPUT;
}
