#include "program/times/trace.h"

#include "base/text.h"

#include <stdlib.h>

enum { NAME_BYTES = 160, PASS_BYTES = 40 };
static const double nanosecond = 0.001; /* in microseconds */

const char *const trace_lane_names[TRACE_LANES_MOST] = {
    "compute", "communication", "waits", "all-to-alls", "all-to-alls of the second half", "components"};

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

/* The letters of the opcode in the compiler's .csv orders; NULL: such an order has no such instruction. */
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
    bool *unread;       /* [message slot]: its last message was received, and no pass has read that message yet */
    TraceSpan *made;    /* [message slot]: the times of the pass that filled the slot */
    uint32_t held;      /* how many activations the rank holds now, each from its F to the end of its B or W */
    TraceSpan *sums;    /* [chunk]: the times of its last REDUCE */
    uint32_t *updates;  /* [chunk]: how many U it has run in this step */
    uint32_t *versions; /* [weights slot]: the version of the weights in this slot */
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

/* Writes the version of the weights that an F, B or I reads, or that a U makes; two versions for an F&B. */
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

/* Writes the name of the instruction: 3F5 for a pass, 3F5&7B2 for an F&B, 3SEND_F5 for a message, 3U1 for a U. With
   several pipes the pipe comes first: p1:3F5. False: other instructions have no such name. */
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

/* Writes the event of instruction i. Its name is that of its pass or message; a WAIT has the name of the message that
   it waits for; other instructions have their text. */
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
    for (const Instruction *half = instruction; half; half = half->second)
        if ((half->opcode == OP_BACKWARD_INPUT || half->opcode == OP_BACKWARD_WEIGHT) && half->put_off)
            fputs(",\"put_off\":1", writer->stream);
    put_version(writer, instruction);
    fputs("}}", writer->stream);
}

/* Writes one end of a message's arrow. A viewer attaches it to the event that covers its time, so the time is the last
   nanosecond of the pass that computes the message, or the first nanosecond of the pass that needs it. Both ends
   compute the arrow's id from the step, the direction, the pass that computes the message, and the replica. */
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

/* Writes the counter of held activations. An F adds one, a B or W removes one; for other passes it writes nothing. */
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

/* For a REDUCE notes its times. For a WAIT_REDUCE writes the interval of the sum of gradients, from the REDUCE to the
   end of the wait, and the time of the wait. Does nothing for a stage that has one copy in all replicas together. */
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

/* The pass of instruction i to which a component or all-to-all belongs. In an F&B, part->pass decides. In an F&F,
   part->half decides; if halves run one after the other (`in_turn`), part->half is 0 in both, so the start of `part`
   decides. */
static const Instruction *pass_of(const Writer *writer, const TracePart *part, uint32_t i, bool in_turn)
{
    const Instruction *instruction = &writer->own->instructions[i];
    const bool second = instruction->opcode == OP_OVERLAP ? part->pass != RECIPE_F
                        : in_turn                         ? part->start >= writer->spans[i].middle
                                                          : part->half;
    return instruction->second && second ? instruction->second : instruction;
}

/* Begins the event of a component or an all-to-all of `pass`, which is instruction i or its second half. The caller
   ends the event. */
static void put_part(const Writer *writer, const TracePart *part, uint32_t i, const Instruction *pass, bool component)
{
    const char direction = part_pass_letters[part->pass];
    char text[PASS_BYTES], of_layer[32] = "", layer[32] = "";
    pass_text(writer, pass, text);
    if (part->layer != NO_LAYER) {
        snprintf(of_layer, sizeof of_layer, " of layer %u", part->layer);
        snprintf(layer, sizeof layer, "\"layer\":%u,", part->layer);
    }
    fprintf(writer->stream,
            ",\n{\"name\":\"%s%s(%c)%s\",\"cat\":\"%s\",\"ph\":\"X\",\"pid\":%d,\"tid\":%d,\"ts\":%.3f,"
            "\"dur\":%.3f,\"args\":{\"step\":%llu,\"instruction\":%u,\"line\":%u,\"pass\":\"%s\",%s"
            "\"component\":\"%s\",\"direction\":\"%c\"",
            part->counts ? "counts for " : "", part_names[part->part], direction, of_layer,
            component ? "component" : "all-to-all", writer->member,
            component ? (int)LANE_COMPONENTS : (int)LANE_ALL_TO_ALLS + part->half, part->start, part->end - part->start,
            (unsigned long long)writer->step, writer->own->numbers ? writer->own->numbers[i] : i,
            writer->own->instructions[i].line, text, layer, part_names[part->part], direction);
}

