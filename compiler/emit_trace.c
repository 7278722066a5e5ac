/* The modelled timeline in the form of dprun --trace: one thread a rank, one event an instruction, named by the disassembler's
   text; and an arrow for each message, from the pass that makes it to the pass that needs it. Where the costs do
   not say how long their unit is, it is shown as a millisecond. Sends, receives and what follows the last pass take no time of their own in the model. */

#include "compiler/emit.h"

#include <math.h>

enum { TEXT_BYTES = 160 };

/* The message that a slot waits for. */
typedef struct Arrival {
    bool expected;
    double time;
} Arrival;

typedef struct Replay {
    const Picture *picture;
    FILE *stream;
    uint32_t rank;
    const RankProgram *program;
    Arrival *arrivals; /* [message slots] */
    double microseconds; /* of a unit of time */
    double clock;
    uint64_t arrows;
} Replay;

static void put_event(const Replay *replay, uint32_t i, const char *name, double start, double end)
{
    const Instruction *instruction = &replay->program->instructions[i];
    fprintf(replay->stream,
            ",\n{\"name\":\"%s\",\"cat\":\"%s\",\"ph\":\"X\",\"pid\":0,\"tid\":%u,\"ts\":%.3f,\"dur\":%.3f,"
            "\"args\":{\"step\":1,\"instruction\":%u,\"line\":%u}}",
            name, program_trace_category(instruction->opcode), replay->rank, start * replay->microseconds, (end - start) * replay->microseconds, i,
            instruction->line);
}

/* Where the pass at the other end of a message stands: the F of the stage before or after, or the B or I. */
static void other_end(const Replay *replay, const Instruction *message, int direction, uint32_t *rank, uint32_t *position)
{
    const Schedule *schedule = replay->picture->schedule;
    const PlacedChunk *chunk = &schedule->chunks[replay->rank][message->chunk];
    const PlacedPipe *pipe = &schedule->pipes[chunk->pipe];
    const bool forward = message->opcode == OP_SEND_FORWARD || message->opcode == OP_RECEIVE_FORWARD;
    const uint32_t stage = (uint32_t)(chunk->stage + (forward ? direction : -direction));
    uint32_t *const *positions = forward ? replay->picture->table->forward : replay->picture->table->backward;
    *rank = stage_home(pipe, stage, message->microbatch).rank;
    *position = positions[chunk->pipe][pass_index(pipe, stage, message->microbatch)];
}

static void take_receive(Replay *replay, const Instruction *receive)
{
    uint32_t rank, position;
    other_end(replay, receive, -1, &rank, &position);
    replay->arrivals[receive->slot[0]] =
        (Arrival){.expected = true, .time = replay->picture->times->end[rank][position] +
                                                   costs_message(replay->picture->times->costs, rank, replay->rank)};
}

/* True when another message is waited for between this instruction and the next pass. */
static bool waits_again(const Replay *replay, uint32_t i)
{
    for (const Instruction *next = &replay->program->instructions[i + 1]; program_trace_category(next->opcode)[0] != 'c'; next++)
        if (next->opcode == OP_WAIT && replay->arrivals[next->slot[0]].expected)
            return true;
    return false;
}

/* The wait for a message lasts until it is there; the last one before a pass, until the pass starts. */
static double wait_end(Replay *replay, uint32_t i, double next_start)
{
    Arrival *arrival = &replay->arrivals[replay->program->instructions[i].slot[0]];
    if (!arrival->expected)
        return replay->clock;
    arrival->expected = false;
    return waits_again(replay, i) ? fmin(fmax(replay->clock, arrival->time), next_start) : next_start;
}

