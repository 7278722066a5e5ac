#include "program/operands.h"

#include <string.h>

/* Reads prog.bin. encode.c writes it, and describes the format. Every count is checked against the remaining bytes
   before anything is allocated for it. */

enum {
    /* The smallest number of bytes that a pipe, a version and so on take in the file. */
    PIPE_BYTES = 3,
    VERSION_BYTES = 1,
    RECIPE_BYTES = 7,
    GROUP_BYTES = 2,
    MEMBER_BYTES = 2,
    RANK_BYTES = 1 + SLOT_CLASSES + 2,
    CHUNK_BYTES = 2,
    INSTRUCTION_BYTES = 2,
};

typedef struct Decoder {
    const uint8_t *bytes;
    ByteReader reader;
    Arena *arena;
    Error *error;
} Decoder;

static size_t remaining(const Decoder *decoder) { return (size_t)(decoder->reader.end - decoder->reader.next); }

static Status damaged(const Decoder *decoder, const char *what)
{
    return error_set(decoder->error, STATUS_BAD_INPUT,
                     "the program is damaged: %s (byte %zu); compile the schedule again", what,
                     (size_t)(decoder->reader.next - decoder->bytes));
}

static inline uint32_t get_up_to(ByteReader *reader, uint32_t limit)
{
    if (reader->next < reader->end && *reader->next < 0x80 && *reader->next <= limit && !reader->failed)
        return *reader->next++;
    return (uint32_t)bytes_get_varint_up_to(reader, limit);
}

/* Reads a count of items that take at least `bytes` bytes each. Fails if it exceeds `limit`, or if the remaining bytes
   cannot hold so many items. */
static uint32_t get_count(Decoder *decoder, uint32_t limit, size_t bytes)
{
    const uint32_t count = get_up_to(&decoder->reader, limit);
    if (count > remaining(decoder) / bytes) {
        decoder->reader.failed = true;
        return 0;
    }
    return count;
}

static Status get_text(Decoder *decoder, char **text)
{
    const uint64_t length = bytes_get_varint_up_to(&decoder->reader, remaining(decoder));
    if (decoder->reader.failed || length > remaining(decoder) || memchr(decoder->reader.next, 0, (size_t)length))
        return damaged(decoder, "a name is cut off or contains a zero byte");
    *text = arena_text(decoder->arena, (const char *)decoder->reader.next, (size_t)length);
    decoder->reader.next += length;
    return STATUS_OK;
}

static inline void get_instruction(ByteReader *reader, Instruction *instruction, uint32_t *line)
{
    const uint8_t opcode = bytes_get_u8(reader);
    if (opcode >= OPCODE_COUNT) {
        reader->failed = true;
        return;
    }
    *instruction = instruction_blank(opcode, 0);
    for (const Operand *operand = opcode_table[opcode].operands; operand->kind; operand++) {
        switch ((OperandKind)operand->kind) {
        case OPERAND_CHUNK: instruction->chunk = (uint8_t)get_up_to(reader, PROGRAM_CHUNKS_MAX - 1); break;
        case OPERAND_MICROBATCH: instruction->microbatch = get_up_to(reader, PROGRAM_MICROBATCHES_MAX - 1); break;
        case OPERAND_COUNT: instruction->microbatch = get_up_to(reader, PROGRAM_MICROBATCHES_MAX); break;
        case OPERAND_PEER: instruction->peer = (uint16_t)get_up_to(reader, PROGRAM_RANKS_MAX - 1); break;
        case OPERAND_PUT_OFF: instruction->put_off = (uint16_t)get_up_to(reader, (1u << RECIPE_COMPONENTS) - 1); break;
        default: instruction->slot[operand->slot] = (uint16_t)(get_up_to(reader, PROGRAM_SLOTS_MAX) - 1); break;
        }
    }
    const uint64_t delta =
        reader->next < reader->end && *reader->next < 0x80 ? *reader->next++ : bytes_get_varint(reader);
    if (delta > 2 * (uint64_t)UINT32_MAX) {
        reader->failed = true;
        return;
    }
    const int64_t next = *line + (delta & 1 ? -(int64_t)(delta / 2) - 1 : (int64_t)(delta / 2));
    if (next < 0 || next > UINT32_MAX)
        reader->failed = true;
    instruction->line = *line = (uint32_t)next;
}

