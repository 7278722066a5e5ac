/* The predicted timeline in the form of dprun --trace. Only passes, waits for messages to arrive and, if the costs give
   them a time, asynchronous updates take time. Starts of sends and receives, waits for sends, sums of gradients and
   updates at the end of the step take none. */

#include "compiler/output/emit.h"
#include "program/times/trace.h"

#include <math.h>
#include <string.h>

/* The message that is being received into a message slot; `expected` false: there is none. time: when the message
   arrives. */
typedef struct Arrival {
    bool expected;
    double time;
} Arrival;

typedef struct Replay {
    const Picture *picture;
    uint32_t rank;
    const RankProgram *program;
    Arrival *arrivals;   /* [message slots] */
    TraceSpan *spans;    /* [instructions] */
    double microseconds; /* microseconds per unit of time of the costs */
    double clock;
} Replay;

/* The time at which the message of a RECEIVE arrives: the end of the pass that computes it (the F of the stage before,
   or the B or I of the stage after), plus the transfer time. */
static double arrival_of(const Replay *replay, const Instruction *receive)
{
    const Schedule *schedule = replay->picture->schedule;
    const PlacedChunk *chunk = &schedule->chunks[replay->rank][receive->chunk];
    const PlacedPipe *pipe = &schedule->pipes[chunk->pipe];
    const bool forward = receive->opcode == OP_RECEIVE_FORWARD;
    const uint32_t stage = chunk->stage + (forward ? -1u : 1u);
    uint32_t *const *positions = forward ? replay->picture->table->forward : replay->picture->table->backward;
    const uint32_t position = positions[chunk->pipe][pass_index(pipe, stage, receive->microbatch)];
    const uint32_t rank = stage_home(pipe, stage, receive->microbatch).rank;
    return replay->picture->times->end[rank][position] +
           costs_message(replay->picture->times->costs, rank, replay->rank);
}

/* Whether the rank waits for another message to arrive between instruction `i` and its next pass. */
static bool waits_again(const Replay *replay, uint32_t i)
{
    for (const Instruction *next = &replay->program->instructions[i + 1]; trace_lane(next->opcode) != LANE_COMPUTE;
         next++)
        if (next->opcode == OP_WAIT && replay->arrivals[next->message].expected)
            return true;
    return false;
}

/* The end of a wait. The last wait for a message before a pass ends when that pass starts. An earlier one ends when its
   message has arrived. A wait for a send takes no time. */
static double wait_end(Replay *replay, uint32_t i, double next_start)
{
    Arrival *arrival = &replay->arrivals[replay->program->instructions[i].message];
    if (!arrival->expected)
        return replay->clock;
    arrival->expected = false;
    return waits_again(replay, i) ? fmin(fmax(replay->clock, arrival->time), next_start) : next_start;
}

static void replay_rank(Replay *replay)
{
    uint32_t position = 0;
    Cell cell;
    bool more = picture_next(replay->picture, replay->rank, &position, &cell);
    for (uint32_t i = 0; i < replay->program->instruction_count; i++) {
        const Instruction *instruction = &replay->program->instructions[i];
        double start = replay->clock, end = replay->clock;
        switch (instruction->opcode) {
        case OP_OVERLAP:
        case OP_OVERLAP_FORWARD:
        case OP_FORWARD:
        case OP_FORWARD_ONLY:
        case OP_BACKWARD:
        case OP_BACKWARD_INPUT:
        case OP_BACKWARD_WEIGHT:
        case OP_ASYNC_UPDATE:
            start = cell.start;
            end = cell.end;
            more = picture_next(replay->picture, replay->rank, &position, &cell);
            break;
        case OP_RECEIVE_FORWARD:
        case OP_RECEIVE_BACKWARD:
            replay->arrivals[instruction->message] =
                (Arrival){.expected = true, .time = arrival_of(replay, instruction)};
            break;
        case OP_WAIT: end = wait_end(replay, i, more ? cell.start : replay->clock); break;
        default: break;
        }
        replay->spans[i] = (TraceSpan){.start = start * replay->microseconds, .end = end * replay->microseconds};
        replay->clock = end;
    }
}

/* A copy of the program as dprun runs it, with messages posted early. */
static Program *as_run(const Program *program, Arena *arena)
{
    Program *copy = arena_allocate(arena, sizeof *copy);
    *copy = *program;
    copy->ranks = arena_array(arena, program->rank_count, sizeof *copy->ranks);
    for (uint32_t r = 0; r < program->rank_count; r++) {
        const RankProgram *own = &program->ranks[r];
        copy->ranks[r] = *own;
        copy->ranks[r].instructions = arena_array(arena, own->instruction_count, sizeof *own->instructions);
        memcpy(copy->ranks[r].instructions, own->instructions, own->instruction_count * sizeof *own->instructions);
    }
    program_post_early(copy, arena);
    return copy;
}

void emit_trace(const Picture *picture, Arena *arena, FILE *stream)
{
    const Program *program = as_run(picture->program, arena);
    const Costs *costs = picture->times->costs;
    const double seconds = costs_seconds(costs);
    const Mesh mesh = {.ranks = (int)program->rank_count, .replicas = 1};
    trace_begin(program, &(TraceFacts){.unit = seconds, .message_bytes = costs->bytes}, stream);
    for (uint32_t r = 0; r < program->rank_count; r++) {
        const RankProgram *own = &program->ranks[r];
        Replay replay = {.picture = picture, .rank = r, .program = own, .microseconds = seconds * 1e6};
        replay.arrivals = arena_array(arena, own->slots[SLOT_MESSAGE], sizeof *replay.arrivals);
        replay.spans = arena_array(arena, own->instruction_count, sizeof *replay.spans);
        replay_rank(&replay);
        trace_member(mesh, (int)r, (1u << TRACE_LANES) - 1, stream);
        if (!trace_step(program, mesh, (int)r, 1, 1, &(TraceTimes){.spans = replay.spans}, stream))
            arena_exhausted(arena);
    }
    trace_end(stream);
}
