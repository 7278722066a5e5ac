/* Writes an order for the runtimes of other projects. */

#include "compiler/output/emit.h"
#include "base/text.h"

typedef enum Split {
    SPLIT_PLAIN, /* a stage on each rank, in their order */
    SPLIT_LOOP,  /* stage s on rank s % ranks */
    SPLIT_V,     /* stages r and 2 * ranks - 1 - r on rank r */
    SPLIT_OTHER
} Split;

static Split split_of(const Schedule *schedule)
{
    const PlacedPipe *pipe = &schedule->pipes[0];
    bool loop = pipe->stages % schedule->ranks == 0, folded = pipe->stages == 2 * schedule->ranks;
    for (uint32_t s = 0; s < pipe->stages; s++) {
        const uint32_t rank = stage_home(pipe, s, 0).rank;
        loop = loop && rank == s % schedule->ranks;
        folded = folded && rank == (s < schedule->ranks ? s : pipe->stages - 1 - s);
    }
    if (loop)
        return pipe->stages == schedule->ranks ? SPLIT_PLAIN : SPLIT_LOOP;
    return folded ? SPLIT_V : SPLIT_OTHER;
}

/* A pass that other runtimes do not have; NULL: there is none. */
static const char *strange_pass(const Schedule *schedule)
{
    for (uint32_t r = 0; r < schedule->ranks; r++)
        for (uint32_t i = 0; i < schedule->orders[r].count; i++) {
            const Action *action = &schedule->orders[r].actions[i];
            if (action->kind == ACTION_U)
                return "an update of weights within the step";
            if (action->overlap && action[1].kind == ACTION_F)
                return "an F&F";
            if (action->kind == ACTION_I && action->put_off)
                return "an F&B that puts off some of its weight gradients";
        }
    return schedule->forward_only ? "no backward" : schedule->pipes[0].versions ? "versions of the weights" : NULL;
}

/* PyTorch keeps the losses of the last stage in the order of its F, and takes the loss of microbatch m at index m. */
static const Action *early_forward(const Schedule *schedule)
{
    const PlacedPipe *pipe = &schedule->pipes[0];
    const Order *order = &schedule->orders[stage_home(pipe, pipe->stages - 1, 0).rank];
    for (uint32_t i = 0, next = 0; i < order->count; i++) {
        const Action *action = &order->actions[i];
        if (action->kind == ACTION_F && action->stage == pipe->stages - 1u && action->microbatch != next++)
            return action;
    }
    return NULL;
}

Status emit_fits(const Schedule *schedule, EmitKind kind, Error *error)
{
    static const char *const runtimes[EMIT_KINDS] = {
        [EMIT_TORCHTITAN] = "torchtitan", [EMIT_JAXPP] = "JaxPP", [EMIT_SHARDY] = "JAX's mpmd"};
    const char *const runtime = runtimes[kind], *strange = NULL;
    if (!runtime)
        return STATUS_OK;
    if (schedule->pipe_count > 1 || schedule->pipes[0].replicated)
        return error_set(error, STATUS_BAD_INPUT, "%s has one copy of each stage, and %s has stages on several ranks",
                         runtime, schedule->name);
    if ((strange = strange_pass(schedule)))
        return error_set(error, STATUS_BAD_INPUT, "%s cannot run %s: it has %s", runtime, schedule->name, strange);
    if (kind != EMIT_TORCHTITAN)
        return STATUS_OK;
    if (split_of(schedule) == SPLIT_OTHER)
        return error_set(error, STATUS_BAD_INPUT,
                         "torchtitan puts stage s on rank s %% P, or two stages on each rank in a V; %s does neither",
                         schedule->name);
    const Action *early = early_forward(schedule);
    if (early)
        return error_set(error, STATUS_BAD_INPUT,
                         "torchtitan would train wrongly: F of the last stage must run in the order of the "
                         "microbatches, and that of microbatch %u does not",
                         early->microbatch);
    return STATUS_OK;
}

void emit_note(const Schedule *schedule, EmitKind kind, const char *file, FILE *stream)
{
    static const char *const classes[] = {"1F1B", "Interleaved1F1B", "ZBVZeroBubble"};
    if (kind == EMIT_TORCHTITAN)
        fprintf(stream,
                "dpc: note: run it in torchtitan with %u microbatches and --parallelism.pipeline_parallel_degree %u "
                "--parallelism.pipeline_parallel_schedule %s --parallelism.pipeline_parallel_schedule_csv %s\n",
                schedule->microbatches, schedule->ranks, classes[split_of(schedule)], file);
}

/* --- Megatron-Core --- */

/* Pass k of a rank in Megatron's interleaved order: groups of `group` microbatches go through each of the chunks; the
   last group may be smaller. */
