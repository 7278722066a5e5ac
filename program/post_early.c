#include "program/operands.h"

#include <string.h>

/* The new positions of a rank's messages. Position p is right after the first p instructions of the old stream.
   Messages (SEND and RECEIVE) are inserted at positions; the other instructions keep their order. */
typedef struct Stream {
    /* [message slot]: the position after the last instruction that names the slot; if that is a SEND or RECEIVE, the
       new position of that message */
    uint32_t *used;
    /* [peer]: the position of the latest SEND to this rank, and of the latest RECEIVE from it */
    uint32_t *sent, *received;
    uint32_t *first, *last; /* [position]: the first and the last message there: 1 + its index in `old`; 0: none */
    /* [index of a message in `old`]: 1 + the index of the next message at the same position; 0: none */
    uint32_t *next;
    Instruction *old;
} Stream;

static void put(Stream *stream, uint32_t message, uint32_t place)
{
    if (stream->last[place])
        stream->next[stream->last[place] - 1] = message + 1;
    else
        stream->first[place] = message + 1;
    stream->last[place] = message + 1;
}

/* Records that an instruction, or a half of one, uses its message slots; `i` is the index of the instruction. For a
   SEND or RECEIVE, also chooses its position. */
static void place_message(Stream *stream, uint32_t i, const Instruction *instruction)
{
    for (const Operand *operand = opcode_table[instruction->opcode].operands; operand->kind; operand++) {
        const uint16_t slot = operand_is_slot(operand) ? instruction->slot[operand->slot] : SLOT_NONE;
        uint32_t place = i + 1;
        if (slot == SLOT_NONE || operand->class != SLOT_MESSAGE)
            continue;
        if (operand->kind == OPERAND_POST_SEND || operand->kind == OPERAND_POST_RECEIVE) {
            uint32_t *before =
                &(operand->kind == OPERAND_POST_SEND ? stream->sent : stream->received)[instruction->peer];
            place = *before = *before > stream->used[slot] ? *before : stream->used[slot];
            put(stream, i, place);
        }
        stream->used[slot] = place;
    }
}

static void place_messages(Stream *stream, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        for (const Instruction *half = &stream->old[i]; half; half = half->second)
            place_message(stream, i, half);
}

static void post_early(RankProgram *rank, uint32_t ranks, Arena *scratch)
{
    const uint32_t count = rank->instruction_count;
    Stream stream = {
        .used = arena_array(scratch, rank->slots[SLOT_MESSAGE], sizeof *stream.used),
        .sent = arena_array(scratch, ranks, sizeof *stream.sent),
        .received = arena_array(scratch, ranks, sizeof *stream.received),
        .first = arena_array(scratch, (size_t)count + 1, sizeof *stream.first),
        .last = arena_array(scratch, (size_t)count + 1, sizeof *stream.last),
        .next = arena_array(scratch, count, sizeof *stream.next),
        .old = arena_array(scratch, count, sizeof *stream.old),
    };
    memcpy(stream.old, rank->instructions, count * sizeof *stream.old);
    place_messages(&stream, count);
    uint32_t next = 0;
    for (uint32_t place = 0; place <= count; place++) {
        if (place > 0 && !opcode_is_post(stream.old[place - 1].opcode))
            rank->numbers[next++] = place - 1;
        for (uint32_t message = stream.first[place]; message; message = stream.next[message - 1])
            rank->numbers[next++] = message - 1;
    }
    for (uint32_t i = 0; i < count; i++)
        rank->instructions[i] = stream.old[rank->numbers[i]];
}

void rank_post_early(RankProgram *rank, uint32_t ranks, Arena *arena)
{
    rank->numbers = arena_array(arena, rank->instruction_count, sizeof *rank->numbers);
    Arena *const scratch = arena_scratch(arena);
    post_early(rank, ranks, scratch);
    arena_free(scratch);
}

void program_post_early(Program *program, Arena *arena)
{
    for (uint32_t r = 0; r < program->rank_count; r++)
        rank_post_early(&program->ranks[r], program->rank_count, arena);
}
