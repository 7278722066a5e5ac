#include "program/program.h"
#include "tests/program/generator.h"
#include "tests/program/replay.h"
#include "tests/test.h"

static void assert_good(const Program *program)
{
    Error error = {""};
    if (program_verify(program, &error) != STATUS_OK) {
        program_disassemble(program, stderr);
        fail_msg("%s", error.text);
    }
    assert_true(replay(program, 1));
}

static Program *forward_only(const Program *program, Arena *arena)
{
    Program *derived = NULL;
    Error error = {""};
    assert_int_equal(program_forward_only(program, arena, &derived, &error), STATUS_OK);
    return derived;
}

static Program *reference(const Program *program, Arena *arena)
{
    Program *derived = NULL;
    Error error = {""};
    assert_int_equal(program_reference(program, 1, 1, arena, &derived, &error), STATUS_OK);
    return derived;
}

static uint32_t count_of(const RankProgram *rank, Opcode opcode)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < rank->instruction_count; i++)
        count += rank->instructions[i].opcode == opcode;
    return count;
}

TEST(derived_programs_verify_and_come_out_right)
{
    uint64_t seed = 21;
    for (int i = 0; i < 300; i++) {
        Arena arena = {0};
        const Program *program = generate(&arena, random_shape(&seed));
        assert_good(forward_only(program, &arena));
        assert_good(reference(program, &arena));
        assert_good(forward_only(reference(program, &arena), &arena));
        assert_good(reference(forward_only(program, &arena), &arena));
        arena_free(&arena);
    }
}

/* In the reference (the program for one rank that runs all stages), every pass of an asynchronous program uses the same
   version of the weights as in the program. */
TEST(an_asynchronous_reference_has_the_same_versions)
{
    uint64_t seed = 8;
    for (int i = 0; i < 200; i++) {
        Arena arena = {0};
        Shape shape = random_shape(&seed);
        shape.update = 1 + random_below(&seed, 3);
        shape.delayed = i % 2;
        const Program *program = generate(&arena, shape);
        const Recurrence many = recurrence(program, &arena), one = recurrence(reference(program, &arena), &arena);
        const size_t passes = (size_t)shape.stages * program->microbatches;
        assert_memory_equal(many.newest, one.newest, shape.stages * sizeof *many.newest);
        assert_memory_equal(many.versions, one.versions, (passes + shape.stages) * sizeof *many.versions);
        for (size_t p = 0; p < passes; p++) {
            assert_int_equal(many.spots[p].y, one.spots[p].y);
            assert_int_equal(many.spots[p].weights, one.spots[p].weights);
        }
        arena_free(&arena);
    }
}

TEST(forward_only_keeps_order_and_lines_and_fewer_slots)
{
    Arena arena = {0};
    const Program *program = generate(&arena, (Shape){.ranks = 4,
                                                      .stages = 4,
                                                      .pipes = 2,
                                                      .microbatches = 9,
                                                      .preference = PREFER_FORWARD,
                                                      .split = 50,
                                                      .seed = 2});
    const Program *forward = forward_only(program, &arena);
    assert_true(forward->forward_only);
    for (uint32_t r = 0; r < 4; r++) {
        const RankProgram *full = &program->ranks[r], *half = &forward->ranks[r];
        uint32_t next = 0;
        for (uint32_t i = 0; i < full->instruction_count; i++) {
            const Instruction *instruction = &full->instructions[i];
            if (!opcode_is_forward(instruction->opcode) && instruction->opcode != OP_SEND_FORWARD &&
                instruction->opcode != OP_RECEIVE_FORWARD)
                continue;
            while (half->instructions[next].opcode == OP_WAIT)
                next++;
            const Instruction *kept = &half->instructions[next++];
            assert_int_equal(kept->opcode,
                             opcode_is_forward(instruction->opcode) ? OP_FORWARD_ONLY : instruction->opcode);
            assert_int_equal(kept->chunk, instruction->chunk);
            assert_int_equal(kept->microbatch, instruction->microbatch);
            assert_int_equal(kept->line, instruction->line);
        }
        assert_int_equal(count_of(half, OP_WAIT), count_of(half, OP_SEND_FORWARD) + count_of(half, OP_RECEIVE_FORWARD));
        assert_true(half->slots[SLOT_MESSAGE] < full->slots[SLOT_MESSAGE]);
        assert_int_equal(half->slots[SLOT_CONTEXT], 1);
        assert_int_equal(half->slots[SLOT_STASH], 1);
        assert_int_equal(half->slots[SLOT_GRADIENT], 0);
        assert_int_equal(half->peak_activations, 0);
    }
    arena_free(&arena);
}

TEST(forward_only_of_forward_only_is_the_same)
{
    uint64_t seed = 4;
    Arena arena = {0};
    const Program *once = forward_only(generate(&arena, random_shape(&seed)), &arena),
                  *twice = forward_only(once, &arena);
    for (uint32_t r = 0; r < once->rank_count; r++) {
        assert_int_equal(once->ranks[r].instruction_count, twice->ranks[r].instruction_count);
        assert_memory_equal(once->ranks[r].slots, twice->ranks[r].slots, sizeof once->ranks[r].slots);
        for (uint32_t i = 0; i < once->ranks[r].instruction_count; i++)
            assert_int_equal(once->ranks[r].instructions[i].opcode, twice->ranks[r].instructions[i].opcode);
    }
    arena_free(&arena);
}

