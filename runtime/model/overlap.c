/* Merges the lists of an F&B's halves into one, in the order of the recipe. */

#include "runtime/base/clock.h"
#include "runtime/model/stage.h"

#include <stdlib.h>
#include <string.h>

/* Consecutive components of a stage that belong to one part of a layer. */
typedef struct Range {
    size_t begin, end; /* equal: none */
} Range;

/* What remains of a component that communicates after its last post: the wait, and what uses the result. It comes right
   before the next component of its half that needs it, so other components compute meanwhile. */
typedef struct Rest {
    size_t index, begin, end; /* component; its operations in the stage's list. Equal: none */
} Rest;

/* The list of a pair while it is being made. Each round handles one layer of each half: of the F from the first layer
   on, of the backward from the last one on. */
typedef struct Overlap {
    const StagePair *pair;
    PairList *made;
    uint32_t round;
    size_t forward;                   /* the component whose F comes next */
    size_t backward;                  /* the component whose B came last */
    Range waiting[RECIPE_COMPONENTS]; /* components whose W is still to come */
    Rest rests[RECIPE_W];             /* of F and of B */
} Overlap;

static const Stage *stage_of(const Overlap *o, RecipePass pass)
{
    return pass == RECIPE_F ? o->pair->forward : o->pair->backward;
}

/* Operations of the backward half use the bases after those of the forward half. */
static void append_operations(Overlap *o, size_t index, RecipePass pass, size_t begin, size_t end)
{
    const Stage *stage = stage_of(o, pass);
    PairList *made = o->made;
    for (size_t i = begin; i < end; i++) {
        Op op = stage->lists[pass].ops[i];
        op.after_count = 0;
        for (int k = 0; k < OPERATION_OPERANDS; k++)
            if (pass != RECIPE_F && op.operands[k].base)
                op.operands[k].base += PASS_BASES;
        op_append(&made->list, &op);
    }
    const bool first = begin == stage->parts[index].ops[pass].begin;
    made->parts[made->part_count++] = (PairPart){(uint32_t)index, pass, first, made->list.count};
}

static void append_rest(Overlap *o, RecipePass pass)
{
    Rest *rest = &o->rests[pass];
    if (rest->begin < rest->end)
        append_operations(o, rest->index, pass, rest->begin, rest->end);
    *rest = (Rest){0};
}

/* The end of the operations up to the last post of an all-to-all; `end` if there is none. */
static size_t end_of_posts(const OpList *list, size_t begin, size_t end)
{
    for (size_t i = end; i-- > begin;)
        if (list->ops[i].kind == OPERATION_rows_post)
            return i + 1;
    return end;
}

static bool use_one_address(const Op *one, const Op *other)
{
    for (int i = 0; i < OPERATION_OPERANDS; i++)
        for (int k = 0; k < OPERATION_OPERANDS && one->operands[i].base; k++)
            if (one->operands[i].base == other->operands[k].base &&
                one->operands[i].offset == other->operands[k].offset)
                return true;
    return false;
}

/* Whether operations begin .. end - 1 share memory with the rest. Memory that both only read counts, too. */
static bool needs_rest(const OpList *list, const Rest *rest, size_t begin, size_t end)
{
    for (size_t i = begin; i < end; i++)
        for (size_t k = rest->begin; k < rest->end; k++)
            if (use_one_address(&list->ops[i], &list->ops[k]))
                return true;
    return false;
}

static void append_part(Overlap *o, size_t index, RecipePass pass)
{
    const Stage *stage = stage_of(o, pass);
    const size_t begin = stage->parts[index].ops[pass].begin, end = stage->parts[index].ops[pass].end;
    if (pass == RECIPE_W) {
        append_operations(o, index, pass, begin, end);
        return;
    }
    const size_t posted = end_of_posts(&stage->lists[pass], begin, end);
    if (posted < end || needs_rest(&stage->lists[pass], &o->rests[pass], begin, end))
        append_rest(o, pass);
    append_operations(o, index, pass, begin, posted);
    if (posted < end)
        o->rests[pass] = (Rest){index, posted, end};
}

/* Appends F of the components before `end`. */
static void append_forward(Overlap *o, size_t end)
{
    while (o->forward < end)
        append_part(o, o->forward++, RECIPE_F);
}

/* Appends B of the components down to `end`. A full backward also appends their W, as the recipe does not name it. */
static void append_backward(Overlap *o, size_t end)
{
    while (o->backward > end) {
        append_part(o, --o->backward, RECIPE_B);
        if (o->pair->weights)
            append_part(o, o->backward, RECIPE_W);
    }
}

static uint32_t layers_of(const Stage *stage)
{
    uint32_t layers = 0;
    for (size_t i = 0; i < stage->part_count; i++)
        if (stage->parts[i].layer != NO_LAYER)
            layers = stage->parts[i].layer + 1;
    return layers;
}

static Range find_part(const Stage *stage, uint32_t layer, ModelPart kind)
{
    const Part *parts = stage->parts;
    Range found = {0, 0};
    while (found.begin < stage->part_count &&
           (parts[found.begin].layer != layer || parts[found.begin].component.kind->part != kind))
        found.begin++;
    found.end = found.begin;
    if (found.begin < stage->part_count)
        do
            found.end++;
        while (found.end < stage->part_count && stage_joins(stage, found.end));
    return found;
}

