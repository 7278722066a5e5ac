/* Deadlocks. If ranks wait for each other, the verifier reports their shortest cycle. If a rank waits for a rank that
   has ended, the verifier reports the rank that waits. */

#include "program/deadlock.h"
#include "tests/program/damage.h"

/* A program in which both ranks send before they receive. */
static Program *both_send_first(Arena *arena)
{
    Program *program = copy_program(arena, bidirectional(arena));
    /* If the first RECV_F of a rank comes before its first SEND_F, moves the RECV_F to right after the SEND_F. */
    for (uint32_t r = 0; r < 2; r++) {
        const Instruction receive = *at(program, r, OP_RECEIVE_FORWARD, 0);
        const uint32_t i = find(program, r, OP_RECEIVE_FORWARD, 0), send = find(program, r, OP_SEND_FORWARD, 0);
        if (i < send) {
            drop(program, r, i);
            insert(program, r, send, receive);
        }
    }
    return program;
}

TEST(a_cycle_of_two_is_shown)
{
    Arena arena = {0};
    Program *program = both_send_first(&arena);
    assert_refused(program,
                   "deadlock: 2 ranks wait for each other|"
                   "\n  rank 0, instruction|SEND_F|(generated.dps:|waits for rank 1\n  rank 1|waits for rank 0");
    arena_free(&arena);
}

/* Each rank waits in its SEND_F until the other reaches the RECV_F of the same microbatch. */
TEST(a_cycle_is_returned_with_instructions)
{
    Arena arena = {0};
    Program *program = both_send_first(&arena);
    Deadlock deadlock;
    Error error = {""};
    assert_int_equal(program_verify_deadlock(program, &arena, &deadlock, &error), STATUS_BAD_INPUT);
    assert_int_equal(deadlock.cycle, 2);
    assert_int_equal(deadlock.count, 2);
    for (uint32_t r = 0; r < 2; r++) {
        const Wait *wait = &deadlock.waits[r];
        assert_int_equal(wait->rank, r);
        assert_int_equal(wait->on, 1 - r);
        const Instruction *mine = &program->ranks[r].instructions[wait->at];
        const Instruction *theirs = &program->ranks[1 - r].instructions[wait->until];
        assert_int_equal(mine->opcode, OP_SEND_FORWARD);
        assert_int_equal(theirs->opcode, OP_RECEIVE_FORWARD);
        assert_int_equal(theirs->microbatch, mine->microbatch);
        assert_int_equal(theirs->peer, r);
    }
    assert_int_equal(program_verify_deadlock(bidirectional(&arena), &arena, &deadlock, &error), STATUS_OK);
    assert_int_equal(deadlock.count, 0);
    arena_free(&arena);
}

/* In a ring of ranks each waits for the previous one. The message prints only a part of this long cycle. One more rank
   waits, but is not in the cycle. */
TEST(a_long_cycle_is_cut_short)
{
    enum { RANKS = 9, RING = 8 };
    Arena arena = {0};
    Program *program = arena_allocate(&arena, sizeof *program);
    *program = (Program){.schedule = arena_format(&arena, "ring"),
                         .source = arena_format(&arena, "ring.dps"),
                         .stages = 17,
                         .microbatches = 1,
                         .pipe_count = 1,
                         .pipes = arena_array(&arena, 1, sizeof(Pipe)),
                         .rank_count = RANKS,
                         .ranks = arena_array(&arena, RANKS, sizeof(RankProgram))};
    program->pipes[0].microbatches = 1;
    for (uint32_t r = 0; r < RANKS; r++) {
        RankProgram *rank = &program->ranks[r];
        rank->instructions = arena_array(&arena, 4, sizeof *rank->instructions);
        rank->chunk_count = rank->slots[SLOT_WEIGHTS] = r < RING ? 2 : 1;
        rank->chunks = arena_array(&arena, 2, sizeof *rank->chunks);
        /* rank r of the ring has stages r and r + 8. So rank 0 has stage 8, which waits for stage 7 on rank 7: the ring
           is closed. Stage 16 is on rank 8 */
        for (uint32_t c = 0; c < rank->chunk_count; c++)
            rank->chunks[c].stage = (uint16_t)(r < RING ? r + c * RING : 2 * RING);
        rank->slots[SLOT_MESSAGE] = 1;
        rank->instructions[0] = (Instruction){.opcode = OP_RECEIVE_FORWARD,
                                              .chunk = r ? 0 : 1,
                                              .line = 40 + r,
                                              .peer = (uint16_t)((r + RING - 1) % RING)};
        /* a second instruction, because the verifier expects one for each F, and a rank with two chunks has two F */
        rank->instructions[1] = rank->instructions[0];
        rank->instructions[2].opcode = OP_END;
        rank->instruction_count = 3;
    }
    assert_refused(program, "deadlock: 8 ranks wait for each other|"
                            "rank 0, instruction 0 `RECV_F1 m0 r7 x0` (ring.dps:40) waits for rank 7|"
                            "... and so on over 5 more|besides, rank 8, instruction 0 `RECV_F");
    arena_free(&arena);
}

