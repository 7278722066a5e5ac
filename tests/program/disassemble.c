#include "program/operands.h"
#include "tests/program/generator.h"
#include "tests/test.h"

static Instruction second_half = {.opcode = OP_BACKWARD, .microbatch = 1, .slot = {1, 3, 1, 2, 5, 0, 0}};

TEST(instructions_have_one_text)
{
    RankProgram ranks[] = {{.chunk_count = 2, .slots = {[SLOT_WEIGHTS] = 2}},
                           {.chunk_count = 1, .slots = {[SLOT_WEIGHTS] = 1}},
                           {.chunk_count = 1, .slots = {[SLOT_WEIGHTS] = 3}}};
    const Program program = {.ranks = ranks, .rank_count = 3};
    static const struct {
        uint32_t rank;
        Instruction instruction;
        const char *text;
    } cases[] = {
        {0,
         {.opcode = OP_FORWARD, .chunk = 1, .microbatch = 3, .slot = {2, SLOT_NONE, 0, 4, 0, 0, 1}},
         "F1 m3 x2 y- c0 t4"},
        {1, {.opcode = OP_FORWARD, .microbatch = 3, .slot = {2, SLOT_NONE, 0, 4}}, "F m3 x2 y- c0 t4"},
        {0,
         {.opcode = OP_FORWARD_ONLY, .chunk = 1, .microbatch = 3, .slot = {2, 1, 0, 4, 0, 0, 1}},
         "FO1 m3 x2 y1 c0 t4"},
        {0, {.opcode = OP_BACKWARD, .microbatch = 70000, .slot = {1, 2, 3, 4, 5, 6}}, "B0 m70000 x1 dx2 c3 t4 dy5 g6"},
        {1, {.opcode = OP_BACKWARD_INPUT, .slot = {1, 2, 3, 4, 5, 6}}, "I m0 x1 dx2 c3 t4 dy5 g6"},
        {1, {.opcode = OP_BACKWARD_WEIGHT, .slot = {1, 2, 3, 4, 5, 6}}, "W m0 x1 t4 dy5 g6"},
        /* w is left out if the rank keeps one version per chunk and the slot is the chunk's own */
        {0, {.opcode = OP_FORWARD, .chunk = 1, .slot = {2, 1, 0, 4, 0, 0, 0}}, "F1 m0 x2 y1 c0 t4 w0"},
        {2, {.opcode = OP_FORWARD, .microbatch = 3, .slot = {2, SLOT_NONE, 0, 4, 0, 0, 2}}, "F m3 x2 y- c0 t4 w2"},
        {2, {.opcode = OP_ASYNC_UPDATE, .microbatch = 8, .slot = {2, 0}}, "U n8 w2 w0"},
        {0, {.opcode = OP_ASYNC_UPDATE, .chunk = 1, .microbatch = 8, .slot = {1, 1}}, "U1 n8"},
        {0,
         {.opcode = OP_OVERLAP, .chunk = 1, .microbatch = 3, .slot = {2, 7, 0, 4, 0, 0, 1}, .second = &second_half},
         "F1 m3 x2 y7 c0 t4 & B0 m1 x1 dx3 c1 t2 dy5 g0"},
        {0, {.opcode = OP_SEND_FORWARD, .chunk = 1, .microbatch = 2, .peer = 5, .slot = {7}}, "SEND_F1 m2 r5 y7"},
        {1, {.opcode = OP_RECEIVE_FORWARD, .microbatch = 2, .peer = 5, .slot = {7}}, "RECV_F m2 r5 x7"},
        {1, {.opcode = OP_SEND_BACKWARD, .microbatch = 2, .peer = 5, .slot = {7}}, "SEND_B m2 r5 dx7"},
        {1, {.opcode = OP_RECEIVE_BACKWARD, .microbatch = 2, .peer = 5, .slot = {7}}, "RECV_B m2 r5 dy7"},
        {0, {.opcode = OP_WAIT, .slot = {7}}, "WAIT s7"},
        {0, {.opcode = OP_REDUCE, .chunk = 1}, "REDUCE1"},
        {0, {.opcode = OP_WAIT_REDUCE, .chunk = 1}, "WAIT_REDUCE1"},
        {1, {.opcode = OP_NORM}, "NORM"},
        {0, {.opcode = OP_UPDATE, .chunk = 1}, "UPDATE1"},
        {0, {.opcode = OP_END}, "END"},
        {0, {.opcode = 200}, "opcode 200"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[100], small[6];
        const int length = program_instruction_text(&program, cases[i].rank, &cases[i].instruction, text, sizeof text);
        assert_string_equal(text, cases[i].text);
        assert_int_equal(length, strlen(text));
        assert_int_equal(program_instruction_text(&program, cases[i].rank, &cases[i].instruction, small, sizeof small),
                         length);
        assert_int_equal(strncmp(small, text, sizeof small - 1), 0);
    }
}

static char *listing(const Program *program, char **text)
{
    size_t size;
    FILE *stream = open_memstream(text, &size);
    program_disassemble(program, stream);
    fclose(stream);
    return *text;
}

TEST(a_listing_shows_everything)
{
    Arena arena = {0};
    Program *program = generate(&arena, (Shape){.ranks = 2, .stages = 2, .pipes = 2, .microbatches = 1, .seed = 1});
    for (uint32_t r = 0; r < 2; r++)
        for (uint32_t i = 0; i < program->ranks[r].instruction_count; i++)
            program->ranks[r].instructions[i].line = i < 3 ? 4 + i : 0;
    char *text;
    listing(program, &text);
    static const char *const parts[] = {
        "schedule generated from generated.dps: 2 ranks, 2 stages, 2 microbatches\n",
        "pipe 1: 1 microbatch from 1 on\n",
        "group 1: stage 1 = rank 1 chunk 0, rank 0 chunk 1\n",
        "\nrank 1: chunk 0 = stage 1 of pipe 0, chunk 1 = stage 0 of pipe 1\n  slots: ",
        " message, ",
        "; at most 2 activations held\n     0  ",
        "; line 6\n     3  ",
        "  UPDATE0\n",
        "  END\n",
    };
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (!strstr(text, parts[i]))
            fail_msg("no '%s' in\n%s", parts[i], text);
    free(text);
    arena_free(&arena);
}

TEST(every_opcode_is_described)
{
    char *text;
    size_t size;
    FILE *stream = open_memstream(&text, &size);
    program_describe_opcodes(stream);
    fclose(stream);
    for (int opcode = 0; opcode < OPCODE_COUNT; opcode++) {
        char head[60];
        snprintf(head, sizeof head, "\n%4d  %s", opcode, opcode_table[opcode].text);
        assert_non_null(strstr(text, head));
        assert_non_null(strstr(text, opcode_table[opcode].what));
    }
    assert_non_null(strstr(text, "dy message slot, the gradient of the output, made by the next stage: must hold it, "
                                 "is free afterwards; none at the last stage\n"));
    free(text);
}

/* Checks what users of the opcode table rely on. */
TEST(the_table_is_in_order)
{
    for (int opcode = 0; opcode < OPCODE_COUNT; opcode++) {
        const Operand *operands = opcode_table[opcode].operands;
        bool chunk = false, microbatch = false, slot_seen[SLOT_OPERANDS] = {false};
        int fills[SLOT_CLASSES] = {0}, count = 0;
        for (const Operand *operand = operands; operand->kind; operand++, count++) {
            if (!operand_is_slot(operand)) {
                assert_true(chunk || operand->kind == OPERAND_CHUNK);
                chunk |= operand->kind == OPERAND_CHUNK;
                microbatch |= operand->kind == OPERAND_MICROBATCH;
                continue;
            }
            assert_true(operand->content == CONTENT_NONE || (chunk && microbatch));
            assert_true(operand->slot < SLOT_OPERANDS && !slot_seen[operand->slot]);
            slot_seen[operand->slot] = true;
            fills[operand->class] += operand->kind == OPERAND_FILL || operand->kind == OPERAND_SCRATCH ||
                                     operand->kind == OPERAND_POST_RECEIVE;
        }
        assert_true(count <= OPERANDS_MAX);
        /* an instruction fills, or uses as scratch, at most one slot of a class */
        for (int class = 0; class < SLOT_CLASSES; class ++)
            assert_true(fills[class] <= 1);
    }
}

int main(void) { return test_program("disassemble", NULL, NULL); }
