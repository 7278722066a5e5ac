#include "runtime/simulator/pair.h"

#include <string.h>

static uint32_t index_of(const PairOrder *order, RecipeEntry entry)
{
    uint32_t i = 0;
    while (i < order->count && !recipe_entry_same(order->steps[i].entry, entry))
        i++;
    return i;
}

/* In an F&F the result of combine includes that of the shared experts, so the merged list posts combine after them even
   if the recipe names them later. */
static void put_combine_after_shared(PairOrder *order, uint8_t half)
{
    const uint32_t combine = index_of(order, (RecipeEntry){RECIPE_COMBINE, half}),
                   shared = index_of(order, (RecipeEntry){RECIPE_SHARED, half});
    bool(*late)[RECIPE_HALVES] = order->late.late;
    if (combine == order->count || shared == order->count)
        return;
    late[RECIPE_COMBINE][half] |= late[RECIPE_SHARED][half];
    if (combine > shared || late[RECIPE_COMBINE][half] != late[RECIPE_SHARED][half])
        return;
    const RecipeStep moved = order->steps[combine];
    memmove(&order->steps[combine], &order->steps[combine + 1], (shared - combine) * sizeof moved);
    order->steps[shared] = moved;
}

PairOrder pair_order(const Recipe *recipe, const Costs *costs)
{
    RecipeEntry entries[RECIPE_ENTRIES];
    PairOrder order = {.late = recipe_late(recipe)};
    order.count = recipe_order(recipe, entries);
    for (uint32_t i = 0; i < order.count; i++)
        order.steps[i] = recipe_step(recipe, costs, entries[i]);
    put_combine_after_shared(&order, RECIPE_FIRST);
    put_combine_after_shared(&order, RECIPE_SECOND);
    return order;
}

static bool communicates(const PairOp *op) { return recipe_communicates[op->entry.component]; }

static PairOp make_op(const PairWalk *walk, const RecipeStep *step)
{
    const RecipeEntry entry = step->entry;
    PairOp op = {.entry = entry, .time = step->time};
    op.kind = communicates(&op) ? PAIR_POST : PAIR_COMPUTE;
    op.half = entry.pass != RECIPE_F && entry.pass != RECIPE_FIRST;
    op.layer = walk->round - walk->order->late.late[entry.component][entry.pass]; /* wraps: there is no such layer */
    return op;
}

static bool exists(const PairWalk *walk, const PairOp *op)
{
    return op->layer < walk->layers[op->half] && (op->entry.pass != RECIPE_W || walk->weights);
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

/* Whether an operation needs the result of the post of its half that was not waited for yet. W needs only a B that
   computes. */
static bool needs_posted(const PairWalk *walk, const RecipeStep *step, const PairOp *op)
{
    const PairOp *posted = &walk->posted[op->half];
    if (op->entry.pass == RECIPE_W)
        return false;
    return posted->layer != op->layer || (step->needs && recipe_entry_same(step->needed, posted->entry));
}

/* Writes a wait that must come before the operation. A half has at most one communication in flight. */
static bool waits_first(PairWalk *walk, const RecipeStep *step, const PairOp *op, PairOp *wait)
{
    return (communicates(op) || needs_posted(walk, step, op)) && end_wait(walk, op->half, wait);
}

bool pair_next(PairWalk *walk, PairOp *op)
{
    const PairOrder *order = walk->order;
    const uint32_t layers = walk->layers[0] > walk->layers[1] ? walk->layers[0] : walk->layers[1];
    for (; walk->round < layers + order->late.any; walk->round++, walk->next = 0)
        while (walk->next < order->count) {
            const RecipeStep *step = &order->steps[walk->next];
            const PairOp made = make_op(walk, step);
            if (!exists(walk, &made)) {
                walk->next++;
                continue;
            }
            if (waits_first(walk, step, &made, op))
                return true;
            walk->next++;
            if (made.kind == PAIR_POST) {
                walk->posted[made.half] = made;
                walk->waits[made.half] = true;
            }
            *op = made;
            return true;
        }
    return end_wait(walk, 0, op) || end_wait(walk, 1, op);
}
