#include "program/operands.h"

#include "base/counted.h"

/* The text of an instruction, for example of an F and of an F&B:

     F1 m3 x2 y- c0 t4
     F1 m3 x2 y- c0 t4 & B0 m1 x1 dx3 c1 t2 dy5 g0

   It begins with the opcode's text and, if the rank holds several chunks, the number of the chunk. The other operands
   follow in the order of the table (opcodes.def): m microbatch, r the other rank, n a count, after= components whose
   weight gradients are put off. A slot is its letters and its number, or - for none:

     x INPUT   y OUTPUT   dx DINPUT   dy DOUTPUT   c CONTEXT   t STASH   g GRADIENT   w WEIGHTS

   The slot of a WAIT is s: it may hold any message. x, y, dx, dy and s number the same slots, those of messages. A rank
   that keeps one version of each chunk's weights leaves w out.

   A listing has a few lines about the program, with its recipes if it has any. For each rank it has a line about the
   chunks, a line about the slots, and a line for each instruction: index, text, source line. The second half of an F&B
   or F&F has its own line, which begins with &. */

enum { TEXT_SIZE = 160, TEXT_COLUMN = 36 };

/* Writes " after=attention,mlp"; nothing if there are no components. */
static int put_components(uint16_t components, char *text, size_t size)
{
    int length = 0;
    for (int c = 0; c < RECIPE_COMPONENTS; c++)
        if (components >> c & 1) {
            const size_t used = (size_t)length < size ? (size_t)length : size;
            length += snprintf(text + used, size - used, "%s%s", length ? "," : " after=", part_names[c]);
        }
    return length;
}

static int put_operand(const RankProgram *rank, const Instruction *instruction, const Operand *operand, char *text,
                       size_t size)
{
    switch ((OperandKind)operand->kind) {
    case OPERAND_CHUNK: return rank->chunk_count > 1 ? snprintf(text, size, "%u", instruction->chunk) : 0;
    case OPERAND_MICROBATCH: return snprintf(text, size, " m%u", instruction->microbatch);
    case OPERAND_COUNT: return snprintf(text, size, " n%u", instruction->microbatch);
    case OPERAND_PEER: return snprintf(text, size, " r%u", instruction->peer);
    case OPERAND_PUT_OFF: return put_components(instruction->put_off, text, size);
    default: break;
    }
    const uint16_t slot = instruction->slot[operand->slot];
    if (operand->class == SLOT_WEIGHTS && rank->slots[SLOT_WEIGHTS] <= rank->chunk_count && slot == instruction->chunk)
        return 0;
    if (slot == SLOT_NONE)
        return snprintf(text, size, " %s-", operand_letters(operand));
    return snprintf(text, size, " %s%u", operand_letters(operand), slot);
}

static int half_text(const RankProgram *rank, const Instruction *half, char *text, size_t size)
{
    if (half->opcode >= OPCODE_COUNT)
        return snprintf(text, size, "opcode %u", half->opcode);
    const OpcodeInfo *info = &opcode_table[half->opcode];
    int length = snprintf(text, size, "%s", info->text);
    for (const Operand *operand = info->operands; operand->kind; operand++) {
        const size_t used = (size_t)length < size ? (size_t)length : size;
        length += put_operand(rank, half, operand, text + used, size - used);
    }
    return length;
}

int program_instruction_text(const Program *program, uint32_t rank, const Instruction *instruction, char *text,
                             size_t size)
{
    const RankProgram *own = &program->ranks[rank];
    int length = half_text(own, instruction, text, size);
    for (const Instruction *half = instruction->second; half; half = half->second) {
        size_t used = (size_t)length < size ? (size_t)length : size;
        length += snprintf(text + used, size - used, " & ");
        used = (size_t)length < size ? (size_t)length : size;
        length += half_text(own, half, text + used, size - used);
    }
    return length;
}

static void disassemble_rank(const Program *program, uint32_t r, FILE *stream)
{
    const RankProgram *rank = &program->ranks[r];
    fprintf(stream, "\nrank %u:", r);
    for (uint32_t c = 0; c < rank->chunk_count; c++) {
        fprintf(stream, "%s chunk %u = stage %u", c ? "," : "", c, rank->chunks[c].stage);
        if (program->pipe_count > 1)
            fprintf(stream, " of pipe %u", rank->chunks[c].pipe);
    }
    fprintf(stream, "\n  slots:");
    for (int class = 0; class < SLOT_CLASSES; class ++)
        fprintf(stream, "%s %u %s", class ? "," : "", rank->slots[class], slot_class_names[class]);
    fprintf(stream, "; at most %s held\n", counted(rank->peak_activations, "activation").text);
    for (uint32_t i = 0; i < rank->instruction_count; i++) {
        char number[16];
        snprintf(number, sizeof number, "%u", i);
        for (const Instruction *half = &rank->instructions[i]; half; half = half->second) {
            char text[TEXT_SIZE];
            half_text(rank, half, text, sizeof text);
            fprintf(stream, "%6s  ", half == &rank->instructions[i] ? number : "&");
            if (half->line)
                fprintf(stream, "%-*s ; line %u\n", TEXT_COLUMN, text, half->line);
            else
                fprintf(stream, "%s\n", text);
        }
    }
}

/* Each line of a recipe begins with the F&Bs or F&Fs that have this recipe, such as F0&B1. */
static void put_recipes(const Recipes *recipes, FILE *stream)
{
    for (uint32_t i = 0; i <= recipes->count; i++) {
        const Recipe *recipe = i < recipes->count ? &recipes->own[i].recipe : recipes->common;
        char pairs[20], before[24];
        recipes_pair_text(recipes, i, pairs, sizeof pairs);
        snprintf(before, sizeof before, "%s ", pairs);
        if (recipe)
            recipe_put(recipe, before, "", stream);
    }
}

void program_disassemble(const Program *program, FILE *stream)
{
    fprintf(stream, "schedule %s from %s%s: %s, %s, %s\n", program->schedule, program->source,
            program->forward_only   ? ", forward only"
            : program->asynchronous ? ", asynchronous"
                                    : "",
            counted(program->rank_count, "rank").text, counted(program->stages, "stage").text,
            counted(program->microbatches, "microbatch").text);
    for (uint32_t p = 0; p < program->pipe_count; p++) {
        const Pipe *pipe = &program->pipes[p];
        fprintf(stream, "pipe %u: %s from %u on\n", p, counted(pipe->microbatches, "microbatch").text, pipe->first);
        for (uint32_t m = 0; pipe->versions && m < pipe->microbatches; m++)
            fprintf(stream, "%s%u%s", m ? " " : "  on versions ", pipe->versions[m],
                    m + 1 < pipe->microbatches ? "" : "\n");
    }
    put_recipes(&program->recipes, stream);
    for (uint32_t g = 0; g < program->group_count; g++) {
        const Group *group = &program->groups[g];
        fprintf(stream, "group %u: stage %u =", g, group->stage);
        for (uint32_t m = 0; m < group->member_count; m++)
            fprintf(stream, "%s rank %u chunk %u", m ? "," : "", group->members[m].rank, group->members[m].chunk);
        fprintf(stream, "\n");
    }
    for (uint32_t r = 0; r < program->rank_count; r++)
        disassemble_rank(program, r, stream);
}
