#ifndef PROVE_DEADLOCK_H
#define PROVE_DEADLOCK_H

/* Explains why ranks cannot go on: the shortest cycle of ranks that wait for each other. */

#include "compiler/schedule/timeline.h"

/* What a rank waits for: a position in the order of another rank, or its own, that is not reached. */
typedef struct Wait {
    uint32_t rank, position;
    uint32_t halted_at; /* the action that waits */
} Wait;

typedef struct Waits {
    uint32_t count; /* 0: this rank does not wait */
    Wait *on;       /* several for the halves of an F&B, and for the copies of a stage that an update meets */
} Waits;

/* Reports the shortest cycle: one error, with a note for each further rank. `waits` is [ranks]. A help may follow. */
void deadlock_report(const Schedule *schedule, const Waits *waits, Arena *arena, Diagnostics *diagnostics);

/* An update waits for those copies of its stage that have not reached it: `position` is where each rank is. */
Waits deadlock_waits_of_update(const Schedule *schedule, const PassTable *table, const uint32_t *position,
                               const Action *update, uint32_t halted_at, Arena *arena);

#endif
