#pragma once

/* Explains a deadlock: the verifier uses it for a program, the compiler for the passes of a schedule. */

#include "program/program.h"

enum { POSITION_NOWHERE = UINT32_MAX };

/* A rank waits for another. Positions are indices of instructions in a rank of a program, or of actions in a rank of an
   order. */
typedef struct Wait {
    uint32_t rank, at;  /* the rank that waits, and its position */
    uint32_t on, until; /* the rank that it waits for, and the position that `on` must reach, or POSITION_NOWHERE */
} Wait;

/* Everything that a rank waits for. Ranks that wait at the same collective may share a list; a search follows a shared
   list only once. */
typedef struct WaitList {
    Wait *waits;
    uint32_t count;
    uint32_t followed; /* used by deadlock_cycle; 0 at first */
} WaitList;

typedef struct Deadlock {
    /* [count]. The first `cycle` waits are the cycle: the rank of each wait waits for the rank of the next one, the
       last one for the first */
    Wait *waits;
    uint32_t cycle; /* the number of ranks in the shortest cycle; 0: there is none */
    /* the number of waiting ranks, including those of the cycle. Without a cycle: the number of ranks that wait for a
       rank that has ended */
    uint32_t count;
} Deadlock;

/* Finds the shortest cycle of ranks that wait for each other; of several shortest cycles, the one that contains the
   lowest rank. `lists` is [ranks], NULL for a rank that does not wait. Sets `waits`, which has room for all ranks and
   is owned by the arena, and `cycle`; the other members become 0. False: out of memory. */
bool deadlock_cycle(WaitList *const *lists, uint32_t ranks, Arena *arena, Deadlock *deadlock);

/* Verifies like program_verify, and also describes a deadlock. The arena owns deadlock->waits; deadlock->count is 0
   without a deadlock. Wait.until is set only for waits of the cycle; for other waits, and if the other rank has no
   matching instruction left, it is POSITION_NOWHERE. */
Status program_verify_deadlock(const Program *program, Arena *arena, Deadlock *deadlock, Error *error);
