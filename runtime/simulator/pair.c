#include "runtime/simulator/pair.h"

PairOrder pair_order(const Recipe *recipe, const Costs *costs)
{
    PairOrder order = {.entries = recipe_walk(recipe, 0, 0)};
    recipe_steps(recipe, costs, order.steps);
    return order;
}

PairWalk pair_walk(const PairOrder *order, uint32_t first_layers, uint32_t second_layers, bool weights)
{
    PairWalk walk = {.order = order, .entries = order->entries, .weights = weights};
    walk.entries.layers[0] = first_layers;
    walk.entries.layers[1] = second_layers;
    return walk;
}

static const RecipeStep *step_of(const PairWalk *walk, RecipeEntry entry)
{
    return &walk->order->steps[entry.component][entry.pass];
}

/* Sets walk->next to the next entry of the recipe, if it is not set and there is one. Skips W unless walk->weights is
   true. */
static void find_next(PairWalk *walk)
{
    RecipeEntry entry;
    for (uint32_t layer; !walk->has_next && recipe_walk_next(&walk->entries, &entry, &layer);) {
        walk->next = (PairOp){.kind = recipe_communicates[entry.component] ? PAIR_POST : PAIR_COMPUTE,
                              .entry = entry,
                              .half = recipe_half(entry.pass),
                              .layer = layer,
                              .time = step_of(walk, entry)->time};
        walk->has_next = entry.pass != RECIPE_W || walk->weights;
    }
}

static bool end_wait(PairWalk *walk, uint8_t half, PairOp *op)
{
    if (!walk->waits[half])
        return false;
    *op = walk->posted[half];
    op->kind = PAIR_WAIT;
    op->time = 0;
    walk->waits[half] = false;
    return true;
}

/* Whether the next operation must wait for what its half has posted: because a half has at most one communication in
   flight, or because the operation needs the result. A W never waits: the B that it needs is no communication. */
static bool needs_posted(const PairWalk *walk)
{
    const PairOp *next = &walk->next, *posted = &walk->posted[next->half];
    const RecipeStep *step = step_of(walk, next->entry);
    if (next->kind == PAIR_POST || next->entry.pass == RECIPE_W)
        return next->kind == PAIR_POST;
    return posted->layer != next->layer || (step->needs && recipe_entry_same(step->needed, posted->entry));
}

bool pair_next(PairWalk *walk, PairOp *op)
{
    find_next(walk);
    if (!walk->has_next)
        return end_wait(walk, 0, op) || end_wait(walk, 1, op);
    if (needs_posted(walk) && end_wait(walk, walk->next.half, op))
        return true;
    *op = walk->next;
    walk->has_next = false;
    if (op->kind == PAIR_POST) {
        walk->posted[op->half] = *op;
        walk->waits[op->half] = true;
    }
    return true;
}
