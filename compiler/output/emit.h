#ifndef OUTPUT_EMIT_H
#define OUTPUT_EMIT_H

/* The forms in which a schedule leaves the compiler as text. */

#include "compiler/compile.h"
#include "compiler/output/picture.h"
#include "compiler/output/terminal.h"
#include "runtime/program/recipe_times.h"

#include <stdio.h>

/* The order in the text form of torch.distributed.pipelining (see csv.h), without or with its messages. */
void emit_csv(const Schedule *schedule, bool messages, FILE *stream);

/* One JSON object. schedule, ranks, microbatches, makespan, cost (the largest end-start of a rank), bubble_rate ((cost
   - work) / cost, with work the mean busy time of a rank), imbalance, order_bubble and messages_time (BubbleCauses).
   per_rank: start, end, busy, idle (between start and end), peak_activations, slots of each class, messages_sent; where
   the memory has sizes, bytes; where the costs have them, bytes_sent and peak_memory (schedule/rank_load.h).
   critical_path: its passes (schedule/critical_path.h) in order, an F&B as one, with rank, start, end and source line.
   overlap, where components have times and F&Bs a recipe: makespan, compute and comm (how long they are busy), hidden
   (how much of comm is, by compute). derived_costs, where costs that it uses were not given (costs_put_derived_json).
   Times in the unit of the costs. */
void emit_stats(const Picture *picture, const Memory *memory, Arena *arena, FILE *stream);

/* The inside of an F&B under the costs of components: how long it takes, how much of its communication is hidden, how
   far it is from the shortest order, both streams, layer by layer, in characters, and where compute waits. */
void emit_overlap(const Compilation *compilation, FILE *stream);
/* One that was predicted beside one that was measured, in the trace at `path`. The schedule has a recipe; times are
   ms. */
void emit_overlap_diff(const Schedule *schedule, const RecipeTimes *predicted, const RecipeTimes *measured,
                       const char *path, Arena *arena, FILE *stream);

/* --- pictures of the timeline --- */

/* As papers draw it: rows are ranks, a cell a pass. Below it a second one of the same ranks, unless NULL, over the same
   time axis, with how much later each rank comes to its end there; then times are ms. `width`: of the picture, in
   pixels; 0: as wide as its numbers need. */
enum { SVG_LEAST_WIDTH = 400, SVG_MOST_WIDTH = 30000 }; /* viewers open no wider ones */
void emit_svg(const Picture *picture, const Picture *second, uint32_t width, Arena *arena, FILE *stream);

/* In characters: blocks of rows as wide as the terminal, of TEXT_LEAST_WIDTH columns or more. Colours are the 256 that
   terminals have. */
enum { TEXT_LEAST_WIDTH = 40 };
void emit_text(const Picture *picture, Terminal terminal, Arena *arena, FILE *stream);

/* As Chrome trace events, in the form of dprun --trace. */
void emit_trace(const Picture *picture, Arena *arena, FILE *stream);

/* As one page that needs nothing else: the timeline to be moved about in, with what each pass is and waits for; below
   it a second one, unless NULL: then both are in milliseconds. */
void emit_html(const Picture *picture, const Picture *second, Arena *arena, FILE *stream);

#endif
