/* Programs rewritten for transports that do not block: the step is the same, messages are posted no later than before,
   and no other instruction has moved. */

#include "tests/program/replay.h"
#include "tests/test.h"

static bool is_message(const Instruction *instruction)
{
    return instruction->opcode == OP_SEND_FORWARD || instruction->opcode == OP_RECEIVE_FORWARD ||
           instruction->opcode == OP_SEND_BACKWARD || instruction->opcode == OP_RECEIVE_BACKWARD;
}

/* Checks that every instruction is there once, that instructions other than messages keep their order, and that no
   message comes after more of these than before. Returns how many messages have moved. */
static uint32_t check_rank(const RankProgram *before, const RankProgram *after)
{
    bool *seen = calloc(before->instruction_count, sizeof *seen);
    uint32_t last = 0, moved = 0, messages_before = 0;
    assert_int_equal(before->instruction_count, after->instruction_count);
    for (uint32_t i = 0; i < after->instruction_count; i++) {
        const uint32_t number = after->numbers[i];
        assert_in_range(number, 0, before->instruction_count - 1);
        assert_false(seen[number]);
        seen[number] = true;
        assert_true(same_instruction(&after->instructions[i], &before->instructions[number]));
        if (is_message(&after->instructions[i])) {
            /* at most as many instructions other than messages precede a message as in the original program */
            uint32_t others = 0;
            for (uint32_t k = 0; k < number; k++)
                others += !is_message(&before->instructions[k]);
            assert_true(i - messages_before <= others);
            moved += i - messages_before < others;
            messages_before++;
        } else {
            assert_true(number >= last);
            last = number;
        }
    }
    free(seen);
    return moved;
}

static Program *copy_of(const Program *program, Arena *arena)
{
    ByteWriter writer = {0};
    Program *copied = NULL;
    Error error = {""};
    assert_true(program_encode(program, &writer));
    assert_int_equal(program_decode(writer.bytes, writer.size, arena, &copied, &error), STATUS_OK);
    bytes_free(&writer);
    return copied;
}

TEST(the_step_stays_the_same)
{
    uint32_t moved = 0;
    uint64_t seed = 33;
    for (int i = 0; i < 150; i++) {
        Arena arena = {0};
        Program *program = generate(&arena, random_shape(&seed));
        Error error = {""};
        if (i % 3 == 0)
            assert_int_equal(program_forward_only(program, &arena, &program, &error), STATUS_OK);
        assert_int_equal(program_verify(program, &error), STATUS_OK);
        Program *early = copy_of(program, &arena);
        program_post_early(early, &arena);
        for (uint32_t r = 0; r < program->rank_count; r++)
            moved += check_rank(&program->ranks[r], &early->ranks[r]);
        for (uint64_t turns = 0; turns < 5; turns++)
            assert_true(replay(early, turns));
        arena_free(&arena);
    }
    assert_true(moved > 500);
}

/* In a program for blocking transports, a send comes where its receiver is ready, perhaps late. Here it is posted after
   its pass, with only messages between the two. */
TEST(a_send_follows_its_pass)
{
    Arena arena = {0};
    Program *program = generate(&arena, (Shape){.ranks = 2, .stages = 2, .pipes = 1, .microbatches = 4, .seed = 3});
    program_post_early(program, &arena);
    const RankProgram *first = &program->ranks[0];
    for (uint32_t i = 0; i < first->instruction_count; i++)
        if (first->instructions[i].opcode == OP_SEND_FORWARD) {
            uint32_t before = i;
            while (is_message(&first->instructions[before]))
                before--;
            assert_int_equal(first->instructions[before].opcode, OP_FORWARD);
            assert_int_equal(first->instructions[before].microbatch, first->instructions[i].microbatch);
        }
    arena_free(&arena);
}

int main(void) { return test_program("post_early", NULL, NULL); }
