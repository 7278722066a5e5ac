#include "runtime/program/trace.h"

#include "runtime/base/text.h"

#include <stdlib.h>
#include <string.h>

enum { NAME_BYTES = 160, PASS_BYTES = 40 };
static const double nanosecond = 0.001; /* in microseconds */

const char *const trace_lane_names[TRACE_LANES_MOST] = {"compute", "communication", "waits", "all-to-alls",
                                                        "all-to-alls of the second half"};

TraceLane trace_lane(uint8_t opcode)
{
    switch (opcode) {
    case OP_WAIT: return LANE_WAITS;
    case OP_SEND_FORWARD:
    case OP_SEND_BACKWARD:
    case OP_RECEIVE_FORWARD:
    case OP_RECEIVE_BACKWARD: return LANE_COMMUNICATION;
    default: return LANE_COMPUTE;
    }
}

static const char *category_of(uint8_t opcode)
{
    switch (trace_lane(opcode)) {
    case LANE_WAITS: return "wait";
    case LANE_COMMUNICATION: return "message";
    default: return opcode == OP_NORM || opcode == OP_UPDATE ? "update" : "compute";
    }
}

/* The letters that a .csv order of the compiler has for the opcode; NULL: such an order has no such instruction. */
static const char *letters_of(uint8_t opcode)
{
    switch (opcode) {
    case OP_FORWARD:
    case OP_FORWARD_ONLY:
    case OP_OVERLAP:
    case OP_OVERLAP_FORWARD: return "F";
    case OP_BACKWARD: return "B";
    case OP_BACKWARD_INPUT: return "I";
    case OP_BACKWARD_WEIGHT: return "W";
    case OP_ASYNC_UPDATE: return "U";
    case OP_SEND_FORWARD: return "SEND_F";
    case OP_SEND_BACKWARD: return "SEND_B";
    case OP_RECEIVE_FORWARD: return "RECV_F";
    case OP_RECEIVE_BACKWARD: return "RECV_B";
    default: return NULL;
    }
}

static bool is_receive(uint8_t opcode) { return opcode == OP_RECEIVE_FORWARD || opcode == OP_RECEIVE_BACKWARD; }

/* The state while one step of one rank is written. */
typedef struct Writer {
    const Program *program;
    const RankProgram *own;
    const TraceSpan *spans;
    FILE *stream;
    uint32_t rank;
    Mesh mesh;
    int member;
    uint64_t step, first_step;
    const Instruction **posted; /* [message slot]: the SEND or RECEIVE that was posted last for this slot */
    bool *unread;               /* [message slot]: its message was received, but no pass has read it yet */
    TraceSpan *made;            /* [message slot]: the times of the pass that filled it */
    uint32_t held;              /* how many activations the rank holds now, each from its F to the end of its B or W */
    TraceSpan *sums;            /* [chunk]: its last REDUCE */
    uint32_t *updates;          /* [chunk]: how many U it has run in this step */
    uint32_t *versions;         /* [weights slot]: the version of the weights in this slot */
} Writer;

static const char *pass_text(const Writer *writer, const Instruction *instruction, char text[PASS_BYTES])
{
    const Chunk *chunk = &writer->own->chunks[instruction->chunk];
    char pipe[16] = "";
    if (writer->program->pipe_count > 1)
        snprintf(pipe, sizeof pipe, "p%u:", chunk->pipe);
    const uint32_t number =
        instruction->opcode == OP_ASYNC_UPDATE ? writer->updates[instruction->chunk] + 1 : instruction->microbatch;
    snprintf(text, PASS_BYTES, "%s%u%s%u", pipe, chunk->stage, letters_of(instruction->opcode), number);
    return text;
}

/* Writes the version of the weights that an F, B or I reads or U makes; two versions for a pair. */
static void put_version(const Writer *writer, const Instruction *instruction)
{
    const uint32_t *versions = writer->versions;
    if (!writer->program->asynchronous)
        return;
    if (instruction->second)
        fprintf(writer->stream, ",\"version\":[%u,%u]", versions[instruction->weights],
                versions[instruction->second->weights]);
    else if (instruction->opcode == OP_ASYNC_UPDATE)
        fprintf(writer->stream, ",\"version\":%u", writer->updates[instruction->chunk] + 1);
    else if (instruction->weights != SLOT_NONE)
        fprintf(writer->stream, ",\"version\":%u", versions[instruction->weights]);
}