static Status get_pipes(Decoder *decoder, Program *program)
{
    ByteReader *reader = &decoder->reader;
    program->pipe_count = get_count(decoder, PROGRAM_PIPES_MAX, PIPE_BYTES);
    program->pipes = arena_array(decoder->arena, program->pipe_count, sizeof *program->pipes);
    for (uint32_t p = 0; p < program->pipe_count; p++) {
        Pipe *pipe = &program->pipes[p];
        pipe->microbatches = get_up_to(reader, PROGRAM_MICROBATCHES_MAX);
        pipe->first = get_up_to(reader, PROGRAM_MICROBATCHES_MAX);
        if (!get_up_to(reader, 1))
            continue;
        if (pipe->microbatches > remaining(decoder) / VERSION_BYTES)
            return damaged(decoder, "the versions of a pipe are cut off");
        pipe->versions = arena_array(decoder->arena, pipe->microbatches, sizeof *pipe->versions);
        for (uint32_t m = 0; m < pipe->microbatches; m++)
            pipe->versions[m] = get_up_to(reader, PROGRAM_MICROBATCHES_MAX);
    }
    return reader->failed ? damaged(decoder, "its pipes cannot be read") : STATUS_OK;
}

static void get_recipe(ByteReader *reader, bool forward_only, Recipe *recipe)
{
    const uint32_t first = forward_only ? RECIPE_FIRST : RECIPE_F;
    const uint32_t end = forward_only ? RECIPE_HALVES : RECIPE_PASSES;
    recipe->whole = (uint16_t)get_up_to(reader, RECIPE_SHARE_MAX);
    recipe->share = (uint16_t)get_up_to(reader, RECIPE_SHARE_MAX);
    for (int s = 0; s < RECIPE_LISTS; s++) {
        recipe->counts[s] = (uint8_t)get_up_to(reader, RECIPE_ENTRIES);
        for (uint32_t i = 0; i < recipe->counts[s]; i++) {
            const uint32_t entry = get_up_to(reader, (uint32_t)RECIPE_NAMES * RECIPE_PASSES - 1);
            const uint32_t pass = first + entry % RECIPE_PASSES;
            reader->failed = reader->failed || pass >= end;
            recipe->entries[s][i] = (RecipeEntry){(uint8_t)(entry / RECIPE_PASSES), (uint8_t)pass};
        }
    }
}

static Status get_recipes(Decoder *decoder, Program *program)
{
    ByteReader *reader = &decoder->reader;
    Recipes *recipes = &program->recipes;
    const uint32_t count = get_count(decoder, RECIPES_MAX + 1, RECIPE_BYTES);
    recipes->own = arena_array(decoder->arena, count, sizeof *recipes->own);
    for (uint32_t i = 0; i < count && !reader->failed; i++) {
        ChunkRecipe *own = &recipes->own[i];
        const uint32_t first = get_up_to(reader, PROGRAM_CHUNKS_MAX), second = get_up_to(reader, PROGRAM_CHUNKS_MAX);
        own->first = (uint8_t)(first - 1);
        own->second = (uint8_t)(second - 1);
        get_recipe(reader, program->forward_only, &own->recipe);
        if (first && second)
            recipes->count++;
        else if (first || second || i + 1 < count)
            reader->failed = true;
        else
            recipes->common = &own->recipe;
    }
    reader->failed = reader->failed || recipes->count > RECIPES_MAX;
    return reader->failed ? damaged(decoder, "its recipes cannot be read") : STATUS_OK;
}

static Status get_groups(Decoder *decoder, Program *program)
{
    ByteReader *reader = &decoder->reader;
    program->group_count = get_count(decoder, PROGRAM_STAGES_MAX, GROUP_BYTES);
    program->groups = arena_array(decoder->arena, program->group_count, sizeof *program->groups);
    for (uint32_t g = 0; g < program->group_count && !reader->failed; g++) {
        Group *group = &program->groups[g];
        group->stage = (uint16_t)get_up_to(reader, PROGRAM_STAGES_MAX - 1);
        group->member_count = (uint16_t)get_count(decoder, PROGRAM_RANKS_MAX, MEMBER_BYTES);
        group->members = arena_array(decoder->arena, group->member_count, sizeof *group->members);
        for (uint32_t m = 0; m < group->member_count; m++) {
            group->members[m].rank = (uint16_t)get_up_to(reader, PROGRAM_RANKS_MAX - 1);
            group->members[m].chunk = (uint8_t)get_up_to(reader, PROGRAM_CHUNKS_MAX - 1);
        }
    }
    return reader->failed ? damaged(decoder, "its groups cannot be read") : STATUS_OK;
}