TEST(the_reference_is_one_microbatch_after_the_other)
{
    Arena arena = {0};
    const Program *program =
        generate(&arena, (Shape){.ranks = 2, .stages = 3, .pipes = 2, .microbatches = 2, .split = 100, .seed = 2});
    const Program *one = reference(program, &arena);
    static const char *const texts[] = {
        "F0 m2 x- y2 c0 t0",         "F1 m2 x2 y0 c1 t1",         "F2 m2 x0 y- c2 t2",
        "B2 m2 x0 dx1 c2 t2 dy- g0", "B1 m2 x2 dx0 c1 t1 dy1 g0", "B0 m2 x- dx- c0 t0 dy0 g0",
    };
    assert_int_equal(one->rank_count, 1);
    assert_int_equal(one->ranks[0].slots[SLOT_MESSAGE], 3);
    for (uint32_t i = 0; i < 6; i++) {
        char text[100];
        program_instruction_text(one, 0, &one->ranks[0].instructions[2 * 6 + i], text, sizeof text);
        assert_string_equal(text, texts[i]);
        assert_true(one->ranks[0].instructions[i].line > 0);
    }
    arena_free(&arena);
}

/* Writes to `order` the microbatches of the W and B of a chunk, in the order in which the rank runs them, and returns
   their number. If `copies` is not NULL, only the microbatches that use copy number `copy` of the stage count. */
static uint32_t weight_order(const Program *program, uint32_t rank, uint32_t chunk, const StageCopies *copies,
                             uint32_t copy, uint32_t *order)
{
    const RankProgram *own = &program->ranks[rank];
    uint32_t count = 0;
    for (uint32_t i = 0; i < own->instruction_count; i++) {
        const Instruction *pass = own->instructions[i].second ? own->instructions[i].second : &own->instructions[i];
        const uint32_t number = program->pipes[own->chunks[chunk].pipe].first + pass->microbatch;
        if ((pass->opcode == OP_BACKWARD || pass->opcode == OP_BACKWARD_WEIGHT) && pass->chunk == chunk &&
            (!copies || copies->of[number] == copy))
            order[count++] = number;
    }
    return count;
}

/* The reference (the program for one rank that runs all stages) runs the B or W passes of each copy of a stage in the
   program's order. So the gradient of each copy is the same sum, added up in the same order. */
TEST(a_reference_keeps_the_order_of_every_copys_weight_gradients)
{
    uint64_t seed = 5;
    uint32_t copies = 0, deferred = 0;
    for (int i = 0; i < 300; i++) {
        Arena arena = {0};
        Shape shape = random_shape(&seed);
        const Program *program = generate(&arena, shape), *one = reference(program, &arena);
        uint32_t *many_order = arena_array(&arena, program->microbatches, sizeof *many_order);
        uint32_t *one_order = arena_array(&arena, program->microbatches, sizeof *one_order);
        for (uint32_t r = 0; r < program->rank_count; r++)
            for (uint32_t c = 0; c < program->ranks[r].chunk_count; c++) {
                const uint32_t stage = program->ranks[r].chunks[c].stage;
                const StageCopies *of = one->copies[stage].count ? &one->copies[stage] : NULL;
                uint32_t copy = 0;
                for (uint32_t g = 0; g < program->group_count; g++)
                    for (uint32_t m = 0; m < program->groups[g].member_count; m++)
                        if (program->groups[g].members[m].rank == r && program->groups[g].members[m].chunk == c)
                            copy = m;
                const uint32_t count = weight_order(program, r, c, NULL, 0, many_order);
                assert_int_equal(weight_order(one, 0, stage, of, copy, one_order), count);
                assert_memory_equal(one_order, many_order, count * sizeof *one_order);
                copies += copy;
            }
        deferred += program->asynchronous ? 0 : count_of(&one->ranks[0], OP_BACKWARD_WEIGHT);
        arena_free(&arena);
    }
    assert_true(copies > 0 && deferred > 0);
}

TEST(a_reference_of_too_many_stages_is_refused)
{
    Arena arena = {0};
    Program *derived = NULL;
    Error error = {""};
    for (uint32_t stages = PROGRAM_CHUNKS_MAX; stages <= PROGRAM_CHUNKS_MAX + 1; stages++) {
        const Program *program =
            generate(&arena, (Shape){.ranks = 4, .stages = stages, .pipes = 1, .microbatches = 2, .seed = 2});
        if (stages == PROGRAM_CHUNKS_MAX) {
            assert_good(reference(program, &arena));
        } else {
            assert_int_equal(program_reference(program, 1, 1, &arena, &derived, &error), STATUS_BAD_INPUT);
            assert_non_null(strstr(error.text, "256 stages"));
        }
    }
    arena_free(&arena);
}

int main(void) { return test_program("derive", NULL, NULL); }