static void replay_rank(Replay *replay)
{
    const Program *program = replay->picture->program;
    uint32_t position = 0;
    Cell cell;
    bool more = picture_next(replay->picture, replay->rank, &position, &cell);
    for (uint32_t i = 0; i + 1 < replay->program->instruction_count; i++) {
        const Instruction *instruction = &replay->program->instructions[i];
        char name[2 * TEXT_BYTES + 3], first[TEXT_BYTES], second[TEXT_BYTES];
        double start = replay->clock, end = replay->clock;
        const uint32_t event = i;
        program_instruction_text(program, replay->rank, instruction, name, TEXT_BYTES);
        switch (instruction->opcode) {
        case OP_OVERLAP:
            program_instruction_text(program, replay->rank, instruction + 1, first, sizeof first);
            program_instruction_text(program, replay->rank, instruction + 2, second, sizeof second);
            snprintf(name, sizeof name, "%s & %s", first, second);
            i += 2;
            __attribute__((fallthrough));
        case OP_FORWARD:
        case OP_BACKWARD:
        case OP_BACKWARD_INPUT:
        case OP_BACKWARD_WEIGHT:
        case OP_RENEW:
            start = cell.start;
            end = cell.end;
            more = picture_next(replay->picture, replay->rank, &position, &cell);
            break;
        case OP_RECEIVE_FORWARD:
        case OP_RECEIVE_BACKWARD:
            take_receive(replay, instruction);
            break;
        case OP_WAIT:
            end = wait_end(replay, i, more ? cell.start : replay->clock);
            break;
        default:
            break;
        }
        put_event(replay, event, name, start, end);
        replay->clock = end;
    }
}

/* An end of an arrow belongs to the event that lies around its time: the last nanosecond of the pass that makes the message,
   the first of the pass that needs it. */
static void put_arrows(Replay *replay)
{
    const Picture *picture = replay->picture;
    for (uint32_t i = 0; i < replay->program->instruction_count; i++) {
        const Instruction *send = &replay->program->instructions[i];
        if (send->opcode != OP_SEND_FORWARD && send->opcode != OP_SEND_BACKWARD)
            continue;
        uint32_t from, made, to, needed;
        other_end(replay, send, 0, &from, &made);
        other_end(replay, send, 1, &to, &needed);
        const double start = picture->times->start[from][made] * replay->microseconds;
        const double end = picture->times->end[from][made] * replay->microseconds;
        fprintf(replay->stream,
                ",\n{\"name\":\"%s\",\"cat\":\"flow\",\"ph\":\"s\",\"id\":%llu,\"pid\":0,\"tid\":%u,\"ts\":%.3f}"
                ",\n{\"name\":\"%s\",\"cat\":\"flow\",\"ph\":\"f\",\"bp\":\"e\",\"id\":%llu,\"pid\":0,\"tid\":%u,\"ts\":%.3f}",
                send->opcode == OP_SEND_FORWARD ? "activation" : "gradient", (unsigned long long)replay->arrows, from,
                fmax(start, end - 0.001), send->opcode == OP_SEND_FORWARD ? "activation" : "gradient",
                (unsigned long long)replay->arrows, to, picture->times->start[to][needed] * replay->microseconds);
        replay->arrows++;
    }
}

void emit_trace(const Picture *picture, Arena *arena, FILE *stream)
{
    const Program *program = picture->program;
    uint64_t arrows = 0;
    fputs("{\"displayTimeUnit\":\"ns\",\"traceEvents\":[", stream);
    for (uint32_t r = 0; r < program->rank_count; r++) {
        Replay replay = {.picture = picture, .stream = stream, .rank = r, .program = &program->ranks[r],
                         .microseconds = 1e6 * costs_seconds(picture->times->costs), .arrows = arrows};
        replay.arrivals = arena_array(arena, program->ranks[r].slots[SLOT_MESSAGE], sizeof *replay.arrivals);
        fprintf(stream, "%s\n{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":0,\"tid\":%u,\"args\":{\"name\":\"rank %u\"}}", r ? "," : "",
                r, r);
        replay_rank(&replay);
        put_arrows(&replay);
        arrows = replay.arrows;
    }
    fputs("\n]}\n", stream);
}
