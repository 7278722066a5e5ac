#pragma once

/* Functions that damage programs (find, remove or insert an instruction), and a check of the message of
   program_verify. */

#include "program/program.h"
#include "tests/program/generator.h"
#include "tests/test.h"

static inline void assert_verified(const Program *program)
{
    Error error = {""};
    if (program_verify(program, &error) != STATUS_OK) {
        program_disassemble(program, stderr);
        fail_msg("%s", error.text);
    }
}

/* Checks that program_verify refuses the program, with a message that has every one of `words`, which are separated by
   '|'. */
static inline void assert_refused(const Program *program, const char *words)
{
    Error error = {""};
    assert_int_equal(program_verify(program, &error), STATUS_BAD_INPUT);
    char list[400];
    snprintf(list, sizeof list, "%s", words);
    for (char *next = list, *word; (word = strsep(&next, "|"));)
        if (!strstr(error.text, word))
            fail_msg("'%s' does not say '%s'", error.text, word);
}

static inline Program *two_ranks(Arena *arena)
{
    return generate(arena, (Shape){.ranks = 2,
                                   .stages = 2,
                                   .pipes = 1,
                                   .microbatches = 3,
                                   .preference = PREFER_BACKWARD,
                                   .split = 100,
                                   .seed = 3});
}

static inline Program *bidirectional(Arena *arena)
{
    return generate(arena, (Shape){.ranks = 2,
                                   .stages = 2,
                                   .pipes = 2,
                                   .microbatches = 2,
                                   .preference = PREFER_FORWARD,
                                   .overlap = 100,
                                   .seed = 6});
}

static inline uint32_t find(const Program *program, uint32_t rank, Opcode opcode, uint32_t number)
{
    for (uint32_t i = 0; i < program->ranks[rank].instruction_count; i++)
        if (program->ranks[rank].instructions[i].opcode == opcode && number-- == 0)
            return i;
    fail_msg("rank %u has too few of opcode %d", rank, (int)opcode);
    return 0;
}

static inline Instruction *at(Program *program, uint32_t rank, Opcode opcode, uint32_t number)
{
    return &program->ranks[rank].instructions[find(program, rank, opcode, number)];
}

static inline void drop(Program *program, uint32_t rank, uint32_t i)
{
    RankProgram *stream = &program->ranks[rank];
    Instruction *place = &stream->instructions[i];
    memmove(place, place + 1, (--stream->instruction_count - i) * sizeof *place);
}

static inline void insert(Program *program, uint32_t rank, uint32_t i, Instruction instruction)
{
    RankProgram *stream = &program->ranks[rank];
    Instruction *place = &stream->instructions[i];
    memmove(place + 1, place, (stream->instruction_count++ - i) * sizeof *place);
    *place = instruction;
}

/* A correct program, the damage that makes it wrong, and what the message must say, as for assert_refused. */
typedef struct Fault {
    Program *(*base)(Arena *arena);
    void (*damage)(Program *program);
    const char *words;
} Fault;

static inline void assert_faults_named(const Fault *faults, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        Arena arena = {0};
        const Program *base = faults[i].base(&arena);
        assert_verified(base);
        Program *program = copy_program(&arena, base);
        faults[i].damage(program);
        assert_refused(program, faults[i].words);
        arena_free(&arena);
    }
}
