/* Program and costs → times, pictures and other text. */

#include "library/internal.h"

#include "compiler/output/emit.h"
#include "compiler/schedule/rank_load.h"

typedef struct Request {
    const dps_program *program;
    const char *const *costs;
    size_t cost_count;
    dps_prediction **prediction;
} Request;

static Status predict_body(dps *d, void *arguments)
{
    const Request *request = arguments;
    const dps_program *program = request->program;
    dps_prediction *const made = d->prediction = host_new(d, sizeof *made);
    made->memory = d->memory;
    made->arena = host_arena(d, &made->memory);
    made->program = program;
    made->compilation = program->compilation;
    Compilation *const c = &made->compilation;
    if (request->cost_count) {
        Costs given = costs_unit;
        given.front_end = d->front_end;
        TRY(costs_take(&given, request->costs, request->cost_count, &made->arena, &d->error));
        c->resolved = costs_resolve(&given, c->program->stages, &c->schedule.recipes, &made->arena);
        c->schedule.chosen_count = 0; /* dpc chose these parameters under other costs: do not print them */
    }
    timeline_run(&c->schedule, &c->table, &c->resolved, &made->arena, &made->times);
    c->arena = &made->arena; /* not the program's arena: other threads may read the program */
    made->gap = compilation_gap(c, made->times.makespan);
    made->causes = timeline_bubble_causes(&c->schedule, &c->table, &made->times, &made->arena);
    made->arena.exhausted = NULL;
    d->prediction = NULL;
    *request->prediction = made;
    return STATUS_OK;
}

dps_status dps_predict(dps *d, const dps_program *program, const char *const *costs, size_t cost_count,
                       dps_prediction **prediction)
{
    Request request = {program, costs, cost_count, prediction};
    return CALL(d, predict_body, &request, NEEDED(program), RESULT(prediction));
}

void dps_prediction_free(dps_prediction *prediction)
{
    if (!prediction)
        return;
    const MemoryFunctions memory = prediction->memory;
    arena_free(&prediction->arena);
    host_release(&memory, prediction);
}

dps_status dps_get_prediction_info(const dps_prediction *prediction, dps_prediction_info *info)
{
    if (!prediction)
        return DPS_BAD_USAGE;
    const Compilation *c = &prediction->compilation;
    const Bubble bubble = timeline_bubble(&c->schedule, &prediction->times);
    const dps_prediction_info found = {.makespan = prediction->times.makespan,
                                       .bound = prediction->gap.bound,
                                       .seconds = c->resolved.unit > 0 ? c->resolved.unit : 0,
                                       .cost = bubble.cost,
                                       .work = bubble.work,
                                       .bubble_rate = bubble.rate,
                                       .imbalance = prediction->causes.imbalance,
                                       .order_bubble = prediction->causes.order,
                                       .messages_time = prediction->causes.messages};
    return STRUCT_OUT(info, &found) ? DPS_OK : DPS_BAD_USAGE;
}

dps_status dps_get_rank_prediction(const dps_prediction *prediction, uint32_t rank, dps_rank_prediction *info)
{
    if (!prediction || rank >= prediction->compilation.schedule.ranks)
        return DPS_BAD_USAGE;
    const Compilation *c = &prediction->compilation;
    const Memory *sizes = &prediction->program->sizes;
    const RankTimes times = timeline_rank(&c->schedule, &prediction->times, rank);
    const RankLoad load = rank_load(&c->schedule, &c->resolved, rank);
    const double needed = sizes->given ? (double)memory_bytes(sizes, &c->program->ranks[rank]) : load.peak_memory;
    const dps_rank_prediction found = {.start = times.start,
                                       .end = times.end,
                                       .busy = times.busy,
                                       .idle = times.end - times.start - times.busy,
                                       .bytes_sent = load.bytes_sent,
                                       .peak_memory = sizes->given && memory_missing(sizes, c->program) ? 0 : needed};
    return STRUCT_OUT(info, &found) ? DPS_OK : DPS_BAD_USAGE;
}

/* --- text --- */

typedef struct Rendering {
    const dps_prediction *prediction;
    dps_format format;
    uint32_t width;
    char **text;
    size_t *length;
} Rendering;

#define EMIT(kind, name, help, write) _Static_assert((int)DPS_##kind == EMIT_##kind, "formats are those of emit");
#include "compiler/output/kinds.def"
#undef EMIT

static Status check_width(const Rendering *rendering, Error *error)
{
    const uint32_t width = rendering->width;
    if (width && rendering->format == DPS_SVG && (width < SVG_LEAST_WIDTH || width > SVG_MOST_WIDTH))
        return error_set(error, STATUS_BAD_USAGE, "width %u: an svg must be %d to %d pixels wide", width,
                         SVG_LEAST_WIDTH, SVG_MOST_WIDTH);
    if (width && rendering->format == DPS_TEXT && (width < TEXT_LEAST_WIDTH || width > UINT16_MAX))
        return error_set(error, STATUS_BAD_USAGE, "width %u: text must be %d to %d columns wide", width,
                         TEXT_LEAST_WIDTH, UINT16_MAX);
    return STATUS_OK;
}

static Status render_body(dps *d, void *arguments)
{
    enum { WIDTH = 160 };
    const Rendering *rendering = arguments;
    if ((unsigned)rendering->format >= EMIT_KINDS)
        return error_set(&d->error, STATUS_BAD_USAGE, "there is no dps_format %d", (int)rendering->format);
    TRY(check_width(rendering, &d->error));
    Compilation view = rendering->prediction->compilation;
    TRY(emit_fits(&view.schedule, (EmitKind)rendering->format, &d->error));
    view.arena = &d->working; /* not the prediction's arena: other threads may read the prediction */
    const Emission emission = {.compilation = &view,
                               .times = &rendering->prediction->times,
                               .gap = rendering->prediction->gap,
                               .memory = &rendering->prediction->program->sizes,
                               .svg_width = rendering->width,
                               .terminal = {.width = rendering->width ? rendering->width : WIDTH}};
    emit(&emission, (EmitKind)rendering->format, text_begin(d));
    size_t length;
    const char *const text = text_end(d, &length);
    *rendering->text = host_text(d, text, length);
    if (rendering->length)
        *rendering->length = length;
    return STATUS_OK;
}

dps_status dps_render(dps *d, const dps_prediction *prediction, dps_format format, uint32_t width, char **text,
                      size_t *length)
{
    Rendering request = {prediction, format, width, text, length};
    return CALL(d, render_body, &request, NEEDED(prediction), RESULT(text));
}
