#ifndef COMMAND_COMPARE_TABLE_H
#define COMMAND_COMPARE_TABLE_H

/* The table of dpc compare, as text and as JSON. */

#include "compiler/command/trial.h"

#include <stdio.h>

typedef struct CompareTable {
    const CompareRow *rows;
    size_t count;
    uint32_t cut; /* times and sizes are of a stage of so many */
    const Memory *memory;
} CompareTable;

void compare_put_text(const CompareTable *table, Arena *arena, FILE *stream);

/* {"stages_of_times": ..., "schedules": [one object a row]}: file, schedule, and either refused, why it has no figures, or ranks,
   stages, microbatches, makespan, cost, bubble (cost - work), bubble_rate, peak_activations, weight_copies, messages_sent; bytes_sent
   where the costs have them, and peak_memory (of a rank) where they or --slot-bytes do; fits, where there is a --memory-limit; published, where there is a closed form: formula, source, bound (whether it
   is no more than that), bubble, outside_domain (why; null: sizes and times lie in its domain). */
void compare_put_json(const CompareTable *table, FILE *stream);

#endif
