/* Well-formed programs are accepted, and compute the step. After random changes a program is refused, or still computes
   the step. */

#include "program/program.h"
#include "tests/program/damage.h"
#include "tests/program/replay.h"

TEST(generated_programs_verify_and_come_out_right)
{
    uint64_t seed = 11;
    uint32_t put_off = 0;
    for (int i = 0; i < 1000; i++) {
        Arena arena = {0};
        const Program *program = generate(&arena, random_shape(&seed));
        assert_verified(program);
        assert_true(replay(program, seed));
        for (uint32_t r = 0; r < program->rank_count; r++)
            for (uint32_t n = 0; n < program->ranks[r].instruction_count; n++)
                put_off += program->ranks[r].instructions[n].put_off > 0;
        arena_free(&arena);
    }
    assert_true(put_off > 100);
}

/* --- mutations --- */

static void mutate_operand(Program *program, RankProgram *rank, Instruction *instruction, uint64_t *seed)
{
    if (instruction->second && random_below(seed, 2))
        instruction = instruction->second;
    uint16_t *slot = &instruction->slot[random_below(seed, SLOT_OPERANDS)];
    switch (random_below(seed, 8)) {
    case 0: instruction->chunk = (uint8_t)random_below(seed, rank->chunk_count + 1); break;
    case 1: instruction->peer = (uint16_t)random_below(seed, program->rank_count + 1); break;
    case 2: instruction->microbatch = random_below(seed, program->microbatches + 1); break;
    case 3: instruction->opcode = (uint8_t)random_below(seed, OPCODE_COUNT + 1); break;
    case 4: *slot = SLOT_NONE; break;
    case 5: instruction->put_off = (uint16_t)random_below(seed, 1u << RECIPE_COMPONENTS); break;
    default: *slot = (uint16_t)random_below(seed, 8); break;
    }
}

static void mutate(Program *program, uint64_t *seed)
{
    RankProgram *rank = &program->ranks[random_below(seed, program->rank_count)];
    Instruction *instructions = rank->instructions;
    const uint32_t count = rank->instruction_count, i = count ? random_below(seed, count) : 0;
    if (!count) /* the rank has no stages: it had only an END, and now has nothing */
        return;
    switch (random_below(seed, 4)) {
    case 0: /* remove */
        memmove(&instructions[i], &instructions[i + 1], (count - i - 1) * sizeof *instructions);
        rank->instruction_count--;
        break;
    case 1: /* repeat */
        memmove(&instructions[i + 1], &instructions[i], (count - i) * sizeof *instructions);
        rank->instruction_count++;
        break;
    case 2: { /* swap, mostly with one nearby */
        const uint32_t j = random_below(seed, 2) ? random_below(seed, count) : i + 1 < count ? i + 1 : 0;
        const Instruction kept = instructions[i];
        instructions[i] = instructions[j];
        instructions[j] = kept;
        break;
    }
    default: mutate_operand(program, rank, &instructions[i], seed); break;
    }
}

/* After one or two random changes a program is refused, or still computes the step. */
TEST(mutations_are_refused_or_harmless)
{
    uint64_t seed = 5;
    uint32_t accepted = 0, refused = 0;
    for (int i = 0; i < 150; i++) {
        Arena arena = {0};
        const Shape shape = random_shape(&seed);
        const Program *program = generate(&arena, shape);
        for (int k = 0; k < 100; k++) {
            Program *mutant = copy_program(&arena, program);
            for (uint32_t times = 1 + random_below(&seed, 2); times-- > 0;)
                mutate(mutant, &seed);
            Error error = {""};
            if (program_verify(mutant, &error) == STATUS_OK) {
                accepted++;
                for (uint64_t order = 0; order < 3; order++)
                    if (!replay(mutant, order)) {
                        program_disassemble(mutant, stderr);
                        fail_msg("accepted, but comes out wrong");
                    }
            } else {
                refused++;
                assert_true(error.text[0]);
            }
        }
        arena_free(&arena);
    }
    /* harmless changes: swaps of independent instructions, changes of operands that the opcode does not have */
    assert_true(accepted > 500);
    assert_true(refused > 5000);
}

int main(void) { return test_program("verify", NULL, NULL); }
