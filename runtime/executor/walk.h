#pragma once

/* Walks over the instructions of one rank. The executor uses it, and so do dps_step and dps_next of libdps. A walk says
   which instruction comes next, records this position for watchers, and adds it to the message of a failure. The caller
   runs the instruction. */

#include "base/progress.h"
#include "base/status.h"
#include "program/program.h"

typedef struct Walk {
    const Program *program;
    const RankProgram *own; /* the stream */
    uint32_t rank;
    MemberName name; /* name of the rank in messages */
    uint32_t place;  /* index of the instruction that runs now or comes next */
    uint64_t step;
    Progress *progress;
} Walk;

/* Begins a walk over the stream of a rank. `own` is the rank's stream in the program, or a version of that stream whose
   messages are posted early. The caller has already set rank, name and progress. */
static inline void walk_begin(Walk *walk, const Program *program, const RankProgram *own, uint64_t step)
{
    walk->program = program;
    walk->own = own;
    walk->place = 0;
    walk->step = step;
}

static inline void walk_note(const Walk *walk, uint64_t place)
{
    atomic_store_explicit(&walk->progress->place, walk->step << 32 | place, memory_order_relaxed);
}

/* Returns the instruction to run now, and records that it runs. */
static inline const Instruction *walk_next(const Walk *walk)
{
    walk_note(walk, walk->place);
    return &walk->own->instructions[walk->place];
}

static inline void walk_idle(const Walk *walk)
{
    atomic_store_explicit(&walk->progress->place, PROGRESS_IDLE, memory_order_relaxed);
}

/* Moves on after an instruction has run. False: it was END, and the walk is over. */
static inline bool walk_done(Walk *walk)
{
    if (walk->own->instructions[walk->place++].opcode != OP_END)
        return true;
    walk_idle(walk);
    return false;
}

/* Puts the rank and the instruction at `place` before the message of a failure, and returns the status. */
Status walk_failed(const Walk *walk, size_t place, Status status, Error *error);

/* The peer of the message (SEND or RECEIVE) that the WAIT at `place` waits for; -1 if the instruction there is no
   WAIT. */
int walk_awaited(const Instruction *instructions, size_t place);
