#pragma once

/* A lower bound of the makespan: no order of a placement can be shorter. It depends on where the stages live, how many
   microbatches there are, what passes and messages take, and how much each rank may hold. It does not depend on the
   orders: they may use F, B, I, W, F&B and F&I in any mix.

   The proof. Each of three rules gives a bound for a rank; the bound of the makespan is the largest over all rules and
   ranks. Look at one rank, with n forwards. Where stages or microbatches differ, a rule takes the least time that any
   of them needs on its way, a pass on the way takes the least time it can (alone or as half of an F&B), and a wait is
   reduced by the longest passes that can fill it.

   1. Work and waits. Say n-u of the forwards are halves of an F&B.
      - The rank starts when the first microbatch can arrive. Its first backward can start when that microbatch can be
        back from the last stage. Until then the rank has only forwards to run, none of them in an F&B: at most u, and
        at most as many as its memory holds. It waits for the rest of this time.
      - After the last forward of the rank, its microbatch still has to go to the last stage and back to stage 0. The
        rank has only backwards left, none of them in an F&B: at most u, and the W of earlier ones; its memory holds
        them all. It waits for the rest of this time.
      - After its last I or B, the gradient still has to reach stage 0. The rank has only W left: as many as its memory
        holds. It waits for the rest of this time.
      The makespan is at least the start, plus all work, less the most that n-u F&Bs can save, plus the first wait, plus
      the longer of the other two. The bound takes the u with the least such sum. If memory holds all n microbatches,
      all forwards may come before all backwards; then nothing is in an F&B, the first and the second wait may be one
      and the same, and only the longest wait counts.
   2. The critical path through the rank. Like rule 1, but without W, which can come later: I takes the place of B, and
      the third wait is the whole time that the last gradient needs to reach stage 0.

   3. Memory times time (Little's law). A microbatch is held at least from its forward, while it goes to the last stage
      and back, until its W ends. Summed over the microbatches this is at most the rank's memory times the time from the
      rank's start to the end.

   A forward-only schedule has one rule. A rank starts when the first microbatch can arrive. It runs all its forwards,
   two at once as often as possible if that saves time. Then its last microbatch still has to go through the later
   stages.

   Two known bounds are cases of rule 1. P ranks in a V with F = I = W = 1, F&B = x and enough memory: (2M-2P)x + 7P-1.
   The same with a memory of k activations and without F&B: a bubble of at least 6P-3k-1 (Qi et al., Pipeline
   Parallelism with Controllable Memory, NeurIPS 2024). */

#include "compiler/schedule/schedule.h"
#include "program/times/costs.h"

/* How much memory ranks may use. An F takes `input` + `weight`. At its end an I gives back `input`, a W `weight`, a B
   both. Any unit. */
typedef struct MemoryLimits {
    double input, weight; /* >= 0, not both 0 */
    const double *most;   /* [ranks]; INFINITY: no limit */
} MemoryLimits;

/* Memory limits equal to the most activations that each rank holds in the orders of the schedule. The unit is an
   activation of a stage, held from F to the end of B or W. The arena owns the result. */
MemoryLimits limits_of_orders(const Schedule *schedule, Arena *arena);

/* The lower bound of the makespan, in the unit of the costs. The schedule needs no orders yet. The relative rounding
   error is about 1e-12. */
double makespan_bound(const Schedule *schedule, const Costs *costs, const MemoryLimits *limits, Arena *arena);

typedef struct Gap {
    double bound; /* no order has a smaller makespan */
    double gap;   /* makespan / bound - 1; 0: the order is optimal; INFINITY: the bound is 0 */
} Gap;

/* The result of a solver that looked for shorter orders (`dpc --prove`). */
typedef struct Proven {
    /* lower bound of the makespan of all orders that use only the kinds of passes that the solver may use */
    double bound;
    double shortest; /* makespan of the shortest order known */
} Proven;

/* The gap between a makespan and a lower bound of it. A relative difference of at most 1e-9 may be a rounding error and
   counts as 0. */
Gap gap_to(double makespan, double bound);
/* The text that follows a makespan: " (bound 63, gap 4.8 %)", " (optimal)", or "" if the bound is 0, which means
   unknown. */
const char *gap_note(const Gap *gap, Arena *arena);
