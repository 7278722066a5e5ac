#include "program/operands.h"

/* The format of prog.bin. decode.c reads it in the same order.

     magic, version u32
     text schedule, text source, forward_only | asynchronous << 1, stages, microbatches
     pipe count, then per pipe: microbatches, first, whether versions follow (0 or 1); the version of each microbatch
     recipe count, then per recipe: chunk of the first half + 1, chunk of the second half + 1 (0 and 0, only in the last
       recipe: the recipe of all other pairs), Recipe.whole, Recipe.share, then per list (compute, comm, after): entry
       count, then per entry: component * 3 + pass; in an F&F component * 3 + half (0 or 1)
     group count, then per group: stage, member count, then per member: rank, chunk
     rank count, then per rank:
       chunk count, then per chunk: pipe, stage
       slots of each class, peak activations, instruction count
       per instruction: opcode (one byte), the operands in the order of the table, the source line; F&B and F&F: then
         the same of its second half
     CRC-32 u32 of all before it

   Numbers are varints. A slot is its number + 1; 0 for none. A source line is the zigzag difference to the line of
   the previous instruction; for the first instruction of a rank, to 0. */

static void put_line(ByteWriter *writer, uint32_t line, uint32_t previous)
{
    const int64_t delta = (int64_t)line - previous;
    bytes_put_varint(writer, delta < 0 ? 2 * (uint64_t)-delta - 1 : 2 * (uint64_t)delta);
}

static void put_instruction(ByteWriter *writer, const Instruction *instruction)
{
    bytes_put_u8(writer, instruction->opcode);
    for (const Operand *operand = opcode_table[instruction->opcode].operands; operand->kind; operand++) {
        switch ((OperandKind)operand->kind) {
        case OPERAND_CHUNK: bytes_put_varint(writer, instruction->chunk); break;
        case OPERAND_COUNT:
        case OPERAND_MICROBATCH: bytes_put_varint(writer, instruction->microbatch); break;
        case OPERAND_PEER: bytes_put_varint(writer, instruction->peer); break;
        case OPERAND_PUT_OFF: bytes_put_varint(writer, instruction->put_off); break;
        default: bytes_put_varint(writer, (instruction->slot[operand->slot] + 1u) & 0xffff); break;
        }
    }
}

static void put_recipe(ByteWriter *writer, uint32_t first, uint32_t second, const Recipe *recipe)
{
    bytes_put_varint(writer, first);
    bytes_put_varint(writer, second);
    bytes_put_varint(writer, recipe->whole);
    bytes_put_varint(writer, recipe->share);
    for (int s = 0; s < RECIPE_LISTS; s++) {
        bytes_put_varint(writer, recipe->counts[s]);
        for (uint32_t i = 0; i < recipe->counts[s]; i++)
            bytes_put_varint(writer, recipe->entries[s][i].component * (uint32_t)RECIPE_PASSES +
                                         recipe->entries[s][i].pass % (uint32_t)RECIPE_FIRST);
    }
}

static void put_recipes(ByteWriter *writer, const Recipes *recipes)
{
    bytes_put_varint(writer, recipes->count + (recipes->common != NULL));
    for (uint32_t i = 0; i < recipes->count; i++)
        put_recipe(writer, recipes->own[i].first + 1u, recipes->own[i].second + 1u, &recipes->own[i].recipe);
    if (recipes->common)
        put_recipe(writer, 0, 0, recipes->common);
}

static void put_rank(ByteWriter *writer, const RankProgram *rank)
{
    bytes_put_varint(writer, rank->chunk_count);
    for (uint32_t c = 0; c < rank->chunk_count; c++) {
        bytes_put_varint(writer, rank->chunks[c].pipe);
        bytes_put_varint(writer, rank->chunks[c].stage);
    }
    for (int class = 0; class < SLOT_CLASSES; class ++)
        bytes_put_varint(writer, rank->slots[class]);
    bytes_put_varint(writer, rank->peak_activations);
    bytes_put_varint(writer, rank->instruction_count);
    uint32_t line = 0;
    for (uint32_t i = 0; i < rank->instruction_count; i++) {
        for (const Instruction *half = &rank->instructions[i]; half; half = half->second) {
            put_instruction(writer, half);
            put_line(writer, half->line, line);
            line = half->line;
        }
    }
}

bool program_encode(const Program *program, ByteWriter *writer)
{
    const size_t start = writer->size;
    for (int i = 0; i < PROGRAM_MAGIC_SIZE; i++)
        bytes_put_u8(writer, (uint8_t)PROGRAM_MAGIC[i]);
    bytes_put_u32(writer, PROGRAM_VERSION);
    bytes_put_text(writer, program->schedule);
    bytes_put_text(writer, program->source);
    bytes_put_u8(writer, (uint8_t)(program->forward_only | program->asynchronous << 1));
    bytes_put_varint(writer, program->stages);
    bytes_put_varint(writer, program->microbatches);
    bytes_put_varint(writer, program->pipe_count);
    for (uint32_t p = 0; p < program->pipe_count; p++) {
        const Pipe *pipe = &program->pipes[p];
        bytes_put_varint(writer, pipe->microbatches);
        bytes_put_varint(writer, pipe->first);
        bytes_put_u8(writer, pipe->versions != NULL);
        for (uint32_t m = 0; pipe->versions && m < pipe->microbatches; m++)
            bytes_put_varint(writer, pipe->versions[m]);
    }
    put_recipes(writer, &program->recipes);
    bytes_put_varint(writer, program->group_count);
    for (uint32_t g = 0; g < program->group_count; g++) {
        const Group *group = &program->groups[g];
        bytes_put_varint(writer, group->stage);
        bytes_put_varint(writer, group->member_count);
        for (uint32_t m = 0; m < group->member_count; m++) {
            bytes_put_varint(writer, group->members[m].rank);
            bytes_put_varint(writer, group->members[m].chunk);
        }
    }
    bytes_put_varint(writer, program->rank_count);
    for (uint32_t r = 0; r < program->rank_count; r++)
        put_rank(writer, &program->ranks[r]);
    if (!writer->failed)
        bytes_put_u32(writer, bytes_checksum(writer->bytes + start, writer->size - start));
    return !writer->failed;
}
