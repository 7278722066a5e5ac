#ifndef OUTPUT_EMIT_H
#define OUTPUT_EMIT_H

/* The outputs of dpc as text. */

#include "compiler/compile.h"
#include "compiler/output/picture.h"
#include "compiler/output/terminal.h"
#include "runtime/program/recipe_times.h"

#include <stdio.h>

/* What --emit writes. */
typedef enum EmitKind {
    EMIT_CSV,
    EMIT_COMMS,
    EMIT_ASM,
    EMIT_STATS,
    EMIT_SVG,
    EMIT_HTML,
    EMIT_TEXT,
    EMIT_TRACE,
    EMIT_EXPLAIN,
    EMIT_OVERLAP,
    EMIT_KINDS
} EmitKind;

/* A complete compilation, with what its outputs need besides. */
typedef struct Emission {
    const Compilation *compilation; /* its arena gives working memory */
    const Timeline *times;
    Gap gap;              /* of their makespan */
    const Proven *proven; /* NULL: no solver was asked */
    const Memory *memory; /* sizes of slots */
    uint32_t svg_width;   /* of EMIT_SVG in pixels; 0: as wide as the numbers in its cells need */
    Terminal terminal;    /* of EMIT_TEXT */
} Emission;

Picture emission_picture(const Emission *emission);
void emit(const Emission *emission, EmitKind kind, FILE *stream);

/* The order in the text form of torch.distributed.pipelining (see csv.h), without or with its messages. */
void emit_csv(const Schedule *schedule, bool messages, FILE *stream);

/* One JSON object. schedule, ranks, microbatches, makespan, bound and gap (schedule/bound.h), cost (the largest end -
   start of a rank), bubble_rate ((cost - work) / cost, where work is the mean busy time of a rank), imbalance,
   order_bubble and messages_time (BubbleCauses). per_rank: start, end, busy, idle (between start and end),
   peak_activations, slots of each class, messages_sent; bytes if the memory has sizes; bytes_sent and peak_memory if
   the costs have them (schedule/rank_load.h). critical_path: its passes (schedule/critical_path.h) in order, an F&B as
   one, with rank, start, end and source line. overlap, if components have times and F&Bs a recipe: makespan, compute
   and comm (the time that each is busy), hidden (the part of comm that compute hides). overlap_of_chunks: the same for
   each recipe of certain chunks, which are first and second. derived_costs, if costs that it
   uses were not given (costs_put_derived_json). proven, after --prove: bound and gap by the solver, and shortest, the
   makespan of the shortest order known. Times are in the unit of the costs. */
void emit_stats(const Picture *picture, const Memory *memory, Arena *arena, FILE *stream);

/* Prints how an F&B runs with the given costs of its components: its time, the share of communication that it hides,
   how much longer it takes than the shortest order, a picture of both streams in characters for each layer, and what
   the compute stream waits for. */
void emit_overlap(const Compilation *compilation, FILE *stream);
/* Prints the figures and pictures of a predicted F&B and of a measured one. `path`: the trace with the measured one.
   The schedule has a recipe; times are in ms. */
void emit_overlap_diff(const Schedule *schedule, const RecipeTimes *predicted, const RecipeTimes *measured,
                       const char *path, Arena *arena, FILE *stream);

/* --- pictures of the timeline --- */

/* The timeline as papers draw it: one row per rank, one cell per pass. A second timeline, `second`, is drawn below the
   first over the same time axis, with the difference between the ends of each rank in the two; times are then in ms.
   `second` may be NULL. `width`: of the picture in pixels; 0: as wide as the numbers in its cells need. */
enum { SVG_LEAST_WIDTH = 400, SVG_MOST_WIDTH = 30000 }; /* viewers cannot open wider ones */
void emit_svg(const Picture *picture, const Picture *second, uint32_t width, Arena *arena, FILE *stream);

/* The timeline in characters: blocks of rows that are no wider than the terminal, unless this is very narrow. Colours
   are the 256 of terminals. TEXT_LEAST_WIDTH: the smallest --width. */
enum { TEXT_LEAST_WIDTH = 40 };
void emit_text(const Picture *picture, Terminal terminal, Arena *arena, FILE *stream);

/* The timeline as Chrome trace events, in the form of dprun --trace. */
void emit_trace(const Picture *picture, Arena *arena, FILE *stream);

/* A self-contained HTML page: a timeline that the reader can move and enlarge, and that shows for each pass what it is
   and what it waits for. `second`, unless NULL, is a second timeline below the first; times are then in ms. */
void emit_html(const Picture *picture, const Picture *second, Arena *arena, FILE *stream);

#endif
