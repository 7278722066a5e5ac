/* Texts that the library receives, and those that it returns. */

#include "library/internal.h"

#include "runtime/program/costs_parts.h"

#include <stdlib.h>
#include <string.h>

char *host_text(dps *d, const char *text, size_t length)
{
    char *const copy = host_new(d, length + 1);
    memcpy(copy, text, length);
    return copy;
}

const char *host_path(const char *path) { return strcmp(path, "-") == 0 ? "./-" : path; }

Status costs_take(Costs *costs, const char *const *texts, size_t count, Arena *arena, Error *error)
{
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
