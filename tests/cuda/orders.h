#pragma once

/* Random legal orders: stages are dealt to the ranks at random, equally many to each; the next pass is a random one
   whose inputs are ready, and backwards are full or split. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { ORDER_RANKS_MAX = 4, ORDER_STAGES_MAX = 8, ORDER_MICROBATCHES_MAX = 6 };

static inline unsigned order_random(uint64_t *state, unsigned limit)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(*state >> 33) % limit;
}

/* Draws a random legal order, and writes it to `path` in the text form that dpc reads. */
static inline void write_order(const char *path, uint64_t seed, unsigned ranks)
{
    static char rows[ORDER_RANKS_MAX][1 << 12];
    uint64_t state = seed * 0x9e3779b97f4a7c15u;
    const unsigned chunks = 1 + order_random(&state, ORDER_STAGES_MAX / ranks), stages = ranks * chunks;
    const unsigned microbatches = 1 + order_random(&state, ORDER_MICROBATCHES_MAX);
    unsigned home[ORDER_STAGES_MAX], passes = 0;
    bool forward[ORDER_STAGES_MAX][ORDER_MICROBATCHES_MAX] = {0}, input[ORDER_STAGES_MAX][ORDER_MICROBATCHES_MAX] = {0};
    bool weight[ORDER_STAGES_MAX][ORDER_MICROBATCHES_MAX] = {0};
    memset(rows, 0, sizeof rows);
    for (unsigned s = 0; s < stages; s++)
        home[s] = s % ranks;
    for (unsigned s = stages; s-- > 1;) {
        const unsigned other = order_random(&state, s + 1), moved = home[s];
        home[s] = home[other];
        home[other] = moved;
    }
    while (passes < 3 * stages * microbatches) { /* if the drawn pass is not ready, another one is drawn */
        const unsigned s = order_random(&state, stages), m = order_random(&state, microbatches),
                       kind = order_random(&state, 4);
        const bool above = s + 1 == stages ? forward[s][m] : forward[s][m] && input[s + 1][m];
        char letter = 0;
        if (kind == 0 && !forward[s][m] && (s == 0 || forward[s - 1][m])) {
            letter = 'F';
            forward[s][m] = true;
            passes++;
        } else if ((kind == 1 || kind == 2) && above && !input[s][m]) {
            letter = kind == 1 ? 'B' : 'I';
            input[s][m] = true;
            weight[s][m] = kind == 1;
            passes += kind == 1 ? 2 : 1;
        } else if (kind == 3 && input[s][m] && !weight[s][m]) {
            letter = 'W';
            weight[s][m] = true;
            passes++;
        }
        char *row = rows[home[s]];
        const size_t used = strlen(row);
        if (letter)
            snprintf(row + used, sizeof rows[0] - used, "%s%u%c%u", used ? "," : "", s, letter, m);
    }
    FILE *stream = fopen(path, "w");
    assert_non_null(stream);
    for (unsigned r = 0; r < ranks; r++)
        fprintf(stream, "%s\n", rows[r]);
    assert_int_equal(fclose(stream), 0);
}
