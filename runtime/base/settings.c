#include "runtime/base/settings.h"

#include <ctype.h>
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

/* Cuts `text` into key and value. */
static Status take_text(char *text, SettingTaker *take, void *context, Error *error)
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
    if (memchr(text, '\0', size))
        return error_set(error, STATUS_BAD_INPUT, "%s: not a text of 'key = value' lines", path);
    for (char *line = text, *next; line; line = next, number++) {
        next = strchr(line, '\n');
        if (next)
            *next++ = '\0';
        line[strcspn(line, "#")] = '\0';
        line = trim(line);
        const Status status = *line ? take_text(line, take, context, error) : STATUS_OK;
        if (status != STATUS_OK) {
            error_prefix(error, "%s:%u: ", path, number);
            return status;
        }
    }
    return STATUS_OK;
}

Status settings_assign(const char *text, size_t length, SettingTaker *take, void *context, Error *error)
{
    char *copy = strndup(text, length);
    if (!copy)
        return error_set(error, STATUS_RUN_FAILED, "out of memory");
    const Status status = take_text(copy, take, context, error);
    free(copy);
    return status;
}

/* Twice Levenshtein's distance, of words short enough for a row on the stack; a letter of the other case counts half. */
static size_t distance(const char *a, const char *b)
{
    enum { LONGEST = 32 };
    const size_t a_length = strlen(a), b_length = strlen(b);
    if (a_length > LONGEST || b_length > LONGEST)
        return 2 * (a_length + b_length);
    size_t row[LONGEST + 1];
    for (size_t j = 0; j <= b_length; j++)
        row[j] = 2 * j;
    for (size_t i = 1; i <= a_length; i++) {
        size_t diagonal = row[0];
        row[0] = 2 * i;
        for (size_t j = 1; j <= b_length; j++) {
            const unsigned char x = (unsigned char)a[i - 1], y = (unsigned char)b[j - 1];
            const size_t change = diagonal + (x == y ? 0 : tolower(x) == tolower(y) ? 1 : 2);
            const size_t edit = 2 + (row[j] < row[j - 1] ? row[j] : row[j - 1]);
            diagonal = row[j];
            row[j] = change < edit ? change : edit;
        }
    }
    return row[b_length];
}

size_t settings_nearest(const char *word, const char *const *first, size_t stride, size_t count)
{
    size_t nearest = 0, least = (size_t)-1;
    for (size_t i = 0; i < count; i++) {
        const char *known = *(const char *const *)((const char *)first + i * stride);
        const size_t away = distance(word, known);
        if (away < least) {
            least = away;
            nearest = i;
        }
    }
    return nearest;
}
