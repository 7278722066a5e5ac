#ifndef COMMAND_COMPARE_TABLE_H
#define COMMAND_COMPARE_TABLE_H

/* The table of dpc compare, as text and as JSON. */

#include "compiler/command/trial.h"

#include <stdio.h>

typedef struct CompareTable {
    const CompareRow *rows;
    size_t count;
    const char *diagnostics; /* of the files that are wrong, as they are printed; "": there are none */
    bool brief;              /* dpc advise: fewer columns and no published bubbles; rows with a reason are left out */
    bool by_stages;          /* all rows have the same number of stages (--stages); false: the same number of ranks */
    bool sizes_differ;       /* the files have different default sizes; the rows use the largest */
    /* replicas of the pipeline that sum their gradients; 0: sums of gradients are not counted */
    uint32_t replicas;
    uint32_t parts;        /* times and bytes are given for 1/parts of the model; 0: unknown */
    uint32_t costs_stages; /* the number of stages that the costs are for: see trial_costs_stages */
    bool stages_assumed;   /* costs_stages is a guess: the highest stage that the costs name + 1 */
    const Memory *memory;
    const Costs *costs; /* resolved for costs_stages */
} CompareTable;

/* A column to sort by, or the order in which the files were given. */
typedef int CompareSort;
/* Finds the column of this name. STATUS_BAD_USAGE: there is none; the error lists the columns. */
Status compare_sort_named(const char *name, CompareSort *sort, Error *error);
/* Sorts the rows by the value in the column, the smallest first. Rows with equal values are sorted by makespan, then by
   bubble rate, memory, activations per stage, name, parameters and path. Rows without figures come last. The column of
   names sorts by name, parameters and path alone. */
void compare_sort(CompareRow *rows, size_t count, CompareSort sort);

/* Bits 1 << StageCost: the derived costs that some row uses. */
uint32_t compare_derived_costs(const CompareRow *rows, size_t count);

/* Bytes as text, such as "60.88G"; the arena owns it. */
const char *bytes_text(double bytes, Arena *arena);

void compare_put_text(const CompareTable *table, Arena *arena, FILE *stream);

/* {"chunks": 4} */
void compare_put_parameters(const CompareRow *row, FILE *stream);
/* Writes ,"sums_time": (what sums of gradients add to the makespan), "sums_hidden": (the share of the time of these
   sums that is before the end of the last pass), "sums_bytes": (bytes that all ranks of one replica send for them). */
void compare_put_sums(const GradientSums *sums, FILE *stream);
/* {"stages_of_times": (the number of stages that the costs are for), "stages_of_bytes": (the same for --slot-bytes),
   "derived_costs": (as costs_put_derived_json, if there are any), "schedules": [one object per row]}: file, schedule,
   parameters (the -D that it has), and either refused, the reason why it has no figures, or ranks, stages,
   microbatches, makespan, bound, gap, cost, bubble (cost - work), bubble_rate, imbalance, order_bubble and
   messages_time (BubbleCauses), peak_activations, weight_copies, messages_sent; bytes_sent if the costs have bytes,
   those of compare_put_sums with --replicas, and peak_memory (of a rank) if they or --slot-bytes do; fits, if there is
   a --memory-limit; published, if there is a closed form: formula, source, bound (whether it is only a bound), bubble,
   outside_domain (why; null: sizes and times lie in its domain). */
void compare_put_json(const CompareTable *table, FILE *stream);

#endif
