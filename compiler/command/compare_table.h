#ifndef COMMAND_COMPARE_TABLE_H
#define COMMAND_COMPARE_TABLE_H

/* The table of dpc compare, as text and as JSON. */

#include "compiler/command/published.h"
#include "compiler/lower/memory.h"

#include <stdio.h>

typedef struct CompareRow {
    const char *path, *name; /* name: of the schedule, or again the path where it is not known */
    const char *reason;      /* why it has no figures; NULL: it has */
    uint32_t ranks, stages, microbatches;
    double makespan;
    Bubble bubble;
    uint32_t peak;       /* most activations of a stage on a rank */
    double copies;       /* of the weights, and versions of them */
    uint64_t messages;   /* of all ranks */
    double bytes;        /* of these; 0: the costs have none */
    double memory;       /* peak of a rank; 0: neither costs nor sizes of slots have any */
    bool fits;           /* within the limits of memory, if there are any */
    bool has_published;
    PublishedBubble published;
} CompareRow;

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