/* Appends an entry of the recipe for the present layer of its half. Skips components that the layer does not have. */
static void append_entry(Overlap *o, RecipeEntry entry)
{
    const uint32_t backward_layers = layers_of(o->pair->backward);
    Range *waiting = &o->waiting[entry.component];
    if (entry.pass == RECIPE_F) {
        const Range found = find_part(o->pair->forward, o->round, entry.component);
        if (found.end > found.begin)
            append_forward(o, found.end);
    } else if (entry.pass == RECIPE_B && o->round < backward_layers) {
        *waiting = find_part(o->pair->backward, backward_layers - 1 - o->round, entry.component);
        if (waiting->end > waiting->begin)
            append_backward(o, waiting->end);
        while (o->backward > waiting->begin && waiting->end > waiting->begin)
            append_part(o, --o->backward, RECIPE_B);
    } else if (entry.pass == RECIPE_W) {
        for (size_t i = waiting->end; i-- > waiting->begin && o->pair->weights;)
            append_part(o, i, RECIPE_W);
        *waiting = (Range){0, 0};
    }
}

static void append_all(Overlap *o, const Recipe *recipe)
{
    RecipeEntry order[RECIPE_ENTRIES];
    const uint32_t count = recipe_order(recipe, order);
    const uint32_t forward = layers_of(o->pair->forward), backward = layers_of(o->pair->backward);
    for (; o->round < forward || o->round < backward; o->round++)
        for (uint32_t i = 0; i < count; i++)
            append_entry(o, order[i]);
    append_forward(o, o->pair->forward->part_count);
    append_backward(o, 0);
    append_rest(o, RECIPE_F);
    append_rest(o, RECIPE_B);
}

static Status make_list(const StagePair *pair, const Recipe *recipe, PairList **list, Error *error)
{
    const size_t parts = 2 * pair->forward->part_count + 3 * pair->backward->part_count; /* with rests */
    PairList *made = calloc(1, sizeof *made + parts * sizeof *made->parts);
    if (!made)
        return error_set(error, STATUS_RUN_FAILED, "out of memory");
    made->backward = pair->backward->number;
    made->weights = pair->weights;
    made->recipe = *recipe;
    Overlap o = {.pair = pair, .made = made, .backward = pair->backward->part_count};
    append_all(&o, recipe);
    made->next = pair->forward->pairs;
    pair->forward->pairs = *list = made;
    Device *device = pair->forward->device;
    const DeviceFusion *fusion = device->run->fusion;
    TRY(op_list_finish(&made->list, error));
    return fusion ? fusion->prepare(device, &made->list, recipe->share, recipe->whole, error) : STATUS_OK;
}

Status stage_pair_list(const StagePair *pair, const Recipe *recipe, PairList **list, Error *error)
{
    for (PairList *known = pair->forward->pairs; known; known = known->next)
        if (known->backward == pair->backward->number && known->weights == pair->weights &&
            memcmp(&known->recipe, recipe, sizeof *recipe) == 0) {
            *list = known;
            return STATUS_OK;
        }
    return make_list(pair, recipe, list, error);
}

static Status find_list(const StagePair *pair, const Recipe *recipe, PairList **list, void *bases[2 * PASS_BASES],
                        Error *error)
{
    memcpy(bases, &pair->forward_buffers, sizeof pair->forward_buffers);
    memcpy(bases + PASS_BASES, &pair->backward_buffers, sizeof pair->backward_buffers);
    return stage_pair_list(pair, recipe, list, error);
}

Status stage_bind_overlap(const StagePair *pair, const Recipe *recipe, BoundPass **bound, Error *error)
{
    PairList *list;
    void *bases[2 * PASS_BASES];
    TRY(find_list(pair, recipe, &list, bases, error));
    return stage_bind_list(pair->forward->device, &list->list, bases, bound, error);
}

static Status run_part(const StagePair *pair, const PairList *list, const PairPart *part, size_t begin,
                       void *const *bases, Error *error)
{
    const Stage *stage = part->pass == RECIPE_F ? pair->forward : pair->backward;
    const Status status =
        stage_run_part(stage, part->index, part->pass, part->first, &list->list, begin, part->end, bases, error);
    if (status != STATUS_OK)
        error_prefix(error, "in its %s: ", part->pass == RECIPE_F ? "F" : pair->weights ? "B" : "I");
    return status;
}

static Status run_parts(const StagePair *pair, const PairList *list, void *const *bases, Error *error)
{
    int64_t forward = 0, before = clock_nanoseconds();
    size_t begin = 0;
    for (size_t i = 0; i < list->part_count; begin = list->parts[i++].end) {
        const PairPart *part = &list->parts[i];
        TRY(run_part(pair, list, part, begin, bases, error));
        const int64_t now = clock_nanoseconds();
        forward += part->pass == RECIPE_F ? now - before : 0;
        before = now;
    }
    if (pair->forward_time)
        *pair->forward_time = forward;
    return STATUS_OK;
}

static Status overlap(const StagePair *pair, const Recipe *recipe, Error *error)
{
    PairList *list;
    void *bases[2 * PASS_BASES];
    TRY(find_list(pair, recipe, &list, bases, error));
    return run_parts(pair, list, bases, error);
}

Status stage_overlap(const StagePair *pair, const Recipe *recipe, Error *error)
{
    PartTimes *times = pair->forward->times;
    if (!times)
        return overlap(pair, recipe, error);
    const int64_t begun = clock_nanoseconds();
    times->in_pair = true;
    TRY(overlap(pair, recipe, error));
    times->in_pair = false;
    times->pairs += clock_nanoseconds() - begun;
    return STATUS_OK;
}
