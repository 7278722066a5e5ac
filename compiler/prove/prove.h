#pragma once

/* The proofs of a schedule; nothing runs unproven. A proof reads the schedule and changes nothing in it; each proof
   needs those before it in this file. A proof that fails returns false (prove_program another status than STATUS_OK),
   and a diagnostic names ranks, passes and source lines. */

#include "compiler/schedule/timeline.h"
#include "program/program.h"

/* Proves what one rank's order alone can show. No rank holds the same stage of two pipes. Microbatches and stages are
   in range. Every F runs exactly once, on the rank that holds its stage for its microbatch; so does every B, or I and
   W, unless the schedule is forward-only. F comes before its backward, I before its W. The halves of an F&B are an F
   and a B or I, those of an F&F two F; two halves of one pipe have different microbatches. Fills in the table. */
bool prove_passes(const Schedule *schedule, Arena *arena, Diagnostics *diagnostics, PassTable *table);

/* For a schedule without U: no pipe names versions of the weights. For one with U: all pipes name versions or none
   does; when an F runs, the version of the weights that its microbatch uses exists (the assignment of slots keeps it
   for the backward); every version is made on all copies of the stage, from at least one gradient; and every gradient
   is used by one U. copies_find must have been called. */
bool prove_versions(const Schedule *schedule, const PassTable *table, Arena *arena, Diagnostics *diagnostics);

/* Proves that all passes can run: no ranks wait for each other's passes in a cycle. Computes the times for F = I = W =
   1 and messages that take no time (costs_unit). */
bool prove_order(const Schedule *schedule, const PassTable *table, Arena *arena, Diagnostics *diagnostics,
                 Timeline *times);

/* Proves the communication in the orders, derived or written by hand: every value that another rank needs is sent
   once, after the pass that computes it, and received once, before the pass that needs it; there is no other
   message. Fills in the table's `ends`. */
bool prove_messages(const Schedule *schedule, PassTable *table, Arena *arena, Diagnostics *diagnostics);

/* Proves that the sender and the receiver of each directed pair of ranks agree on the order of its messages: that
   nothing swaps under CHANNELS_EDGE (channels.h). */
bool prove_channels(const Schedule *schedule, const PassTable *table, Arena *arena, Diagnostics *diagnostics);

/* Verifies the program that was made of the schedule. Above all: if every rank runs its instructions strictly one after
   the other, and each send waits for its receive and each receive for its send, all ranks finish. If they would
   deadlock, returns STATUS_BAD_INPUT with a diagnostic. Any other failure is a bug of the compiler, and `error` says
   so. */
Status prove_program(const Schedule *schedule, const PassTable *table, const Program *program, Arena *arena,
                     Diagnostics *diagnostics, Error *error);
