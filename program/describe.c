#include "program/operands.h"

/* This file writes the documentation of prog.bin (dpc --dump=opcodes) from the tables of opcodes and operands. */

static void describe_slot(const Operand *operand, FILE *stream)
{
    static const char *const uses[] = {
        [OPERAND_READ] = "must hold it, goes on holding it",
        [OPERAND_FILL] = "must be free, holds it afterwards",
        [OPERAND_TAKE] = "must hold it, is free afterwards",
        [OPERAND_SCRATCH] = "must be free, is free afterwards",
        [OPERAND_POST_SEND] = "must hold it, in flight until WAIT, which frees it",
        [OPERAND_POST_RECEIVE] = "must be free, in flight until WAIT, which fills it",
        [OPERAND_SETTLE] = "must be in flight, settled afterwards: free if it was sent, full if it was received",
        [OPERAND_VERSION] = "must hold the version that the microbatch uses: F by its pipe, a backward that of its F",
        [OPERAND_NEWEST] = "must hold the newest version",
        [OPERAND_NEXT] =
            "the same or another of the chunk's, with nothing that is needed; holds the next version afterwards",
    };
    const ContentInfo *content = &content_table[operand->content];
    const bool has_content = operand->content != CONTENT_NONE;
    fprintf(stream, "      %-2s %s slot%s%s: %s", operand_letters(operand), slot_class_names[operand->class],
            has_content ? ", " : "", has_content ? content->what : "", uses[operand->kind]);
    if (has_content && content->neighbour && operand->kind < OPERAND_POST_SEND)
        fprintf(stream, "; none at the %s stage", content->neighbour < 0 ? "first" : "last");
    fprintf(stream, "\n");
}

static void describe_opcode(int opcode, FILE *stream)
{
    const OpcodeInfo *info = &opcode_table[opcode];
    fprintf(stream, "\n%4d  %s", opcode, info->text);
    for (const Operand *operand = info->operands; operand->kind; operand++) {
        static const char *const numbers[] = {[OPERAND_CHUNK] = "<chunk>",
                                              [OPERAND_MICROBATCH] = " m<microbatch>",
                                              [OPERAND_PEER] = " r<rank>",
                                              [OPERAND_COUNT] = " n<microbatches>",
                                              [OPERAND_PUT_OFF] = " after=<components>"};
        if (operand_is_slot(operand))
            fprintf(stream, " %s<slot>", operand_letters(operand));
        else
            fprintf(stream, "%s", numbers[operand->kind]);
    }
    fprintf(stream, "\n      %s\n", info->what);
    for (const Operand *operand = info->operands; operand->kind; operand++)
        if (operand_is_slot(operand))
            describe_slot(operand, stream);
}

void program_describe_opcodes(FILE *stream)
{
    fprintf(
        stream,
        "prog.bin, format %d. Numbers are varints: seven bits a byte, the lowest first, in the shortest form.\n"
        "  magic \"DPSPROG\\n\", then the format's number in four bytes, little-endian\n"
        "  schedule, source: length, then the bytes\n"
        "  forward only (1), asynchronous (2) or neither (0), stages, microbatches\n"
        "  pipe count; for each pipe: microbatches, number of the first in the step, whether versions follow (0 or "
        "1), and for each\n"
        "    microbatch the version of the weights that it uses; without, F uses the newest\n"
        "  recipe count; for each recipe: chunk of the first half + 1, chunk of the second half + 1 (0 and 0, only in "
        "the\n"
        "    last recipe: that of all other pairs); of how many multiprocessors comm takes how many (0 of 0: not "
        "said);\n"
        "    for each list (",
        PROGRAM_VERSION);
    for (int s = 0; s < RECIPE_LISTS; s++)
        fprintf(stream, "%s%s", s ? ", " : "", recipe_stream_names[s]);
    fprintf(stream, "):\n"
                    "    entry count; for each entry: 3 * component (");
    for (int c = 0; c < RECIPE_NAMES; c++)
        fprintf(stream, "%s%s", c ? ", " : "", part_names[c]);
    fprintf(stream, ") + pass (F, B, W; in a\n"
                    "    forward-only program the half of the F&F: 0, 1)\n"
                    "  group count; for each group: stage, member count; for each member: rank, chunk\n"
                    "  rank count; for each rank:\n"
                    "    chunk count; for each chunk: pipe, stage\n"
                    "    slots of each class (");
    for (int class = 0; class < SLOT_CLASSES; class ++)
        fprintf(stream, "%s%s", class ? ", " : "", slot_class_names[class]);
    fprintf(
        stream,
        "), most activations held, instruction count\n"
        "    for each instruction: opcode in one byte; its operands in the order below; the source line;\n"
        "      of an F&B or F&F then the same of its second half\n"
        "  CRC-32 of all before it in four bytes, little-endian\n"
        "Components of after= are a number in which bit c is component c. It is not in the text if it is 0.\n"
        "A slot is its number + 1, 0 for none. A line is the difference d to that of the instruction before (0 before\n"
        "the first), as 2d where d >= 0 and as -2d-1 elsewhere; line 0 is no line.\n"
        "In the text of an instruction a rank with one chunk leaves the chunk out, one with one version of each "
        "chunk's weights\n"
        "leaves w out, and - is no slot.\n");
    for (int opcode = 0; opcode < OPCODE_COUNT; opcode++)
        describe_opcode(opcode, stream);
}
