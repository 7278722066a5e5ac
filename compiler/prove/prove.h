#ifndef PROVE_PROVE_H
#define PROVE_PROVE_H

/* Nothing runs unproven. A proof reads the schedule and changes nothing in it; each needs those before it in this file.
   What fails is a diagnostic that names ranks, passes and source lines. */

#include "compiler/schedule/timeline.h"
#include "runtime/program/program.h"

/* Every order is legal as far as one rank can tell: microbatches and stages in range; every F, and every B or I and W,
   exactly once and on the rank of its stage; F before its backward, I before its W; the halves of an F&B are an F and a
   B or I of different microbatches. Makes the table. */
bool prove_passes(const Schedule *schedule, Arena *arena, Diagnostics *diagnostics, PassTable *table);

/* Of a schedule with U (copies_find): every F finds the version of the weights that its microbatch is to use (the
   backward keeps it: that is the plan's), every version is made on all copies of the stage, of at least one gradient,
   and every gradient is taken by one U. */
bool prove_versions(const Schedule *schedule, const PassTable *table, Arena *arena, Diagnostics *diagnostics);

/* All passes can run: no ranks wait for each other's passes. Makes the times in costs_unit. */
bool prove_order(const Schedule *schedule, const PassTable *table, Arena *arena, Diagnostics *diagnostics,
                 Timeline *times);

/* The communication in the orders, derived or written by hand: every value that another rank needs is sent once, after
   the pass that makes it, and received once, before the pass that needs it, and nothing else is; and both ends of each
   directed pair of ranks agree on the order of its messages. */
bool prove_messages(const Schedule *schedule, const PassTable *table, Arena *arena, Diagnostics *diagnostics);

/* The program that was made of the schedule passes its verification: above all, if every rank runs its instructions
   strictly one after the other, each send waiting for its receive and each receive for its send, all ranks come to
   their end. STATUS_BAD_INPUT with a diagnostic where they do not; anything else that fails is the compiler's mistake,
   and `error` says so. */
Status prove_program(const Schedule *schedule, const Program *program, Arena *arena, Diagnostics *diagnostics,
                     Error *error);

#endif
