/* Keeps the times of the last steps in memory, and writes them as a trace at the end of the run. */
#include "program/times/trace.h"
#include "runtime/trainer/rank.h"

#include <stdlib.h>
#include <string.h>

Status trace_open(Rank *rank, Error *error)
{
    const uint32_t steps = rank->session->kept_steps;
    Times *times = &rank->times;
    if (!rank->session->options->trace)
        return STATUS_OK;
    times->rows = rank_table(rank, steps, executor_clocks(rank->executor) * sizeof *times->rows);
    times->flights = rank_table(rank, steps, rank->flights.room * sizeof *times->flights);
    times->flight_counts = rank_table(rank, steps, sizeof *times->flight_counts);
    times->components = rank_table(rank, steps, rank->components.room * sizeof *times->components);
    times->component_counts = rank_table(rank, steps, sizeof *times->component_counts);
    return times->rows && times->flights && times->flight_counts && times->components && times->component_counts
               ? STATUS_OK
               : rank_no_tables(rank, error);
}

/* The index of a step among those that are kept. */
static size_t step_index(const Rank *rank, uint64_t step) { return (step - 1) % rank->session->kept_steps; }

static int64_t *step_clock(const Rank *rank, uint64_t step)
{
    return rank->times.rows + step_index(rank, step) * executor_clocks(rank->executor);
}

static Flight *step_flights(const Rank *rank, uint64_t step)
{
    return rank->times.flights + step_index(rank, step) * rank->flights.room;
}

static PartSpan *step_components(const Rank *rank, uint64_t step)
{
    return rank->times.components + step_index(rank, step) * rank->components.room;
}

void trace_keep(const Rank *rank)
{
    const Flights *flights = &rank->flights;
    const PartSpans *components = &rank->components;
    if (!rank->times.rows)
        return;
    memcpy(step_clock(rank, rank->step), executor_clock(rank->executor),
           executor_clocks(rank->executor) * sizeof(int64_t));
    memcpy(step_flights(rank, rank->step), flights->entries, flights->count * sizeof *flights->entries);
    rank->times.flight_counts[step_index(rank, rank->step)] = flights->count;
    memcpy(step_components(rank, rank->step), components->entries, components->count * sizeof *components->entries);
    rank->times.component_counts[step_index(rank, rank->step)] = components->count;
}

static double microseconds(const Rank *rank, int64_t time, int64_t origin)
{
    return (double)(clock_common(rank->times.compared, time) - origin) / 1e3;
}

static void make_spans(const Rank *rank, uint64_t step, int64_t origin, TraceSpan *spans)
{
    const RankProgram *own = &rank->session->loaded->program->ranks[rank->number];
    const int64_t *clock = step_clock(rank, step);
    const int64_t *middle = clock + executor_middles(rank->executor);
    for (uint32_t i = 0; i < own->instruction_count; i++) {
        spans[i] =
            (TraceSpan){.start = microseconds(rank, clock[i], origin), .end = microseconds(rank, clock[i + 1], origin)};
        if (own->instructions[i].second && *middle++)
            spans[i].middle = microseconds(rank, middle[-1], origin);
    }
}

static TraceParts make_all_to_alls(const Rank *rank, uint64_t step, int64_t origin, TracePart *parts)
{
    const size_t count = rank->times.flight_counts[step_index(rank, step)];
    const Flight *kept = step_flights(rank, step);
    for (size_t f = 0; f < count; f++)
        parts[f] = (TracePart){.layer = kept[f].layer,
                               .part = kept[f].component,
                               .pass = kept[f].pass,
                               .half = kept[f].half,
                               .counts = kept[f].counts,
                               .start = microseconds(rank, kept[f].posted, origin),
                               .end = microseconds(rank, kept[f].landed, origin),
                               .waited = (double)flight_waited(&kept[f]) / 1e3};
    return (TraceParts){parts, count};
}

static TraceParts make_components(const Rank *rank, uint64_t step, int64_t origin, TracePart *parts)
{
    const size_t count = rank->times.component_counts[step_index(rank, step)];
    const PartSpan *kept = step_components(rank, step);
    for (size_t k = 0; k < count; k++)
        parts[k] = (TracePart){.layer = kept[k].layer,
                               .part = kept[k].part,
                               .pass = kept[k].pass,
                               .half = kept[k].half,
                               .start = microseconds(rank, kept[k].start, origin),
                               .end = microseconds(rank, kept[k].end, origin)};
    return (TraceParts){parts, count};
}

