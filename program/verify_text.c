#include "program/verify.h"

#include <stdarg.h>
#include <string.h>

/* This file writes the messages with which the verifier refuses a program. */

int verifier_place_text(const Program *program, uint32_t rank, uint32_t index, char *text, size_t size)
{
    const Instruction *instruction = &program->ranks[rank].instructions[index];
    char words[VERIFIER_TEXT], line[16] = "";
    program_instruction_text(program, rank, instruction, words, sizeof words);
    if (instruction->line)
        snprintf(line, sizeof line, ":%u", instruction->line);
    return snprintf(text, size, "rank %u, instruction %u `%s` (%.200s%s)", rank, index, words, program->source, line);
}

Status verifier_refuse(const Verifier *verifier, uint32_t rank, const char *format, ...)
{
    char place[2 * VERIFIER_TEXT + 200], words[sizeof verifier->error->text];
    verifier_place_text(verifier->program, rank, verifier->ranks[rank].next, place, sizeof place);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(words, sizeof words, format, arguments);
    va_end(arguments);
    return error_set(verifier->error, STATUS_BAD_INPUT, "%s: %.600s", place, words);
}

const char *verifier_word_text(const Verifier *verifier, uint64_t word, char text[static VERIFIER_TEXT])
{
    static const char *const kinds[] = {[LABEL_ACTIVATION] = "the activation made by",
                                        [LABEL_DERIVATIVE] = "the gradient made by",
                                        [LABEL_CONTEXT] = "the context of",
                                        [LABEL_STASH] = "the stash of",
                                        [LABEL_GRADIENT] = "what W needs of the I of"};
    if (word <= SLOT_FREE)
        return strcpy(text, "nothing");
    const uint64_t state = word & SLOT_STATE;
    const uint32_t pipe = word >> LABEL_PIPE_SHIFT & 0x3f;
    char of_pipe[16] = "";
    if (verifier->program->pipe_count > 1)
        snprintf(of_pipe, sizeof of_pipe, "pipe %u ", pipe);
    snprintf(text, VERIFIER_TEXT, "%s%s %sstage %u microbatch %u",
             state == SLOT_SENDING     ? "in flight "
             : state == SLOT_RECEIVING ? "not yet received "
                                       : "",
             kinds[word >> LABEL_KIND_SHIFT & 7], of_pipe, (unsigned)(word >> LABEL_STAGE_SHIFT & 0xffff),
             (unsigned)(word & ((1 << LABEL_STAGE_SHIFT) - 1)));
    return text;
}