/* The index of the instruction inside which `part` ran: the last one that had begun when `part` began. The search
   starts at instruction `i`, which had begun by then. */
static uint32_t instruction_of(const Writer *writer, const TracePart *part, uint32_t i)
{
    while (writer->own->instructions[i + 1].opcode != OP_END && writer->spans[i + 1].start <= part->start)
        i++;
    return i;
}

static bool has_second_half(TraceParts parts)
{
    for (size_t k = 0; k < parts.count; k++)
        if (parts.entries[k].half)
            return true;
    return false;
}

static void put_all_to_alls(const Writer *writer, TraceParts all_to_alls, bool in_turn)
{
    uint32_t i = 0;
    for (size_t k = 0; k < all_to_alls.count; k++) {
        const TracePart *part = &all_to_alls.entries[k];
        i = instruction_of(writer, part, i);
        put_part(writer, part, i, pass_of(writer, part, i, in_turn), false);
        fprintf(writer->stream, ",\"waited\":%.3f}}", part->waited);
    }
}

static bool is_same(const TracePart *one, const TracePart *other)
{
    return one->layer == other->layer && one->part == other->part && one->pass == other->pass;
}

/* Writes one event for consecutive spans of the same component, layer and pass in one instruction. */
static void put_components(const Writer *writer, TraceParts components, bool in_turn)
{
    const TracePart *next = components.entries, *end = next + components.count;
    for (uint32_t i = 0; next < end;) {
        TracePart part = *next++;
        i = instruction_of(writer, &part, i);
        const Instruction *pass = pass_of(writer, &part, i, in_turn);
        for (; next < end && is_same(next, &part) && instruction_of(writer, next, i) == i &&
               pass_of(writer, next, i, in_turn) == pass;
             next++)
            part.end = next->end;
        put_part(writer, &part, i, pass, true);
        fputs("}}", writer->stream);
    }
}

static void put_parts(const Writer *writer, const TraceTimes *times)
{
    const bool in_turn = !has_second_half(times->all_to_alls) && !has_second_half(times->components);
    put_all_to_alls(writer, times->all_to_alls, in_turn);
    put_components(writer, times->components, in_turn);
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
        put_parts(&writer, times);
    }
    arena_free(&tables);
    return good;
}

void trace_begin(const Program *program, const TraceFacts *facts, FILE *stream)
{
    json_put_member("{\"displayTimeUnit\":\"ns\",\"otherData\":{\"schedule\":", program->schedule, stream);
    json_put_member(",\"source\":", program->source, stream);
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

/* A viewer sorts lanes by sort_index, then by tid. So the lane of components comes right after that of compute. */
void trace_member(Mesh mesh, int member, unsigned lanes, FILE *stream)
{
    fprintf(stream,
            "%s\n{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":%d,\"tid\":0,\"args\":{\"name\":\"%s\"}}"
            ",\n{\"name\":\"process_sort_index\",\"ph\":\"M\",\"pid\":%d,\"tid\":0,\"args\":{\"sort_index\":%d}}",
            member ? "," : "", member, mesh_name(mesh, member).text, member, member);
    for (int lane = 0; lane < TRACE_LANES_MOST; lane++)
        if (lanes & 1u << lane)
            fprintf(
                stream,
                ",\n{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":%d,\"tid\":%d,\"args\":{\"name\":\"%s\"}}"
                ",\n{\"name\":\"thread_sort_index\",\"ph\":\"M\",\"pid\":%d,\"tid\":%d,\"args\":{\"sort_index\":%d}}",
                member, lane, trace_lane_names[lane], member, lane, lane == LANE_COMPONENTS ? LANE_COMPUTE : lane);
}

void trace_end(FILE *stream) { fputs("\n]}\n", stream); }