TEST(waiting_for_a_rank_that_ends_is_shown)
{
    Arena arena = {0};
    const Shape shape = {
        .ranks = 2, .stages = 2, .pipes = 1, .microbatches = 2, .preference = PREFER_FORWARD, .seed = 1};
    Program *program = copy_program(&arena, generate(&arena, shape));
    assert_verified(program);
    drop(program, 1, find(program, 1, OP_NORM, 0));
    drop(program, 1, find(program, 1, OP_UPDATE, 0));
    assert_refused(program, "rank 1|runs no NORM");

    /* A rank has one receive too many: it waits there although the sender has ended. */
    program = generate(&arena, shape);
    Program *forward = NULL;
    Error error = {""};
    assert_int_equal(program_forward_only(program, &arena, &forward, &error), STATUS_OK);
    forward = copy_program(&arena, forward);
    const Instruction receive = *at(forward, 1, OP_RECEIVE_FORWARD, 1);
    insert(forward, 1, find(forward, 1, OP_RECEIVE_FORWARD, 1), receive);
    at(forward, 1, OP_RECEIVE_FORWARD, 2)->message = (uint16_t)forward->ranks[1].slots[SLOT_MESSAGE]++;
    assert_refused(forward, "deadlock: rank 1, instruction|RECV_F m1|waits for rank 0, which has ended");
    arena_free(&arena);
}

/* Moves the two REDUCE of the rank to right before its first WAIT_REDUCE, in the order of their chunks or in
   reverse. */
static void gather_sums(Program *program, uint32_t rank, bool backwards)
{
    Instruction *first = at(program, rank, OP_REDUCE, 0), *second = at(program, rank, OP_REDUCE, 1);
    Instruction sums[2] = {*first, *second};
    const bool swap = (first->chunk > second->chunk) != backwards;
    for (int i = 0; i < 2; i++)
        drop(program, rank, find(program, rank, OP_REDUCE, 0));
    for (int i = 0; i < 2; i++)
        insert(program, rank, find(program, rank, OP_WAIT_REDUCE, 0), sums[swap ? 1 - i : i]);
}

/* The sums of two groups are posted in different orders: on an in-order transport this is a deadlock. */
TEST(reductions_in_different_orders_are_a_deadlock)
{
    Arena arena = {0};
    Program *program = copy_program(&arena, bidirectional(&arena));
    gather_sums(program, 0, false); /* chunk 0 of rank 0 and chunk 1 of rank 1 are copies of one stage */
    gather_sums(program, 1, true);
    assert_verified(program);
    gather_sums(program, 1, false);
    assert_refused(
        program,
        "deadlock: 2 ranks|rank 0, instruction|rank 1, instruction|`REDUCE0`|waits for rank 1|waits for rank 0");
    Error error = {""};
    Deadlock deadlock;
    assert_int_equal(program_verify_deadlock(program, &arena, &deadlock, &error), STATUS_BAD_INPUT);
    /* rank 0 waits at its REDUCE of group 0 for the second REDUCE of rank 1; rank 1 waits at its REDUCE of group 1 for
       the second REDUCE of rank 0 */
    for (uint32_t r = 0; r < 2; r++) {
        assert_int_equal(deadlock.waits[r].at, find(program, r, OP_REDUCE, 0));
        assert_int_equal(deadlock.waits[r].until, find(program, 1 - r, OP_REDUCE, 1));
    }
    arena_free(&arena);
}

int main(void) { return test_program("deadlocks", NULL, NULL); }