static Action megatron_pass(const Schedule *schedule, uint32_t rank, uint32_t group, uint8_t kind, uint32_t k)
{
    const uint32_t chunks = schedule->chunk_counts[rank], begin = k / (group * chunks) * group;
    const uint32_t left = schedule->microbatches - begin, size = left < group ? left : group;
    const uint32_t at = k - begin * chunks, chunk = at / size;
    return (Action){.kind = kind,
                    .microbatch = begin + at % size,
                    .stage = (uint16_t)((kind == ACTION_F ? chunk : chunks - 1 - chunk) * schedule->ranks + rank)};
}

static bool is_megatron_rank(const Schedule *schedule, uint32_t rank, uint32_t group, bool overlap)
{
    const Order *order = &schedule->orders[rank];
    const uint32_t chunks = schedule->chunk_counts[rank], n = chunks * schedule->microbatches;
    const uint32_t hops = schedule->ranks - 1 - rank, ahead = chunks > 1 ? 2 * hops + (chunks - 1) * group : hops;
    const uint32_t w = ahead + overlap < n ? ahead + overlap : n;
    uint32_t f = 0, b = 0;
    for (uint32_t i = 0; i < order->count; i++) {
        const Action *action = &order->actions[i];
        if (action_is_message(action))
            continue;
        const bool forward = f < n && (f < w || f - b == w);
        if (b == n)
            return false;
        const Action wanted = megatron_pass(schedule, rank, group, forward ? ACTION_F : ACTION_B, forward ? f++ : b++);
        if (action->kind != wanted.kind || action->stage != wanted.stage || action->microbatch != wanted.microbatch ||
            action->overlap != (overlap && forward && f > w))
            return false;
    }
    return f == n && b == n;
}

/* The size of a group with which the order is Megatron's; 0: it is not. */
static uint32_t megatron_group(const Schedule *schedule, bool overlap)
{
    const bool plain = split_of(schedule) == SPLIT_PLAIN;
    if (plain && overlap)
        return 0; /* Megatron overlaps only with several chunks on a rank */
    for (uint32_t group = schedule->ranks; group <= schedule->microbatches || plain; group++) {
        const uint32_t last = schedule->microbatches % group;
        bool same = plain || !last || last >= schedule->ranks;
        for (uint32_t r = 0; same && r < schedule->ranks; r++)
            same = is_megatron_rank(schedule, r, plain ? schedule->microbatches : group, overlap);
        if (same || plain)
            return same ? group : 0;
    }
    return 0;
}

void emit_megatron(const Schedule *schedule, Arena *arena, FILE *stream)
{
    const char *const name = text_printable(schedule->name, arena);
    const bool one = schedule->pipe_count == 1 && !schedule->pipes[0].replicated && !strange_pass(schedule);
    const Split split = one ? split_of(schedule) : SPLIT_OTHER;
    const bool loop = split == SPLIT_PLAIN || split == SPLIT_LOOP;
    const uint32_t alone = loop ? megatron_group(schedule, false) : 0;
    const uint32_t group = loop && !alone ? megatron_group(schedule, true) : alone;
    const uint32_t stages = schedule->pipes[0].stages;
    if (!group) {
        fprintf(stream, "# Megatron-Core has no such order as %s%s.\n", name,
                loop ? "" : ", nor its placement: it puts stage s on rank s % P, without copies");
    } else
        fprintf(stream, "# %s is Megatron-Core's own order. These flags run it with %u microbatches.\n", name,
                schedule->microbatches);
    if (!group)
        return;
    fputs("# A t is a layer: write t*4 for four. E is the embedding, L the loss.\n", stream);
    fprintf(stream, "--pipeline-model-parallel-size %u", schedule->ranks);
    if (stages == 1)
        fputs(" --pipeline-model-parallel-layout 'EtL'", stream);
    else if (stages == 2)
        fputs(" --pipeline-model-parallel-layout 'Et|tL'", stream);
    else
        fprintf(stream, " --pipeline-model-parallel-layout 'Et|(t|)*%utL'", stages - 2);
    if (split == SPLIT_LOOP)
        fprintf(stream, " --microbatch-group-size-per-virtual-pipeline-stage %u%s", group,
                alone ? "" : " --overlap-moe-expert-parallel-comm");
    putc('\n', stream);
}

/* --- Python modules --- */

static const char jaxpp_module[] =
#include "compiler/output/runtimes/jaxpp.py.text"
    ;
static const char shardy_module[] =
#include "compiler/output/runtimes/shardy.py.text"
    ;

static void put_module(const Schedule *schedule, const char *module, Arena *arena, FILE *stream)
{
    fprintf(stream, "# %s: %s. Made by dpc.\n\nORDER = \"\"\"\\\n", text_printable(schedule->name, arena),
            schedule_sizes(schedule).text);
    emit_csv(schedule, false, stream);
    fprintf(stream, "\"\"\"\n\n%s", module);
}

void emit_jaxpp(const Schedule *schedule, Arena *arena, FILE *stream)
{
    put_module(schedule, jaxpp_module, arena, stream);
}

void emit_shardy(const Schedule *schedule, Arena *arena, FILE *stream)
{
    put_module(schedule, shardy_module, arena, stream);
}
