/* Writes the last steps as a trace. */
#include "runtime/program/trace.h"
#include "runtime/trainer/rank.h"

#include <stdlib.h>
#include <string.h>

static int64_t *step_clock(const Rank *rank, uint64_t step)
{
    const Session *session = rank->session;
    return rank->times.rows + (step - 1) % session->kept_steps * executor_clocks(rank->executor);
}

void trace_keep(const Rank *rank)
{
    const size_t bytes = executor_clocks(rank->executor) * sizeof(int64_t);
    if (rank->times.rows)
        memcpy(step_clock(rank, rank->step), executor_clock(rank->executor), bytes);
}

static double microseconds(const Rank *rank, int64_t time, int64_t origin)
{
    return (double)(clock_common(rank->times.compared, time) - origin) / 1e3;
}

static bool write_rank(const Rank *rank, uint64_t first_step, uint64_t last_step, int64_t origin, TraceSpan *spans,
                       FILE *stream)
{
    const Program *program = rank->session->loaded->program;
    const uint32_t number = (uint32_t)rank->number, count = program->ranks[number].instruction_count;
    trace_member(rank->session->mesh, rank->member, stream);
    for (uint64_t step = first_step; step <= last_step; step++) {
        const int64_t *clock = step_clock(rank, step);
        const int64_t *middle = clock + executor_middles(rank->executor);
        for (uint32_t i = 0; i < count; i++) {
            spans[i] = (TraceSpan){.start = microseconds(rank, clock[i], origin),
                                   .end = microseconds(rank, clock[i + 1], origin)};
            if (program->ranks[number].instructions[i].second && *middle++)
                spans[i].middle = microseconds(rank, middle[-1], origin);
        }
        if (!trace_step(program, rank->session->mesh, rank->member, step, first_step, spans, stream))
            return false;
    }
    return true;
}

/* Makes the text of this rank's part; the caller frees it. */
static Status make_text(const Rank *rank, uint64_t first_step, int64_t origin, char **text, size_t *size, Error *error)
{
    TraceSpan *spans = calloc(rank->session->loaded->program->ranks[rank->number].instruction_count, sizeof *spans);
    FILE *memory = open_memstream(text, size);
    bool good = memory && spans && write_rank(rank, first_step, rank->step, origin, spans, memory);
    good = memory && fclose(memory) == 0 && good;
    free(spans);
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
