/* Removes the slots of programs and assigns them again: the programs are still proven, compute the same, and except for
   messages no rank uses more slots of a class than before. */

#include "program/slots.h"
#include "program/operands.h"
#include "tests/program/generator.h"
#include "tests/program/replay.h"
#include "tests/test.h"

static Instruction without_slots(const Instruction *old, Arena *arena)
{
    Instruction instruction = instruction_blank(old->opcode, old->line);
    instruction.chunk = old->chunk;
    instruction.peer = old->peer;
    instruction.microbatch = old->microbatch;
    if (old->second) {
        instruction.second = arena_allocate(arena, sizeof instruction);
        *instruction.second = without_slots(old->second, arena);
    }
    return instruction;
}

/* Copies the instructions of a rank without slots and WAITs. Returns their number. */
static uint32_t stripped(const RankProgram *rank, Instruction *instructions, Arena *arena)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < rank->instruction_count; i++)
        if (rank->instructions[i].opcode != OP_WAIT)
            instructions[count++] = without_slots(&rank->instructions[i], arena);
    return count;
}

static Program *assigned(const Program *program, Arena *arena)
{
    Program *again = arena_allocate(arena, sizeof *again);
    *again = *program;
    again->ranks = arena_array(arena, program->rank_count, sizeof *again->ranks);
    for (uint32_t r = 0; r < program->rank_count; r++) {
        const RankProgram *from = &program->ranks[r];
        Instruction *instructions = arena_array(arena, from->instruction_count, sizeof *instructions);
        const uint32_t count = stripped(from, instructions, arena);
        again->ranks[r] = (RankProgram){.chunk_count = from->chunk_count, .chunks = from->chunks};
        slots_assign(again, &again->ranks[r], instructions, count, arena);
        assert_int_equal(slots_exceeded(&again->ranks[r]), SLOT_CLASSES);
    }
    return again;
}

/* Passes free the slots of the classes CONTEXT, STASH and GRADIENT themselves, so a rank needs as many slots as it
   holds at once. The generator always takes a free slot, so it uses that number, too. For weights the generator may use
   more slots. */
static void check_counts(const RankProgram *before, const RankProgram *after)
{
    assert_int_equal(after->slots[SLOT_CONTEXT], before->slots[SLOT_CONTEXT]);
    assert_int_equal(after->slots[SLOT_STASH], before->slots[SLOT_STASH]);
    assert_int_equal(after->slots[SLOT_GRADIENT], before->slots[SLOT_GRADIENT]);
    assert_true(after->slots[SLOT_WEIGHTS] <= before->slots[SLOT_WEIGHTS]);
    assert_int_equal(after->peak_activations, before->peak_activations);
}

TEST(a_program_keeps_its_meaning)
{
    uint64_t seed = 17;
    uint32_t waits = 0, overlaps = 0, updates = 0;
    for (int i = 0; i < 300; i++) {
        Arena arena = {0};
        Error error = {""};
        const Program *program = generate(&arena, random_shape(&seed));
        if (i % 4 == 0)
            assert_int_equal(program_forward_only(program, &arena, (Program **)&program, &error), STATUS_OK);
        const Program *again = assigned(program, &arena);
        if (program_verify(again, &error) != STATUS_OK)
            fail_msg("%s", error.text);
        assert_true(replay(again, 1));
        for (uint32_t r = 0; r < again->rank_count; r++) {
            check_counts(&program->ranks[r], &again->ranks[r]);
            for (uint32_t k = 0; k < again->ranks[r].instruction_count; k++) {
                const uint8_t opcode = again->ranks[r].instructions[k].opcode;
                waits += opcode == OP_WAIT;
                overlaps += opcode == OP_OVERLAP;
                updates += opcode == OP_ASYNC_UPDATE;
            }
        }
        arena_free(&arena);
    }
    assert_true(waits > 1000 && overlaps > 100 && updates > 100);
}

/* The slot of a send is used again only after two more passes. The WAIT comes right before the pass that uses the slot
   again. */
TEST(a_send_has_two_passes_of_time)
{
    Arena arena = {0};
    enum { MICROBATCHES = 8 };
    Pipe pipe = {.microbatches = MICROBATCHES};
    Chunk chunk = {0, 0};
    RankProgram rank = {.chunk_count = 1, .chunks = &chunk};
    const Program program = {.stages = 2, .pipe_count = 1, .pipes = &pipe, .forward_only = true};
    Instruction instructions[2 * MICROBATCHES + 1];
    for (uint32_t m = 0; m < MICROBATCHES; m++) {
        instructions[2 * m] = instruction_blank(OP_FORWARD_ONLY, 1 + m);
        instructions[2 * m + 1] = instruction_blank(OP_SEND_FORWARD, 1 + m);
        instructions[2 * m].microbatch = instructions[2 * m + 1].microbatch = m;
    }
    instructions[2 * MICROBATCHES] = instruction_blank(OP_END, 0);
    slots_assign(&program, &rank, instructions, 2 * MICROBATCHES + 1, &arena);
    assert_int_equal(rank.slots[SLOT_MESSAGE], 3);
    assert_int_equal(rank.instruction_count, 3 * MICROBATCHES + 1);
    static const Opcode begins[] = {OP_FORWARD_ONLY, OP_SEND_FORWARD, OP_FORWARD_ONLY, OP_SEND_FORWARD,
                                    OP_FORWARD_ONLY, OP_SEND_FORWARD, OP_WAIT,         OP_FORWARD_ONLY};
    for (size_t i = 0; i < sizeof begins / sizeof *begins; i++)
        assert_int_equal(rank.instructions[i].opcode, begins[i]);
    assert_int_equal(rank.instructions[6].message, rank.instructions[0].y);
    assert_int_equal(rank.instructions[7].y, rank.instructions[0].y);
    assert_int_equal(rank.instructions[6].line, rank.instructions[7].line);
    arena_free(&arena);
}

TEST(more_slots_than_a_program_can_name_are_counted)
{
    for (uint32_t microbatches = PROGRAM_SLOTS_MAX; microbatches <= PROGRAM_SLOTS_MAX + 1; microbatches++) {
        Arena arena = {0};
        Pipe pipe = {.microbatches = microbatches};
        Chunk chunk = {0, 0};
        RankProgram rank = {.chunk_count = 1, .chunks = &chunk};
        const Program program = {.stages = 1, .pipe_count = 1, .pipes = &pipe};
        Instruction *instructions = arena_array(&arena, microbatches, sizeof *instructions);
        for (uint32_t m = 0; m < microbatches; m++) {
            instructions[m] = instruction_blank(OP_FORWARD, 1);
            instructions[m].microbatch = m;
        }
        slots_assign(&program, &rank, instructions, microbatches, &arena);
        assert_int_equal(rank.slots[SLOT_CONTEXT], microbatches);
        assert_int_equal(slots_exceeded(&rank), microbatches > PROGRAM_SLOTS_MAX ? SLOT_CONTEXT : SLOT_CLASSES);
        arena_free(&arena);
    }
}

int main(void) { return test_program("slots", NULL, NULL); }
