#ifndef BASE_NAMES_H
#define BASE_NAMES_H

/* "Did you mean": the known word nearest to what was written. */

#include <stddef.h>

typedef struct NearestWord {
    const char *written;
    const char *word; /* so far; NULL: none is near enough to be meant */
    size_t distance;
} NearestWord;

NearestWord nearest_to(const char *written);
void nearest_consider(NearestWord *nearest, const char *word);

#endif
