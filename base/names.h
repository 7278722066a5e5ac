#pragma once

/* "Did you mean": finds the known word that is nearest to the given one. */

#include <stddef.h>

typedef struct NearestWord {
    const char *written;
    const char *word; /* the nearest known word so far; NULL: none is near enough */
    size_t distance;
} NearestWord;

NearestWord nearest_to(const char *written);
void nearest_consider(NearestWord *nearest, const char *word);