static Status get_rank(Decoder *decoder, RankProgram *rank)
{
    ByteReader *reader = &decoder->reader;
    rank->chunk_count = get_count(decoder, PROGRAM_CHUNKS_MAX, CHUNK_BYTES);
    rank->chunks = arena_array(decoder->arena, rank->chunk_count, sizeof *rank->chunks);
    for (uint32_t c = 0; c < rank->chunk_count; c++) {
        rank->chunks[c].pipe = (uint16_t)get_up_to(reader, PROGRAM_PIPES_MAX - 1);
        rank->chunks[c].stage = (uint16_t)get_up_to(reader, PROGRAM_STAGES_MAX - 1);
    }
    for (int class = 0; class < SLOT_CLASSES; class ++)
        rank->slots[class] = get_up_to(reader, PROGRAM_SLOTS_MAX);
    rank->peak_activations = get_up_to(reader, UINT32_MAX);
    rank->instruction_count = get_count(decoder, UINT32_MAX, INSTRUCTION_BYTES);
    if (reader->failed)
        return damaged(decoder, "a rank's chunks or counts cannot be read");
    rank->instructions = arena_array(decoder->arena, rank->instruction_count, sizeof *rank->instructions);
    uint32_t line = 0;
    for (uint32_t i = 0; i < rank->instruction_count; i++) {
        Instruction *instruction = &rank->instructions[i];
        get_instruction(reader, instruction, &line);
        if (!reader->failed && opcode_is_pair(instruction->opcode)) {
            instruction->second = arena_allocate(decoder->arena, sizeof *instruction->second);
            get_instruction(reader, instruction->second, &line);
            reader->failed |= opcode_is_pair(instruction->second->opcode);
        }
        if (reader->failed)
            return damaged(decoder, "an instruction cannot be read");
    }
    return STATUS_OK;
}

static Status get_program(Decoder *decoder, Program *program)
{
    ByteReader *reader = &decoder->reader;
    TRY(get_text(decoder, &program->schedule));
    TRY(get_text(decoder, &program->source));
    const uint32_t mode = get_up_to(reader, 2);
    program->forward_only = mode & 1;
    program->asynchronous = mode >> 1;
    program->stages = get_up_to(reader, PROGRAM_STAGES_MAX);
    program->microbatches = get_up_to(reader, PROGRAM_MICROBATCHES_MAX);
    TRY(get_pipes(decoder, program));
    TRY(get_recipes(decoder, program));
    TRY(get_groups(decoder, program));
    program->rank_count = get_count(decoder, PROGRAM_RANKS_MAX, RANK_BYTES);
    program->ranks = arena_array(decoder->arena, program->rank_count, sizeof *program->ranks);
    for (uint32_t r = 0; r < program->rank_count; r++)
        TRY(get_rank(decoder, &program->ranks[r]));
    if (reader->failed)
        return damaged(decoder, "its ranks cannot be read");
    return reader->next == reader->end ? STATUS_OK : damaged(decoder, "something follows its end");
}

Status program_decode(const uint8_t *bytes, size_t size, Arena *arena, Program **decoded, Error *error)
{
    enum { CHECKSUM_SIZE = 4, FRAME_SIZE = PROGRAM_MAGIC_SIZE + 4 + CHECKSUM_SIZE };
    if (size < PROGRAM_MAGIC_SIZE || memcmp(bytes, PROGRAM_MAGIC, PROGRAM_MAGIC_SIZE) != 0)
        return error_set(error, STATUS_BAD_INPUT, "not a dpc program: dpc compiles one from a schedule (.dps or .csv)");
    if (size < FRAME_SIZE)
        return error_set(error, STATUS_BAD_INPUT, "the program is cut off after %zu bytes; compile the schedule again",
                         size);
    Decoder decoder = {bytes, {bytes + PROGRAM_MAGIC_SIZE, bytes + size - CHECKSUM_SIZE, false}, arena, error};
    const uint32_t version = bytes_get_u32(&decoder.reader);
    if (version != PROGRAM_VERSION)
        return error_set(error, STATUS_BAD_INPUT,
                         "made by another version of dpc: format %u, but this version reads %d; compile the schedule "
                         "with dpc of this version",
                         version, PROGRAM_VERSION);
    ByteReader checksum = {bytes + size - CHECKSUM_SIZE, bytes + size, false};
    if (bytes_get_u32(&checksum) != bytes_checksum(bytes, size - CHECKSUM_SIZE))
        return error_set(error, STATUS_BAD_INPUT,
                         "the program's checksum is wrong: it is incomplete, or was changed after dpc wrote it; "
                         "compile the schedule again");
    Program *program = arena_allocate(arena, sizeof *program);
    TRY(get_program(&decoder, program));
    *decoded = program;
    return STATUS_OK;
}