/* A pass as 3F5, an F&B as 3F5&7B2, a message as 3SEND_F5; false if the compiler has no name for it. */
static bool pass_name(const Writer *writer, const Instruction *instruction, char name[NAME_BYTES])
{
    char first[PASS_BYTES], second[PASS_BYTES];
    if (instruction->second) {
        snprintf(name, NAME_BYTES, "%s&%s", pass_text(writer, instruction, first),
                 pass_text(writer, instruction->second, second));
        return true;
    }
    if (!letters_of(instruction->opcode))
        return false;
    pass_text(writer, instruction, name);
    return true;
}

/* Writes an event with the name of its pass or message; a wait has the name of the message that it waits for. */
static void put_event(const Writer *writer, uint32_t i, TraceSpan span)
{
    const Instruction *instruction = &writer->own->instructions[i];
    const TraceLane lane = trace_lane(instruction->opcode);
    char name[NAME_BYTES];
    const bool named = pass_name(writer, lane == LANE_WAITS ? writer->posted[instruction->message] : instruction, name);
    if (!named)
        program_instruction_text(writer->program, writer->rank, instruction, name, NAME_BYTES);
    fprintf(writer->stream,
            ",\n{\"name\":\"%s%s\",\"cat\":\"%s\",\"ph\":\"X\",\"pid\":%d,\"tid\":%d,\"ts\":%.3f,\"dur\":%.3f,"
            "\"args\":{\"step\":%llu,\"instruction\":%u,\"line\":%u",
            lane == LANE_WAITS ? "wait " : "", name, category_of(instruction->opcode), writer->member, (int)lane,
            span.start, span.end - span.start, (unsigned long long)writer->step,
            writer->own->numbers ? writer->own->numbers[i] : i, instruction->line);
    if (named)
        fprintf(writer->stream, ",\"%s\":\"%s\"", lane == LANE_COMPUTE ? "pass" : "message", name);
    if (span.middle > 0)
        fprintf(writer->stream, ",\"halves\":[%.3f,%.3f]", span.middle - span.start, span.end - span.middle);
    put_version(writer, instruction);
    fputs("}}", writer->stream);
}

/* Writes one end of a message's arrow. A viewer attaches it to the event that covers its time, so the time is the last
   nanosecond of the pass that computes the message, or the first nanosecond of the pass that needs it. Both ends number
   the arrow by step, direction and the pass that computes it. */
static void put_arrow(const Writer *writer, const Instruction *message, TraceSpan span)
{
    const Chunk *chunk = &writer->own->chunks[message->chunk];
    const bool forward = message->opcode == OP_SEND_FORWARD || message->opcode == OP_RECEIVE_FORWARD;
    const bool head = is_receive(message->opcode);
    const unsigned long long maker = chunk->stage - (head ? forward ? 1u : -1u : 0u);
    const Program *program = writer->program;
    const unsigned long long id =
        ((((writer->step - writer->first_step) * 2 + !forward) * program->stages + maker) * program->microbatches +
         program->pipes[chunk->pipe].first + message->microbatch) *
            (unsigned)writer->mesh.replicas +
        (unsigned)mesh_replica(writer->mesh, writer->member);
    const double time = head ? span.start : span.end - nanosecond > span.start ? span.end - nanosecond : span.start;
    fprintf(writer->stream,
            ",\n{\"name\":\"%s\",\"cat\":\"flow\",\"ph\":\"%s\",\"id\":%llu,\"pid\":%d,\"tid\":0,\"ts\":%.3f}",
            forward ? "activation" : "gradient", head ? "f\",\"bp\":\"e" : "s", id, writer->member, time);
}

/* Writes the counter of held activations if the pass is an F, which begins to hold one, or a B or W, which ends it. */
static void put_held(Writer *writer, const Instruction *pass, TraceSpan span)
{
    const bool begins = pass->opcode == OP_FORWARD || pass->opcode == OP_OVERLAP;
    if (!begins && pass->opcode != OP_BACKWARD && pass->opcode != OP_BACKWARD_WEIGHT)
        return;
    writer->held += begins ? 1 : -1u;
    fprintf(writer->stream,
            ",\n{\"name\":\"activations\",\"cat\":\"memory\",\"ph\":\"C\",\"pid\":%d,\"tid\":0,\"ts\":%.3f,\"args\":{"
            "\"held\":%u}}",
            writer->member, begins ? span.start : span.end, writer->held);
}

static void note_pass(Writer *writer, const Instruction *pass, TraceSpan span)
{
    const uint16_t read[] = {pass->x, pass->dy};
    put_held(writer, pass, span);
    for (size_t k = 0; k < sizeof read / sizeof *read; k++) {
        const uint16_t slot = read[k];
        if (slot == SLOT_NONE || !writer->unread[slot])
            continue;
        writer->unread[slot] = false;
        put_arrow(writer, writer->posted[slot], span);
    }
    if (pass->y != SLOT_NONE) /* or dx */
        writer->made[pass->y] = span;
}

