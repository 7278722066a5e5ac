/* Texts that the library receives, and those that it returns. */

#include "library/internal.h"

#include "program/times/costs_parts.h"

#include <stdlib.h>
#include <string.h>

char *host_text(dps *d, const char *text, size_t length)
{
    char *const copy = host_new(d, length + 1);
    memcpy(copy, text, length);
    return copy;
}

Status texts_check(const char *name, const char *const *texts, size_t count, Error *error)
{
    enum { COUNT_MAX = 10000 };
    if (count > COUNT_MAX)
        return error_set(error, STATUS_BAD_USAGE, "%s: there can be at most %d, not %zu", name, COUNT_MAX, count);
    if (count && !texts)
        return error_set(error, STATUS_BAD_USAGE, "%s is NULL, but their number is %zu", name, count);
    for (size_t i = 0; i < count; i++)
        if (!texts[i])
            return error_set(error, STATUS_BAD_USAGE, "%s[%zu] is NULL", name, i);
    return STATUS_OK;
}

Status length_check(size_t length, Error *error)
{
    return length <= PTRDIFF_MAX
               ? STATUS_OK
               : error_set(error, STATUS_BAD_USAGE, "`length` is %zu: no memory holds so much", length);
}

const char *host_path(const char *path) { return path && strcmp(path, "-") == 0 ? "./-" : path; }

Status costs_take(Costs *costs, const char *const *texts, size_t count, Arena *arena, Error *error)
{
    TRY(texts_check("costs", texts, count, error));
    for (size_t i = 0; i < count; i++) {
        if (strcmp(texts[i], "@-") == 0)
            return error_set(error, STATUS_BAD_USAGE,
                             "costs: the library does not read \"@-\", the standard input: write the costs to a file "
                             "and give \"@FILE\"");
        TRY(costs_set(costs, texts[i], arena, error));
    }
    return costs_check_parts(costs, error);
}

FILE *text_begin(dps *d)
{
    d->stream = open_memstream(&d->streamed, &d->streamed_length);
    if (!d->stream)
        longjmp(d->exhausted, 1);
    return d->stream;
}

const char *text_end(dps *d, size_t *length)
{
    FILE *const stream = d->stream;
    const bool failed = ferror(stream);
    d->stream = NULL;
    if (fclose(stream) || failed)
        longjmp(d->exhausted, 1);
    *length = d->streamed_length;
    return d->streamed;
}
