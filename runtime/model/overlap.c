/* One F&B after its recipe. */

#include "runtime/base/clock.h"
#include "runtime/model/stage.h"

#include <string.h>

typedef struct Overlap {
    const StagePair *pair;
    const DeviceFusion *fusion;        /* NULL: the device runs what it is given, in turn */
    size_t forward;                    /* the component whose F comes next */
    size_t backward;                   /* the one whose B was the last */
    size_t waiting[RECIPE_COMPONENTS]; /* whose W is still to come, +1; 0: none */
} Overlap;

static Status run(const Overlap *o, size_t index, RecipePass pass, Error *error)
{
    const StagePair *pair = o->pair;
    if (o->fusion)
        TRY(o->fusion->part(pair->forward->device, pass, error));
    return pass == RECIPE_F ? stage_run_part(pair->forward, index, pass, &pair->forward_buffers, error)
                            : stage_run_part(pair->backward, index, pass, &pair->backward_buffers, error);
}

/* F up to before `end`. */
static Status run_forward(Overlap *o, size_t end, Error *error)
{
    while (o->forward < end)
        TRY(run(o, o->forward++, RECIPE_F, error));
    return STATUS_OK;
}

/* B down to `end`, and W with it where the recipe has none to come. */
static Status run_backward(Overlap *o, size_t end, Error *error)
{
    while (o->backward > end) {
        TRY(run(o, --o->backward, RECIPE_B, error));
        if (o->pair->weights)
            TRY(run(o, o->backward, RECIPE_W, error));
    }
    return STATUS_OK;
}

/* The next component of that kind; the number of components when there is none. */
static size_t find_forward(const Overlap *o, ModelPart kind)
{
    const Stage *stage = o->pair->forward;
    size_t i = o->forward;
    while (i < stage->part_count && stage->parts[i].component.kind->part != kind)
        i++;
    return i;
}

/* The same on the way back, +1; 0 when there is none. */
static size_t find_backward(const Overlap *o, ModelPart kind)
{
    const Stage *stage = o->pair->backward;
    size_t i = o->backward;
    while (i > 0 && stage->parts[i - 1].component.kind->part != kind)
        i--;
    return i;
}

/* An entry of the recipe, of the layers at which the halves are. What a model lacks is passed over. */
static Status run_entry(Overlap *o, RecipeEntry entry, bool *more, Error *error)
{
    const ModelPart kind = entry.component;
    if (entry.pass == RECIPE_F) {
        const size_t found = find_forward(o, kind);
        if (found == o->pair->forward->part_count)
            return STATUS_OK;
        *more = true;
        return run_forward(o, found + 1, error);
    }
    if (entry.pass == RECIPE_B) {
        const size_t found = find_backward(o, kind);
        if (!found)
            return STATUS_OK;
        *more = true;
        TRY(run_backward(o, found, error));
        o->waiting[kind] = o->backward;
        return run(o, --o->backward, RECIPE_B, error);
    }
    const size_t waiting = o->waiting[kind];
    o->waiting[kind] = 0;
    return waiting && o->pair->weights ? run(o, waiting - 1, RECIPE_W, error) : STATUS_OK;
}

static Status run_all(Overlap *o, const Recipe *recipe, Error *error)
{
    RecipeEntry order[RECIPE_ENTRIES];
    const uint32_t count = recipe_order(recipe, order);
    for (bool more = true; more;) {
        more = false;
        for (uint32_t i = 0; i < count; i++)
            TRY(run_entry(o, order[i], &more, error));
    }
    TRY(run_forward(o, o->pair->forward->part_count, error));
    return run_backward(o, 0, error);
}

/* What a device that has run it knows it by. */
typedef struct OverlapName {
    uint64_t forward, backward, weights;
    PassBuffers forward_buffers, backward_buffers;
    Recipe recipe;
} OverlapName;
_Static_assert(sizeof(OverlapName) <= FUSION_NAME && sizeof(OverlapName) % 8 == 0, "device.h");

static Status begin(const StagePair *pair, const Recipe *recipe, bool *again, Error *error)
{
    Device *device = pair->forward->device;
    OverlapName name;
    memset(&name, 0, sizeof name); /* what lies between the fields, too */
    name.forward = pair->forward->number;
    name.backward = pair->backward->number;
    name.weights = pair->weights;
    name.forward_buffers = pair->forward_buffers;
    name.backward_buffers = pair->backward_buffers;
    name.recipe = *recipe;
    return device->run->fusion->begin(device, &name, sizeof name, recipe->share, recipe->whole, again, error);
}

static Status overlap(const StagePair *pair, const Recipe *recipe, Error *error)
{
    Device *device = pair->forward->device;
    Overlap o = {.pair = pair, .fusion = device->run->fusion, .backward = pair->backward->part_count};
    bool again = false;
    if (o.fusion)
        TRY(begin(pair, recipe, &again, error));
    if (again)
        return STATUS_OK;
    TRY(run_all(&o, recipe, error));
    return o.fusion ? o.fusion->end(device, error) : STATUS_OK;
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
