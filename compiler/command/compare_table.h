#ifndef COMMAND_COMPARE_TABLE_H
#define COMMAND_COMPARE_TABLE_H

/* The table of dpc compare, as text and as JSON. */

#include "compiler/command/trial.h"

#include <stdio.h>

typedef struct CompareTable {
    const CompareRow *rows;
    size_t count;
    bool brief;            /* dpc advise: fewer columns, nothing published; what has a reason is left out */
    bool by_stages;        /* all of the same number of stages; else of the same number of ranks */
    bool sizes_differ;     /* the files' own, of which the largest were taken */
    uint32_t parts;        /* times and bytes are given for 1/parts of the model; 0: not known */
    uint32_t costs_stages; /* costs are of so many stages: as many, or what costs of single stages say */
    bool stages_assumed;   /* that was taken from the stages that they name */
    const Memory *memory;
    const Costs *costs; /* resolved for costs_stages */
} CompareTable;

/* A column to sort by, or the order in which the files were given. */
typedef int CompareSort;
/* STATUS_BAD_USAGE: there is no column of this name; says which there are. */
Status compare_sort_named(const char *name, CompareSort *sort, Error *error);
/* The smallest first; of equal ones the one that takes less time, then by names. Rows without figures come last. */
void compare_sort(CompareRow *rows, size_t count, CompareSort sort);

/* Bits 1 << StageCost: the derived costs that some row uses. */
uint32_t compare_derived_costs(const CompareRow *rows, size_t count);

/* Bytes as text, such as "60.88G"; the arena owns it. */
const char *bytes_text(double bytes, Arena *arena);

void compare_put_text(const CompareTable *table, Arena *arena, FILE *stream);

/* {"chunks": 4} */
void compare_put_parameters(const CompareRow *row, FILE *stream);
/* {"stages_of_times": (of how many stages the costs are), "stages_of_bytes": (the same of --slot-bytes),
   "derived_costs": (as costs_put_derived_json, where there are any), "schedules": [an object a row]}: file, schedule,
   parameters (-D that it took), and either refused, why it has no figures, or ranks, stages, microbatches, makespan,
   cost, bubble (cost - work), bubble_rate, imbalance, order_bubble and messages_time (BubbleCauses), peak_activations,
   weight_copies, messages_sent; bytes_sent where the costs have them, and peak_memory (of a rank) where they or
   --slot-bytes do; fits, where there is a --memory-limit; published, where there is a closed form: formula, source,
   bound (whether it is no more than that), bubble, outside_domain (why; null: sizes and times lie in its domain). */
void compare_put_json(const CompareTable *table, FILE *stream);

#endif
