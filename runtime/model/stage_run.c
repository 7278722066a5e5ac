/* Runs the passes of a stage, and measures their parts: the sums of their times, or when each ran. */
#include "base/clock.h"
#include "runtime/model/experts.h"
#include "runtime/model/stage.h"

#include <string.h>

/* The name under which a pass of a part is measured; MODEL_PARTS: the pass takes no time. If nothing before a component
   needs dx, its I is shorter: in a layer it is measured as PART_FIRST_LAYER; outside the layers there is no such I. */
static ModelPart measured_part(const Part *part, int pass)
{
    const ModelPart kind = part->component.kind->part;
    if (pass == RECIPE_B && !part->learns_before)
        return kind < RECIPE_COMPONENTS ? PART_FIRST_LAYER : MODEL_PARTS;
    return (pass == RECIPE_W || pass == PART_U) && !part->component.parameter_count ? MODEL_PARTS : kind;
}

/* The PartTime to which the time of a pass is added; NULL: the pass takes no time. */
static PartTime *time_of(const Stage *stage, const Part *part, int pass)
{
    const ModelPart measured = measured_part(part, pass);
    return measured == MODEL_PARTS ? NULL : &stage->times->parts[stage->times->in_pair][measured][pass];
}

void stage_note_time(const Stage *stage, size_t index, int pass, bool first, int64_t begun)
{
    PartTime *time = time_of(stage, &stage->parts[index], pass);
    if (!time)
        return;
    time->nanoseconds += clock_nanoseconds() - begun;
    time->count += first && !stage_joins(stage, index);
}

static void note_span(const Stage *stage, size_t index, RecipePass pass, int64_t begun)
{
    const Part *part = &stage->parts[index];
    const ModelPart measured = measured_part(part, (int)pass);
    if (measured != MODEL_PARTS)
        part_spans_note(stage->spans,
                        &(PartSpan){.layer = part->layer == NO_LAYER ? NO_LAYER : stage->first_layer + part->layer,
                                    .part = (uint8_t)measured,
                                    .pass = (uint8_t)pass,
                                    .start = begun,
                                    .end = clock_nanoseconds()});
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
    const int64_t begun = stage->times || stage->spans ? clock_nanoseconds() : 0;
    const ExpertGroup *group = stage->config.expert_group;
    if (!group || !group->progress)
        TRY(op_run(stage->device, list, begin, end, bases, error));
    for (size_t i = begin; group && group->progress && i < end; i++) {
        TRY(op_run(stage->device, list, i, i + 1, bases, error));
        TRY(group->progress(group->context, error));
    }
    if (stage->times)
        stage_note_time(stage, index, (int)pass, first, begun);
    if (stage->spans)
        note_span(stage, index, pass, begun);
    return STATUS_OK;
}

void stage_time_parts(Stage *stage, PartTimes *times) { stage->times = times; }

void stage_note_spans(Stage *stage, PartSpans *spans) { stage->spans = spans; }

/* A component has at most two spans in a pass. In a merged list it has two if it is attention that the recipe
   divides, or if some of its operations come after its all-to-all. In an F it has two if a part of it is timed
   separately (run_inside). */
size_t stage_spans_most(const Stage *stage) { return 2 * stage->part_count; }

size_t stage_core(const Stage *stage, const Part *part)
{
    size_t i = part->ops[RECIPE_F].begin;
    while (i < part->ops[RECIPE_F].end && stage->lists[RECIPE_F].ops[i].kind != OPERATION_attention_forward)
        i++;
    return i;
}

/* A component's F may begin with operations that are also timed separately: qkv of attention, or all operations of the
   shared experts. Returns the index after them; if there are none, the beginning of the F. */
static size_t end_inside(const Stage *stage, const Part *part)
{
    if (part->component.kind == &component_shared)
        return part->ops[RECIPE_F].end;
    return part->component.kind == &component_attention ? stage_core(stage, part) : part->ops[RECIPE_F].begin;
}

/* Runs the operations of a component's F up to `end`, which are timed separately (end_inside). Adds their time to the
   component and to that separate part. */
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
    pass_bases(buffers, bases);
    for (size_t i = 0; i < stage->part_count; i++) {
        const size_t index = pass == RECIPE_F ? i : stage->part_count - 1 - i;
        const Part *part = &stage->parts[index];
        const size_t begin = part->ops[pass].begin, end = part->ops[pass].end;
        if (pass == RECIPE_W && buffers->left_out >> part->component.kind->part & 1)
            continue;
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
    pass_bases(buffers, bases);
    return stage_bind_list(stage->device, &stage->lists[pass], bases, bound, error);
}

Status stage_run(BoundPass *bound, Error *error) { return bound->device->run->fusion->run(bound, error); }
