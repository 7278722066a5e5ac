#pragma once

/* The table of dpc compare, as text and as JSON. dpc advise prints its table as text with compare_put_text, too. */

#include "study/trials/trial.h"

#include <stdio.h>

typedef struct CompareTable {
    const CompareRow *rows;
    size_t count;
    const char *diagnostics; /* printed diagnostics of the files that are wrong; "": no file is wrong */
    /* dpc advise: fewer columns, no published bubbles; rows without figures are listed as left out */
    bool brief;
    bool by_stages; /* all rows have the same number of stages (--stages); false: the same number of ranks */
    /* the command line does not give a size for which the files have different numbers; the rows use the largest */
    bool sizes_differ;
    /* number of replicas that sum their gradients; 0: sums of gradients are not counted */
    uint32_t replicas;
    uint32_t parts;        /* bytes of slots are given for 1/parts of the model; 0: the part is unknown */
    uint32_t costs_stages; /* the number of stages that the costs are for: see trial_costs_stages */
    bool stages_assumed;   /* costs_stages is a guess: the highest stage that the costs name + 1 */
    const Memory *memory;
    const Costs *costs; /* the costs of each of `costs_stages` stages (costs_resolve) */
} CompareTable;

/* What the rows are sorted by: a column, or the order in which the files were given. */
typedef int CompareSort;
/* Finds the column with this name. The name "file" means the order in which the files were given.
   STATUS_BAD_USAGE: no column has this name; the error lists the columns. */
Status compare_sort_named(const char *name, CompareSort *sort, Error *error);
/* Sorts the rows by the value in the column, the smallest first. Rows with equal values are sorted by makespan, then by
   bubble rate, memory, activations, name, parameters and path. Rows without figures come last. The column "schedule"
   sorts by name, parameters and path alone. With the order of the files, no row moves. */
void compare_sort(CompareRow *rows, size_t count, CompareSort sort);

/* The derived costs that at least one row uses, as bits 1 << StageCost. */
uint32_t compare_derived_costs(const CompareRow *rows, size_t count);

/* Bytes as text, such as "60.88G"; the arena owns it. */
const char *bytes_text(double bytes, Arena *arena);

void compare_put_text(const CompareTable *table, Arena *arena, FILE *stream);

/* {"chunks": 4} */
void compare_put_parameters(const CompareRow *row, FILE *stream);
/* Writes three keys of a JSON object, after a comma. "sums_time": what the sums of gradients add to the makespan;
   "sums_hidden": the share of the sums' time that is before the end of the last pass; "sums_bytes": bytes that all
   ranks of one replica send for these sums. */
void compare_put_sums(const GradientSums *sums, FILE *stream);
/* {"stages_of_times": (the number of stages that the costs are for), "stages_of_bytes": (the number of stages that
   --slot-bytes are for), "derived_costs": (as costs_put_derived_json, if there are any), "schedules": [one object per
   row]}. A row has file, schedule and parameters (the values of -D that it uses). If it has no figures, it also has
   refused, the reason. Otherwise it has ranks, stages, microbatches, makespan, bound, gap, cost, bubble (cost - work),
   bubble_rate, imbalance, order_bubble and messages_time (BubbleCauses), peak_activations, weight_copies,
   messages_sent; bytes_sent if the costs have bytes; with --replicas the keys of compare_put_sums; peak_memory (bytes
   of the rank that needs most) if the costs or --slot-bytes have bytes; missing_sizes (and no peak_memory), the sizes
   that --slot-bytes lacks; fits, if there is a --memory-limit: null if the limit needs a missing size; published,
   if there is a closed form: formula, source, bound (whether it is only a bound), bubble, outside_domain (why sizes or
   times lie outside the formula's domain; null: they lie in it). */
void compare_put_json(const CompareTable *table, FILE *stream);