static bool is_of_sum(uint8_t opcode) { return opcode == OP_REDUCE || opcode == OP_WAIT_REDUCE; }

/* Writes the interval of a sum of gradients, from its post to the end of the wait for it, and the time of the wait.
   Writes nothing for a stage with one copy. */
static void put_sum(Writer *writer, uint32_t i, TraceSpan span)
{
    const Instruction *instruction = &writer->own->instructions[i];
    const uint32_t stage = writer->own->chunks[instruction->chunk].stage;
    const TraceSpan *post = &writer->sums[instruction->chunk];
    if (!program_group(writer->program, stage) && writer->mesh.replicas == 1)
        return;
    if (instruction->opcode == OP_REDUCE) {
        writer->sums[instruction->chunk] = span;
        return;
    }
    const double waited = post->end - post->start + span.end - span.start;
    const char *const phases[] = {"b", "e"};
    const double times[] = {post->start, span.end};
    for (int end = 0; end < 2; end++)
        fprintf(writer->stream,
                ",\n{\"name\":\"sum %u\",\"cat\":\"sum\",\"ph\":\"%s\",\"id\":%llu,\"pid\":%d,\"tid\":%d,\"ts\":%.3f,"
                "\"args\":{\"step\":%llu,\"waited\":%.3f}}",
                stage, phases[end], (unsigned long long)writer->member * writer->program->stages + stage,
                writer->member, LANE_COMMUNICATION, times[end], (unsigned long long)writer->step, waited);
    fprintf(
        writer->stream,
        ",\n{\"name\":\"wait sum %u\",\"cat\":\"update\",\"ph\":\"X\",\"pid\":%d,\"tid\":%d,\"ts\":%.3f,\"dur\":%.3f,"
        "\"args\":{\"step\":%llu,\"instruction\":%u,\"line\":%u,\"message\":\"sum %u\"}}",
        stage, writer->member, LANE_WAITS, span.start, span.end - span.start, (unsigned long long)writer->step,
        writer->own->numbers ? writer->own->numbers[i] : i, instruction->line, stage);
}

/* The pass of instruction i that has this all-to-all. If halves run one after the other (`in_turn`), the all-to-alls of
   both say that they are of half 0. */
static const Instruction *pass_of(const Writer *writer, const TraceFlight *times, uint32_t i, bool in_turn)
{
    const Instruction *instruction = &writer->own->instructions[i];
    const bool second = instruction->opcode == OP_OVERLAP ? times->flight.pass == RECIPE_B
                        : in_turn                         ? times->start >= writer->spans[i].middle
                                                          : times->flight.half;
    return instruction->second && second ? instruction->second : instruction;
}

/* An all-to-all of instruction i. */
static void put_flight(const Writer *writer, const TraceFlight *times, uint32_t i, bool in_turn)
{
    const Flight *flight = &times->flight;
    const Instruction *instruction = &writer->own->instructions[i];
    const char *component = part_names[flight->component], direction = part_pass_letters[flight->pass];
    char pass[PASS_BYTES];
    pass_text(writer, pass_of(writer, times, i, in_turn), pass);
    fprintf(
        writer->stream,
        ",\n{\"name\":\"%s%s(%c) of layer %u\",\"cat\":\"all-to-all\",\"ph\":\"X\",\"pid\":%d,\"tid\":%d,\"ts\":%.3f,"
        "\"dur\":%.3f,\"args\":{\"step\":%llu,\"instruction\":%u,\"line\":%u,\"pass\":\"%s\",\"layer\":%u,"
        "\"component\":\"%s\",\"direction\":\"%c\",\"waited\":%.3f}}",
        flight->counts ? "counts for " : "", component, direction, flight->layer, writer->member,
        LANE_ALL_TO_ALLS + flight->half, times->start, times->end - times->start, (unsigned long long)writer->step,
        writer->own->numbers ? writer->own->numbers[i] : i, instruction->line, pass, flight->layer, component,
        direction, times->waited);
}

/* Each all-to-all belongs to the last instruction that began before its post. */
static void put_flights(const Writer *writer, const TraceTimes *times)
{
    uint32_t i = 0;
    bool in_turn = true;
    for (size_t f = 0; f < times->flight_count; f++)
        in_turn &= !times->flights[f].flight.half;
    for (size_t f = 0; f < times->flight_count; f++) {
        while (writer->own->instructions[i + 1].opcode != OP_END &&
               times->spans[i + 1].start <= times->flights[f].start)
            i++;
        put_flight(writer, &times->flights[f], i, in_turn);
    }
}

