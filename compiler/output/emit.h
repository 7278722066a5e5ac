#pragma once

/* The outputs of dpc that --emit writes. */

#include "compiler/compile.h"
#include "compiler/output/picture.h"
#include "compiler/output/terminal.h"
#include "program/times/recipe_times.h"

#include <stdio.h>

/* The kinds of output. kinds.def has a row for each. */
typedef enum EmitKind {
#define EMIT(kind, name, help, write) EMIT_##kind,
#include "compiler/output/kinds.def"
#undef EMIT
    EMIT_KINDS
} EmitKind;

/* A complete compilation, and what else emit() needs to write its outputs. */
typedef struct Emission {
    const Compilation *compilation; /* the arena of the compilation gives working memory */
    const Timeline *times;
    Gap gap;              /* gap between the makespan of `times` and its lower bound */
    const Proven *proven; /* the result of --prove; NULL: no solver was asked */
    const Memory *memory; /* sizes of slots, for EMIT_STATS */
    uint32_t svg_width;   /* width of EMIT_SVG in pixels; 0: emit_svg chooses it */
    Terminal terminal;    /* width and colours of EMIT_TEXT */
} Emission;

Picture emission_picture(const Emission *emission);
void emit(const Emission *emission, EmitKind kind, FILE *stream);

/* Writes the orders in the text form of torch.distributed.pipelining (see csv.h), with or without messages. */
void emit_csv(const Schedule *schedule, bool messages, FILE *stream);

/* --- orders for other runtimes --- */

/* STATUS_BAD_INPUT: the runtime that an output is for cannot run the schedule; the error says why. */
Status emit_fits(const Schedule *schedule, EmitKind kind, Error *error);
/* Prints how to run an output that cannot say so itself: the flags of torchtitan for the order in `file`. */
void emit_note(const Schedule *schedule, EmitKind kind, const char *file, FILE *stream);
/* Writes the flags with which Megatron-Core runs the order itself, or that it has no such order. */
void emit_megatron(const Schedule *schedule, Arena *arena, FILE *stream);
/* Each writes a Python module: the order as a text, then the lines of runtimes/jaxpp.py or runtimes/shardy.py. */
void emit_jaxpp(const Schedule *schedule, Arena *arena, FILE *stream);
void emit_shardy(const Schedule *schedule, Arena *arena, FILE *stream);

/* --- figures --- */

/* Writes one JSON object. Times are in the unit of the costs. Its keys:
     schedule, ranks, microbatches, makespan
     bound, gap            lower bound of the makespan, and gap to it (schedule/bound.h)
     cost, bubble_rate     the largest end - start of a rank; (cost - mean busy time of a rank) / cost
     imbalance, order_bubble, messages_time    see BubbleCauses
     per_rank              start, end, busy, idle (between start and end), peak_activations, slots of each class,
                           messages_sent; bytes if the memory has sizes; bytes_sent and peak_memory if the costs have
                           them (schedule/rank_load.h)
     critical_path         the passes and U of it in order (schedule/critical_path.h), an F&B or F&F as one, with rank,
                           start, end and source line
     overlap               if components have times and there is a recipe for all F&Bs or F&Fs: makespan, in_turn (the
                           sum of all parts), compute and comm (the time that each stream is busy), hidden (the part of
                           comm that compute hides); share and whole, if communication has `share` of `whole`
                           multiprocessors; after, if the recipe puts weight gradients off: how long the rank is busy
                           with them after the F&B, in the stage where this takes longest
     overlap_of_chunks     a list: for each recipe of certain chunks the same keys, and the chunks: first, second
     derived_costs         if some costs that are used were not given (costs_put_derived_json)
     chosen                values of parameters that the file computes from the costs, if there are any
     proven                after --prove: bound and gap by the solver; shortest: makespan of the shortest order known */
void emit_stats(const Picture *picture, const Memory *memory, Arena *arena, FILE *stream);

/* Prints how F&Bs (or F&Fs) run with the given costs of their components, for each recipe of the schedule: the time,
   the share of communication that is hidden, a picture of both streams in characters for each layer, and what the
   compute stream waits for. Compares an F&B that puts no weight gradients off with the shortest order. Without a recipe
   or times of components, prints what is missing. */
void emit_overlap(const Compilation *compilation, FILE *stream);
/* Prints figures and pictures of a predicted F&B beside those of a measured one. `path`: the trace with the measured
   F&B. The schedule has a recipe for all F&Bs; times are in ms. */
void emit_overlap_diff(const Schedule *schedule, const RecipeTimes *predicted, const RecipeTimes *measured,
                       const char *path, Arena *arena, FILE *stream);

/* --- pictures of the timeline --- */

/* Draws the timeline as papers do: one row per rank, one cell per pass. `second`, if not NULL, is another timeline,
   drawn below the first one over the same time axis, with the differences between the ends of each rank; times are then
   in ms. `width`: of the picture in pixels; 0: emit_svg chooses it, from what the passes, the numbers in the cells, the
   titles and the legend need. */
enum { SVG_LEAST_WIDTH = 400, SVG_MOST_WIDTH = 30000 }; /* limits of `width`; viewers cannot open wider pictures */
void emit_svg(const Picture *picture, const Picture *second, uint32_t width, Arena *arena, FILE *stream);

/* Draws the timeline in characters: blocks of rows, no wider than the terminal unless it is very narrow. Uses the 256
   colours of terminals if terminal.colours is set. TEXT_LEAST_WIDTH: the smallest --width. */
enum { TEXT_LEAST_WIDTH = 40 };
void emit_text(const Picture *picture, Terminal terminal, Arena *arena, FILE *stream);

/* Writes the timeline as Chrome trace events, in the form of dprun --trace. */
void emit_trace(const Picture *picture, Arena *arena, FILE *stream);

/* Writes a self-contained HTML page: a timeline that the reader can move and enlarge, and that shows for each pass
   what it is and what it waits for. `second`, if not NULL, is another timeline below the first one; times are then in
   ms. */
void emit_html(const Picture *picture, const Picture *second, Arena *arena, FILE *stream);
