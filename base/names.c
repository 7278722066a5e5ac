#include "base/names.h"

#include <ctype.h>
#include <stdbool.h>
#include <string.h>

enum { LONGEST = 32 }; /* the longest word, in letters, that is compared; longer ones get no suggestion */

static size_t smaller(size_t a, size_t b) { return a < b ? a : b; }

static bool same(char a, char b) { return tolower((unsigned char)a) == tolower((unsigned char)b); }

/* The edit distance: how many letters must be inserted, removed, changed or swapped with their neighbour to turn `a`
   into `b`. Capital and small letters are equal. */
static size_t edit_distance(const char *a, size_t a_length, const char *b, size_t b_length)
{
    size_t rows[3][LONGEST + 1];
    size_t *before = rows[0], *above = rows[1], *row = rows[2];
    for (size_t j = 0; j <= b_length; j++)
        above[j] = j;
    for (size_t i = 1; i <= a_length; i++) {
        row[0] = i;
        for (size_t j = 1; j <= b_length; j++) {
            row[j] = smaller(above[j - 1] + !same(a[i - 1], b[j - 1]), 1 + smaller(above[j], row[j - 1]));
            if (i > 1 && j > 1 && same(a[i - 1], b[j - 2]) && same(a[i - 2], b[j - 1]))
                row[j] = smaller(row[j], before[j - 2] + 1);
        }
        size_t *const reused = before;
        before = above;
        above = row;
        row = reused;
    }
    return above[b_length];
}

NearestWord nearest_to(const char *written)
{
    return (NearestWord){.written = written, .distance = strlen(written) < 3 ? 1 : strlen(written) < 6 ? 2 : 3};
}

void nearest_consider(NearestWord *nearest, const char *word)
{
    const size_t written = strlen(nearest->written), length = strlen(word);
    if (written > LONGEST || length > LONGEST)
        return;
    const size_t distance = edit_distance(nearest->written, written, word, length);
    if (distance < nearest->distance || (distance == nearest->distance && !nearest->word && distance < length)) {
        nearest->word = word;
        nearest->distance = distance;
    }
}
