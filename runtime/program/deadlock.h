#ifndef PROGRAM_DEADLOCK_H
#define PROGRAM_DEADLOCK_H

/* Why ranks cannot go on. The verifier says it of a program, the compiler of a schedule's passes. */

#include "runtime/program/program.h"

enum { POSITION_NOWHERE = UINT32_MAX };

/* A rank waits for another. Positions are instructions of a program's rank, or actions of an order. */
typedef struct Wait {
    uint32_t rank, at;  /* the rank that waits, and its position */
    uint32_t on, until; /* the rank that it waits for, and the position that that one has to reach */
} Wait;

/* All that a rank waits for. Ranks that wait at the same collective may share a list: a search follows it once. */
typedef struct WaitList {
    Wait *waits;
    uint32_t count;
    uint32_t followed; /* of deadlock_cycle; 0 at first */
} WaitList;

typedef struct Deadlock {
    Wait *waits;        /* first the cycle: each waits for the rank of the next, the last for that of the first */
    uint32_t cycle;     /* how many ranks are in the shortest cycle; 0: there is none */
    uint32_t count;     /* how many ranks wait, those of the cycle included; without a cycle those that wait for a rank
                           that has ended */
    bool runs_buffered; /* the program runs where each link between two ranks buffers one message */
} Deadlock;

/* Finds the shortest cycle of ranks that wait for each other; of several the one with the lowest rank. `lists` is
   [ranks], NULL for a rank that does not wait. Fills in `waits`, with room for all ranks, and `cycle`; both are the
   arena's. False: no memory. */
bool deadlock_cycle(WaitList *const *lists, uint32_t ranks, Arena *arena, Deadlock *deadlock);

/* program_verify, which also describes a deadlock, in the arena's memory: deadlock->count is 0 where there is none.
   `until` is known within the cycle only. It is POSITION_NOWHERE elsewhere, and where the other rank has no such
   instruction left. */
Status program_verify_deadlock(const Program *program, Arena *arena, Deadlock *deadlock, Error *error);

#endif