/* The lanes that the rank has in the trace, as bits 1 << TraceLane. Those of all-to-alls and components are the ones
   that `step` used. */
static unsigned lanes_of(const Rank *rank, uint64_t step)
{
    const size_t count = rank->times.flight_counts[step_index(rank, step)];
    unsigned lanes = (1u << TRACE_LANES) - 1;
    for (size_t f = 0; f < count; f++)
        lanes |= 1u << LANE_ALL_TO_ALLS | 1u << (LANE_ALL_TO_ALLS + step_flights(rank, step)[f].half);
    return rank->times.component_counts[step_index(rank, step)] ? lanes | 1u << LANE_COMPONENTS : lanes;
}

/* Room for the times of one step in microseconds since the start of the trace. */
typedef struct Converted {
    TraceSpan *spans;
    TracePart *all_to_alls, *components;
} Converted;

static bool write_rank(const Rank *rank, uint64_t first_step, uint64_t last_step, int64_t origin,
                       const Converted *converted, FILE *stream)
{
    const Session *session = rank->session;
    trace_member(session->mesh, rank->member, lanes_of(rank, last_step), stream);
    for (uint64_t step = first_step; step <= last_step; step++) {
        make_spans(rank, step, origin, converted->spans);
        const TraceTimes times = {converted->spans, make_all_to_alls(rank, step, origin, converted->all_to_alls),
                                  make_components(rank, step, origin, converted->components)};
        if (!trace_step(session->loaded->program, session->mesh, rank->member, step, first_step, &times, stream))
            return false;
    }
    return true;
}

/* Makes the text of this rank's part of the trace; the caller frees it. */
static Status make_text(const Rank *rank, uint64_t first_step, int64_t origin, char **text, size_t *size, Error *error)
{
    const size_t instructions = rank->session->loaded->program->ranks[rank->number].instruction_count;
    const Converted converted = {.spans = calloc(instructions, sizeof *converted.spans),
                                 .all_to_alls = calloc(rank->flights.room + 1, sizeof *converted.all_to_alls),
                                 .components = calloc(rank->components.room + 1, sizeof *converted.components)};
    FILE *memory = open_memstream(text, size);
    bool good = memory && converted.spans && converted.all_to_alls && converted.components &&
                write_rank(rank, first_step, rank->step, origin, &converted, memory);
    good = memory && fclose(memory) == 0 && good;
    free(converted.components);
    free(converted.all_to_alls);
    free(converted.spans);
    return good ? STATUS_OK
                : error_set(error, STATUS_RUN_FAILED, "%s: no memory for the text of its trace", rank_name(rank).text);
}

Status trace_steps(Rank *rank, FILE *stream, Error *error)
{
    const Session *session = rank->session;
    const uint64_t first_step = rank->step > session->kept_steps ? rank->step - session->kept_steps + 1 : 1;
    TRY(compare_clocks(rank, 1, error));
    int64_t *begun = (int64_t *)(void *)rank->collection.pieces;
    const int64_t own = clock_common(rank->times.compared, *step_clock(rank, first_step));
    TRY(rank_gather(rank, &own, sizeof own, begun, error));
    int64_t origin = begun[0];
    for (int r = 1; r < member_count(rank); r++)
        origin = begun[r] < origin ? begun[r] : origin;

    char *text = NULL;
    size_t size = 0;
    Status status = make_text(rank, first_step, origin, &text, &size, error);
    const Costs *costs = session->options->simulated ? &session->options->costs : NULL;
    const TraceFacts facts = {
        .replicas = session->mesh.replicas,
        .reference = session->loaded->reference.ranks > 0,
        .unit = costs ? costs_seconds(costs) : 0,
        .message_bytes = costs ? costs->bytes : (double)executor_message_bytes(rank->executor),
        .processors = costs ? 0 : rank->times.processors,
    };
    if (stream)
        trace_begin(session->loaded->program, &facts, stream);
    for (int r = 0; status == STATUS_OK && r < member_count(rank); r++)
        status = collect(rank, r, text, size, stream, error);
    free(text);
    if (stream)
        trace_end(stream);
    return status;
}