static void put_step(Writer *writer)
{
    const Instruction *instructions = writer->own->instructions;
    for (uint32_t i = 0; instructions[i].opcode != OP_END; i++) {
        const Instruction *instruction = &instructions[i];
        const TraceSpan span = writer->spans[i];
        if (is_of_sum(instruction->opcode)) {
            put_sum(writer, i, span);
            continue;
        }
        const uint16_t slot = instruction->message;
        put_event(writer, i, span);
        switch (trace_lane(instruction->opcode)) {
        case LANE_COMMUNICATION:
            writer->posted[slot] = instruction;
            if (!is_receive(instruction->opcode))
                put_arrow(writer, instruction, writer->made[slot]);
            break;
        case LANE_WAITS: writer->unread[slot] = is_receive(writer->posted[slot]->opcode); break;
        default:
            if (instruction->opcode == OP_ASYNC_UPDATE)
                writer->versions[instruction->next] = ++writer->updates[instruction->chunk];
            for (const Instruction *pass = instruction; pass && opcode_is_pass(pass->opcode); pass = pass->second)
                note_pass(writer, pass, span);
        }
    }
}

bool trace_step(const Program *program, Mesh mesh, int member, uint64_t step, uint64_t first_step,
                const TraceTimes *times, FILE *stream)
{
    const uint32_t rank = (uint32_t)mesh_rank(mesh, member);
    Arena tables = {0};
    const RankProgram *own = &program->ranks[rank];
    const uint32_t slots = own->slots[SLOT_MESSAGE];
    Writer writer = {
        .program = program,
        .own = own,
        .spans = times->spans,
        .stream = stream,
        .rank = rank,
        .mesh = mesh,
        .member = member,
        .step = step,
        .first_step = first_step,
        .posted = arena_array(&tables, slots, sizeof *writer.posted),
        .unread = arena_array(&tables, slots, sizeof *writer.unread),
        .made = arena_array(&tables, slots, sizeof *writer.made),
        .sums = arena_array(&tables, own->chunk_count, sizeof *writer.sums),
        .updates = arena_array(&tables, own->chunk_count, sizeof *writer.updates),
        .versions = arena_array(&tables, own->slots[SLOT_WEIGHTS], sizeof *writer.versions),
    };
    const bool good = writer.posted && writer.unread && writer.made && writer.sums && writer.updates && writer.versions;
    if (good) {
        put_step(&writer);
        put_flights(&writer, times);
    }
    arena_free(&tables);
    return good;
}

void trace_begin(const Program *program, const TraceFacts *facts, FILE *stream)
{
    fputs("{\"displayTimeUnit\":\"ns\",\"otherData\":{\"schedule\":", stream);
    json_put_text(program->schedule, strlen(program->schedule), stream);
    fputs(",\"source\":", stream);
    json_put_text(program->source, strlen(program->source), stream);
    fprintf(stream, ",\"ranks\":%u,", program->rank_count);
    if (facts->replicas > 1)
        fprintf(stream, "\"replicas\":%d,", facts->replicas);
    if (facts->reference)
        fputs("\"reference\":true,", stream);
    fprintf(stream, "\"stages\":%u,\"microbatches\":[", program->stages);
    for (uint32_t p = 0; p < program->pipe_count; p++)
        fprintf(stream, "%s%u", p ? "," : "", program->pipes[p].microbatches);
    fprintf(stream, "],\"unit\":%g,\"message_bytes\":%.0f,\"processors\":%u},\n\"traceEvents\":[", facts->unit,
            facts->message_bytes, facts->processors);
}

void trace_member(Mesh mesh, int member, int lanes, FILE *stream)
{
    fprintf(stream,
            "%s\n{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":%d,\"tid\":0,\"args\":{\"name\":\"%s\"}}"
            ",\n{\"name\":\"process_sort_index\",\"ph\":\"M\",\"pid\":%d,\"tid\":0,\"args\":{\"sort_index\":%d}}",
            member ? "," : "", member, mesh_name(mesh, member).text, member, member);
    for (int lane = 0; lane < lanes; lane++)
        fprintf(stream,
                ",\n{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":%d,\"tid\":%d,\"args\":{\"name\":\"%s\"}}"
                ",\n{\"name\":\"thread_sort_index\",\"ph\":\"M\",\"pid\":%d,\"tid\":%d,\"args\":{\"sort_index\":%d}}",
                member, lane, trace_lane_names[lane], member, lane, lane);
}

void trace_end(FILE *stream) { fputs("\n]}\n", stream); }
