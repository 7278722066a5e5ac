#ifndef LOWER_PLAN_H
#define LOWER_PLAN_H

/* Which slot holds what and when: the register allocation of a schedule. */

#include "compiler/schedule/schedule.h"
#include "runtime/program/program.h"

/* One step of a rank: an action of its order, or a wait for the message of a slot. */
typedef struct PlannedStep {
    uint32_t action;   /* its position in the rank's order */
    bool waits;        /* it is no action, but a WAIT; the action that it stands before, or the last one */
    Instruction slots; /* only its slots are set */
} PlannedStep;

typedef struct RankPlan {
    PlannedStep *steps; /* the overlap flag of an F stands for the step right behind it: no wait comes between */
    uint32_t count;
    uint32_t slots[SLOT_CLASSES];
    /* with which of them the last slot of each class came into use; NULL: there is none */
    const Action *slots_at[SLOT_CLASSES];
    uint32_t peak_activations; /* most microbatches of a stage held at once, from F to the end of B or W */
    const Action *peak_activations_at;
} RankPlan;

/* Plans one rank of a proven schedule. A receive is waited for right before the pass that needs it, a send when its
   slot is needed again and at the end: not before SEND_SLACK more passes have run, so that a rank seldom waits for a
   slow receiver. */
enum { SEND_SLACK = 2 };

bool plan_rank(const Schedule *schedule, uint32_t rank, Arena *arena, Diagnostics *diagnostics, RankPlan *plan);

#endif
