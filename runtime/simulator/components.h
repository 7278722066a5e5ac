#pragma once

/* Notes in Simulator.components when the components of a simulated pass ran, for a trace. If Simulator.components is
   NULL, the functions note nothing. */

#include "runtime/simulator/simulator.h"

/* The passes that the components of a stage run in one pass of the stage: RECIPE_F in an F, RECIPE_B in an I, RECIPE_W
   in a W, and both RECIPE_B and RECIPE_W in a B. */
typedef struct PassRange {
    RecipePass first, last;
} PassRange;

/* `cost` says the pass of the stage: COST_F, COST_B, COST_I or COST_W. */
PassRange pass_range(StageCost cost);

/* Notes a span in half `half` of an F&B or F&F; 0 for a pass alone. */
void components_note(const Simulator *simulator, uint8_t half, PartSpan span);
/* Notes the components of a pass that takes `units` units of the costs and began at `begun` (ns). Each component takes
   the time that its cost says. They run in the order of a real stage: F from the first component to the last, I and W
   in reverse. Notes nothing if `units` is not the sum of these times, because then the pass has a cost of its own. */
void components_note_pass(const Simulator *simulator, uint32_t stage, StageCost cost, double units, int64_t begun);
/* Notes the components outside the layers of a pass that began at `begun` (ns) and is half `half` of an F&B or F&F.
   They run one after the other, each for the time that its cost says. Returns when the last one ended (ns); `begun` if
   there is none, or if nothing is noted. */
int64_t components_note_outside(const Simulator *simulator, uint32_t stage, StageCost cost, uint8_t half,
                                int64_t begun);
