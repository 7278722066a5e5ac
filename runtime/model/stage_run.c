/* Runs the passes of a stage, and measures the times of their parts. */
#include "runtime/base/clock.h"
#include "runtime/model/experts.h"
#include "runtime/model/stage.h"

#include <string.h>

/* The PartTime to which the time of a pass is added; NULL: the part has no such pass. If nothing before a part needs
   dx, its I is shorter: in a layer the time of such an I is kept separately; outside the layers there is no such I. */
static PartTime *time_of(const Stage *stage, const Part *part, int pass)
{
    PartTime(*times)[PART_PASSES] = stage->times->parts[stage->times->in_pair];
    const ModelPart kind = part->component.kind->part;
    if (pass == RECIPE_B && !part->learns_before)
        return kind < RECIPE_COMPONENTS ? &times[PART_FIRST_LAYER][RECIPE_B] : NULL;
    if ((pass == RECIPE_W || pass == PART_U) && !part->component.parameter_count)
        return NULL;
    return &times[kind][pass];
}

void stage_note_time(const Stage *stage, size_t index, int pass, bool first, int64_t begun)
{
    PartTime *time = time_of(stage, &stage->parts[index], pass);
    if (!time)
        return;
    time->nanoseconds += clock_nanoseconds() - begun;
    time->count += first && !stage_joins(stage, index);
}

bool stage_joins(const Stage *stage, size_t index)
{
    const Part *part = &stage->parts[index], *before = part - 1;
    return index > 0 && part->layer != NO_LAYER && part->layer == before->layer &&
           part->component.kind->part == before->component.kind->part;
}

Status stage_run_part(const Stage *stage, size_t index, RecipePass pass, bool first, const OpList *list, size_t begin,
                      size_t end, void *const *bases, Error *error)
{
    const int64_t begun = stage->times ? clock_nanoseconds() : 0;
    const ExpertGroup *group = stage->config.expert_group;
    if (!group || !group->progress)
        TRY(op_run(stage->device, list, begin, end, bases, error));
    for (size_t i = begin; group && group->progress && i < end; i++) {
        TRY(op_run(stage->device, list, i, i + 1, bases, error));
        TRY(group->progress(group->context, error));
    }
    if (stage->times)
        stage_note_time(stage, index, (int)pass, first, begun);
    return STATUS_OK;
}

void stage_time_parts(Stage *stage, PartTimes *times) { stage->times = times; }

size_t stage_core(const Stage *stage, const Part *part)
{
    size_t i = part->ops[RECIPE_F].begin;
    while (i < part->ops[RECIPE_F].end && stage->lists[RECIPE_F].ops[i].kind != OPERATION_attention_forward)
        i++;
    return i;
}

/* A component's F may begin with operations that are also timed separately: qkv of attention, or all operations of the
   shared experts. Returns the index after them; the beginning of the F if there are none. */
static size_t end_inside(const Stage *stage, const Part *part)
{
    if (part->component.kind == &component_shared)
        return part->ops[RECIPE_F].end;
    return part->component.kind == &component_attention ? stage_core(stage, part) : part->ops[RECIPE_F].begin;
}

/* Runs the operations of an F up to `end`, which are timed separately (end_inside). Their time is added to the
   component's time, and also to the separate one. */
static Status run_inside(const Stage *stage, size_t index, size_t end, void *const *bases, Error *error)
{
    const Part *part = &stage->parts[index];
    const ModelPart name = part->component.kind == &component_shared ? RECIPE_SHARED : RECIPE_QKV;
    PartTime *time = &stage->times->parts[stage->times->in_pair][name][RECIPE_F];
    const PartTime *whole = time_of(stage, part, RECIPE_F), before = *whole;
    TRY(stage_run_part(stage, index, RECIPE_F, true, &stage->lists[RECIPE_F], part->ops[RECIPE_F].begin, end, bases,
                       error));
    time->nanoseconds += whole->nanoseconds - before.nanoseconds;
    time->count++;
    return STATUS_OK;
}

static Status run_pass(const Stage *stage, RecipePass pass, const PassBuffers *buffers, Error *error)
{
    const OpList *list = &stage->lists[pass];
    void *bases[PASS_BASES];
    memcpy(bases, buffers, sizeof bases);
    for (size_t i = 0; i < stage->part_count; i++) {
        const size_t index = pass == RECIPE_F ? i : stage->part_count - 1 - i;
        const Part *part = &stage->parts[index];
        const size_t begin = part->ops[pass].begin, end = part->ops[pass].end;
        const size_t cut = stage->times && pass == RECIPE_F ? end_inside(stage, part) : begin;
        if (cut > begin)
            TRY(run_inside(stage, index, cut, bases, error));
        if (cut < end || cut == begin)
            TRY(stage_run_part(stage, index, pass, cut == begin, list, cut, end, bases, error));
    }
    return STATUS_OK;
}

Status stage_forward(Stage *stage, const PassBuffers *buffers, Error *error)
{
    return run_pass(stage, RECIPE_F, buffers, error);
}

Status stage_backward_input(Stage *stage, const PassBuffers *buffers, Error *error)
{
    return run_pass(stage, RECIPE_B, buffers, error);
}

Status stage_backward_weight(Stage *stage, const PassBuffers *buffers, Error *error)
{
    return run_pass(stage, RECIPE_W, buffers, error);
}

Status stage_bind_list(Device *device, const OpList *list, void *const *bases, BoundPass **bound, Error *error)
{
    *bound = NULL;
    return list->prepared ? device->run->fusion->bind(device, list, bases, bound, error) : STATUS_OK;
}

Status stage_bind(const Stage *stage, RecipePass pass, const PassBuffers *buffers, BoundPass **bound, Error *error)
{
    void *bases[PASS_BASES];
    memcpy(bases, buffers, sizeof bases);
    return stage_bind_list(stage->device, &stage->lists[pass], bases, bound, error);
}

Status stage_run(BoundPass *bound, Error *error) { return bound->device->run->fusion->run(bound, error); }
