/* Programs with one fault each: program_verify must report it. */

#include "program/program.h"
#include "tests/program/damage.h"

static Program *three_ranks(Arena *arena)
{
    return generate(
        arena,
        (Shape){.ranks = 3, .stages = 3, .pipes = 1, .microbatches = 2, .preference = PREFER_FORWARD, .seed = 3});
}

/* A program with several versions of the weights of rank 0's stage. */
static Program *pipedream(Arena *arena)
{
    return generate(arena, (Shape){.ranks = 2,
                                   .stages = 2,
                                   .pipes = 1,
                                   .microbatches = 5,
                                   .preference = PREFER_BACKWARD,
                                   .update = 1,
                                   .seed = 3});
}

static Program *pipedream_2bw(Arena *arena)
{
    return generate(arena, (Shape){.ranks = 2,
                                   .stages = 2,
                                   .pipes = 1,
                                   .microbatches = 8,
                                   .preference = PREFER_BACKWARD,
                                   .update = 2,
                                   .delayed = true,
                                   .seed = 3});
}

/* Each stage has a copy in each of two pipes; the copies update together. */
static Program *pipedream_copies(Arena *arena)
{
    return generate(arena, (Shape){.ranks = 2,
                                   .stages = 2,
                                   .pipes = 2,
                                   .microbatches = 4,
                                   .preference = PREFER_BACKWARD,
                                   .update = 2,
                                   .seed = 3});
}

/* A forward-only program in which rank 0 sends and does not receive. */
static Program *ends_with_a_send(Arena *arena)
{
    Program *forward = NULL;
    Error error = {""};
    assert_int_equal(program_forward_only(two_ranks(arena), arena, &forward, &error), STATUS_OK);
    return forward;
}

/* Two stages, the first on three of four ranks. */
static Program *replicated(Arena *arena)
{
    return generate(arena, (Shape){.ranks = 4,
                                   .stages = 2,
                                   .pipes = 1,
                                   .microbatches = 6,
                                   .placement = PLACE_RANDOM,
                                   .replicas = 3,
                                   .preference = PREFER_BACKWARD,
                                   .split = 100,
                                   .seed = 16});
}

static void no_ranks(Program *program) { program->rank_count = 0; }
static void no_stages(Program *program) { program->stages = 0; }
static void no_pipes(Program *program) { program->pipe_count = 0; }
static void pipes_overlap(Program *program) { program->pipes[1].first = 1; }
static void empty_pipe(Program *program) { program->pipes[0].microbatches = 0; }
static void wrong_total(Program *program) { program->microbatches++; }
static void stage_missing(Program *program) { program->stages = 3; }
static void rank_without_chunks(Program *program) { program->ranks[1].chunk_count = 0; }
static void further_rank_without_chunks(Program *program)
{
    static Instruction end = {.opcode = OP_END};
    static RankProgram ranks[3];
    memcpy(ranks, program->ranks, 2 * sizeof *ranks);
    ranks[2] = (RankProgram){.instruction_count = 1, .instructions = &end};
    program->ranks = ranks;
    program->rank_count = 3;
}
static void stage_twice(Program *program) { program->ranks[1].chunks[0].stage = program->ranks[0].chunks[0].stage; }
static void stage_out_of_range(Program *program) { program->ranks[1].chunks[0].stage = 2; }
static void pipe_out_of_range(Program *program) { program->ranks[1].chunks[0].pipe = 1; }
static void groups_missing(Program *program) { program->group_count = 0; }
static void group_wrong_rank(Program *program) { program->groups[1].members[0].rank = 0; }
static void group_wrong_stage(Program *program) { program->groups[1].stage = 7; }
static void group_twice(Program *program) { program->groups[1] = program->groups[0]; }
static void group_too_small(Program *program) { program->groups[1].member_count = 1; }
static void copies_on_one_rank(Program *program)
{
    const Chunk kept = program->ranks[0].chunks[1];
    program->ranks[0].chunks[1] = (Chunk){1, 0};
    program->ranks[1].chunks[program->ranks[1].chunks[0].pipe == 1 ? 0 : 1] = kept;
    for (uint32_t g = 0; g < 2; g++)
        for (uint32_t p = 0; p < 2; p++)
            for (uint16_t r = 0; r < 2; r++)
                for (uint8_t c = 0; c < 2; c++)
                    if (program->ranks[r].chunks[c].pipe == p &&
                        program->ranks[r].chunks[c].stage == program->groups[g].stage)
                        program->groups[g].members[p] = (Home){r, c};
}
static void no_end(Program *program) { program->ranks[1].instruction_count--; }
static void no_instructions(Program *program) { program->ranks[1].instruction_count = 0; }
static void too_many_passes(Program *program)
{
    program->pipes[0].microbatches = program->microbatches = PROGRAM_MICROBATCHES_MAX;
}
static void too_many_slots(Program *program) { program->ranks[0].slots[SLOT_STASH] = 60000; }
static void unused_slot(Program *program) { program->ranks[0].slots[SLOT_STASH]++; }
static void slot_out_of_range(Program *program) { program->ranks[0].slots[SLOT_CONTEXT] = 0; }
static void wrong_peak(Program *program) { program->ranks[1].peak_activations++; }
static void early_end(Program *program) { at(program, 0, OP_NORM, 0)->opcode = OP_END; }
static void end_inside(Program *program)
{
    insert(program, 0, program->ranks[0].instruction_count, *at(program, 0, OP_END, 0));
}
static void no_such_opcode(Program *program) { at(program, 1, OP_FORWARD, 1)->opcode = 99; }
static void forward_only_inside(Program *program) { at(program, 1, OP_FORWARD, 1)->opcode = OP_FORWARD_ONLY; }
static void backward_inside(Program *program) { program->forward_only = true; }
static void wrong_chunk(Program *program) { at(program, 0, OP_FORWARD, 1)->chunk = 3; }
static void wrong_microbatch(Program *program) { at(program, 0, OP_FORWARD, 1)->microbatch = 3; }
static void forward_twice(Program *program) { at(program, 0, OP_FORWARD, 1)->microbatch = 0; }
static void input_twice(Program *program) { at(program, 1, OP_BACKWARD_INPUT, 1)->microbatch = 0; }
static void weight_first(Program *program)
{
    const uint32_t i = find(program, 1, OP_BACKWARD_INPUT, 0);
    Instruction weight = *at(program, 1, OP_BACKWARD_WEIGHT, 0);
    insert(program, 1, i, weight);
}
static void backward_first(Program *program)
{
    const Instruction backward = *at(program, 0, OP_BACKWARD_INPUT, 0);
    insert(program, 0, 0, backward);
}
static void weight_missing(Program *program) { drop(program, 0, find(program, 0, OP_BACKWARD_WEIGHT, 2)); }
static void output_missing(Program *program) { at(program, 0, OP_FORWARD, 0)->y = SLOT_NONE; }
static void output_at_last(Program *program) { at(program, 1, OP_FORWARD, 0)->y = 0; }
static void send_at_last(Program *program)
{
    Instruction send = *at(program, 0, OP_SEND_FORWARD, 0);
    send.peer = 0;
    insert(program, 1, find(program, 1, OP_FORWARD, 0), send);
}
static void not_waited(Program *program) { drop(program, 1, find(program, 1, OP_WAIT, 0)); }
static void waited_twice(Program *program)
{
    const uint32_t i = find(program, 1, OP_WAIT, 0);
    insert(program, 1, i, program->ranks[1].instructions[i]);
}
static void overwritten(Program *program)
{
    Instruction *second = at(program, 0, OP_FORWARD, 1);
    second->context = at(program, 0, OP_FORWARD, 0)->context;
}
static void peer_itself(Program *program) { at(program, 0, OP_SEND_FORWARD, 0)->peer = 0; }
static void peer_nobody(Program *program) { at(program, 0, OP_SEND_FORWARD, 0)->peer = 2; }
static void peer_elsewhere(Program *program) { at(program, 0, OP_SEND_FORWARD, 0)->peer = 2; }
static void send_not_waited(Program *program)
{
    uint32_t last = find(program, 0, OP_END, 0);
    while (program->ranks[0].instructions[last].opcode != OP_WAIT)
        last--;
    drop(program, 0, last);
}
static void swapped_messages(Program *program)
{
    Instruction *first = at(program, 1, OP_RECEIVE_FORWARD, 0), *second = at(program, 1, OP_RECEIVE_FORWARD, 1);
    first->microbatch = 1;
    second->microbatch = 0;
}
static void no_norm(Program *program)
{
    for (uint32_t r = 0; r < 2; r++)
        drop(program, r, find(program, r, OP_NORM, 0));
}
static void two_norms(Program *program)
{
    for (uint32_t r = 0; r < 2; r++)
        insert(program, r, find(program, r, OP_NORM, 0), *at(program, r, OP_NORM, 0));
}
static void no_update(Program *program) { drop(program, 0, find(program, 0, OP_UPDATE, 0)); }
static void two_updates(Program *program)
{
    insert(program, 0, find(program, 0, OP_UPDATE, 0), *at(program, 0, OP_UPDATE, 0));
}
static void no_reduce(Program *program)
{
    for (uint32_t r = 0; r < 2; r++)
        for (uint32_t n = 0; n < 1; n++)
            drop(program, r, find(program, r, OP_REDUCE, 0));
}
static void reduce_twice(Program *program)
{
    for (uint32_t r = 0; r < 2; r++)
        insert(program, r, find(program, r, OP_REDUCE, 0), *at(program, r, OP_REDUCE, 0));
}
static void reduce_early(Program *program)
{
    const uint32_t i = find(program, 0, OP_REDUCE, 0);
    const Instruction reduce = program->ranks[0].instructions[i];
    drop(program, 0, i);
    insert(program, 0, 0, reduce);
}
static void reduce_missing_alone(Program *program) { drop(program, 0, find(program, 0, OP_REDUCE, 0)); }
static void sum_not_waited_for(Program *program) { drop(program, 0, find(program, 0, OP_WAIT_REDUCE, 0)); }
static void sum_waited_for_early(Program *program)
{
    const uint32_t i = find(program, 0, OP_WAIT_REDUCE, 0);
    const Instruction wait = program->ranks[0].instructions[i];
    drop(program, 0, i);
    insert(program, 0, find(program, 0, OP_REDUCE, 0), wait);
}
static void sum_waited_for_twice(Program *program)
{
    insert(program, 0, find(program, 0, OP_WAIT_REDUCE, 0), *at(program, 0, OP_WAIT_REDUCE, 0));
}
static void sum_of_no_chunk(Program *program) { at(program, 0, OP_WAIT_REDUCE, 0)->chunk = 9; }
static void wait_after_norm(Program *program)
{
    const uint32_t i = find(program, 0, OP_WAIT_REDUCE, 0);
    const Instruction wait = program->ranks[0].instructions[i];
    drop(program, 0, i);
    insert(program, 0, find(program, 0, OP_NORM, 0) + 1, wait);
}
/* Moves the B that follows the first instruction `before` of rank 0 to right before it. This instruction belongs to the
   U of an earlier microbatch. */
static void backward_moves(Program *program, Opcode before)
{
    const uint32_t place = find(program, 0, before, 0);
    uint32_t i = place;
    while (program->ranks[0].instructions[i].opcode != OP_BACKWARD)
        i++;
    const Instruction backward = program->ranks[0].instructions[i];
    drop(program, 0, i);
    insert(program, 0, place, backward);
}
static void backward_while_summed(Program *program) { backward_moves(program, OP_WAIT_REDUCE); }
static void backward_once_summed(Program *program) { backward_moves(program, OP_ASYNC_UPDATE); }
static Instruction *update_async(Program *program) { return at(program, 0, OP_ASYNC_UPDATE, 0); }
static void newest_is_not_wanted(Program *program)
{
    static uint32_t versions[8];
    program->pipes[0].versions = versions;
}
static void wanted_is_not_there(Program *program) { program->pipes[0].versions[2] = 1; }
static void other_version(Program *program)
{
    for (uint32_t i = 0;; i++) {
        Instruction *backward = at(program, 0, OP_BACKWARD, i);
        if (backward->weights != backward->chunk) {
            backward->weights = backward->chunk;
            return;
        }
    }
}
static void no_version(Program *program) { at(program, 0, OP_FORWARD, 1)->weights = SLOT_NONE; }
static void version_out_of_range(Program *program) { at(program, 0, OP_FORWARD, 1)->weights = 9; }
static void version_of_nobody(Program *program) { at(program, 0, OP_FORWARD, 1)->weights = 1; }
static void version_overwritten(Program *program) { update_async(program)->next = update_async(program)->newest; }
static void version_missing(Program *program)
{
    drop(program, 0, find(program, 0, OP_REDUCE, 0));
    drop(program, 0, find(program, 0, OP_WAIT_REDUCE, 0));
    drop(program, 0, find(program, 0, OP_ASYNC_UPDATE, 0));
    update_async(program)->microbatch++;
}
static void update_missing(Program *program)
{
    uint32_t last = find(program, 0, OP_END, 0);
    while (program->ranks[0].instructions[last].opcode != OP_ASYNC_UPDATE)
        last--;
    drop(program, 0, last);
}
static void wrong_count(Program *program) { update_async(program)->microbatch++; }
static void update_twice(Program *program)
{
    insert(program, 0, find(program, 0, OP_ASYNC_UPDATE, 0), *update_async(program));
}
static void update_of_nothing(Program *program)
{
    const uint32_t after = find(program, 0, OP_ASYNC_UPDATE, 0) + 1;
    const Instruction again[] = {*update_async(program), *at(program, 0, OP_WAIT_REDUCE, 0),
                                 *at(program, 0, OP_REDUCE, 0)};
    for (int i = 0; i < 3; i++)
        insert(program, 0, after, again[i]);
}
static void newest_elsewhere(Program *program)
{
    uint32_t last = find(program, 0, OP_END, 0);
    while (program->ranks[0].instructions[last].opcode != OP_ASYNC_UPDATE)
        last--;
    program->ranks[0].instructions[last].next = 1;
}
static void versions_in_a_synchronous_program(Program *program) { newest_is_not_wanted(program); }
static void update_in_a_synchronous_program(Program *program)
{
    at(program, 0, OP_UPDATE, 0)->opcode = OP_ASYNC_UPDATE;
}
static void norm_inside(Program *program) { update_async(program)->opcode = OP_NORM; }
static void asynchronous_copies(Program *program) { program->asynchronous = true; }
static void copy_not_reduced(Program *program) { drop(program, 0, find(program, 0, OP_REDUCE, 0)); }
static void copy_not_updated(Program *program) { drop(program, 0, find(program, 0, OP_ASYNC_UPDATE, 0)); }
static void copy_updates_alone(Program *program)
{
    const Instruction again[] = {*at(program, 0, OP_REDUCE, 0), *update_async(program)};
    for (int i = 0; i < 2; i++)
        insert(program, 0, find(program, 0, OP_END, 0), again[i]);
}
static void copy_counts_its_own(Program *program) { update_async(program)->microbatch--; }
static void one_pipe_names_versions(Program *program)
{
    static uint32_t versions[8];
    program->pipes[1].versions = versions;
}
static void too_few_weights(Program *program) { program->ranks[0].slots[SLOT_WEIGHTS] = 0; }
static void too_many_weights(Program *program) { program->ranks[0].slots[SLOT_WEIGHTS] = 9000; }
static void unused_weights(Program *program) { program->ranks[0].slots[SLOT_WEIGHTS]++; }
static Home copy_of(const Program *program, uint32_t copy) { return program->groups[0].members[copy]; }
static uint32_t find_of_copy(const Program *program, uint32_t copy, Opcode opcode)
{
    const Home member = copy_of(program, copy);
    uint32_t number = 0;
    while (program->ranks[member.rank].instructions[find(program, member.rank, opcode, number)].chunk != member.chunk)
        number++;
    return find(program, member.rank, opcode, number);
}
static Instruction *at_copy(Program *program, uint32_t copy, Opcode opcode)
{
    return &program->ranks[copy_of(program, copy).rank].instructions[find_of_copy(program, copy, opcode)];
}
static void copies_out_of_order(Program *program)
{
    Group *group = &program->groups[0];
    Home *members = group->members, kept = members[0];
    members[0] = members[1];
    members[1] = kept;
}
static void copy_not_in_group(Program *program) { program->groups[0].member_count--; }
static void forward_on_two_copies(Program *program)
{
    const Home other = copy_of(program, 1);
    Instruction forward = *at_copy(program, 0, OP_FORWARD);
    forward.chunk = other.chunk;
    insert(program, other.rank, 0, forward);
}
static void backward_on_the_other_copy(Program *program)
{
    at_copy(program, 1, OP_BACKWARD_INPUT)->microbatch = at_copy(program, 0, OP_FORWARD)->microbatch;
}
static void forward_on_no_copy(Program *program)
{
    drop(program, copy_of(program, 0).rank, find_of_copy(program, 0, OP_FORWARD));
}
static void copy_without_microbatches(Program *program)
{
    const uint32_t rank = copy_of(program, 0).rank, other = copy_of(program, 1).rank;
    RankProgram *stream = &program->ranks[rank];
    for (uint32_t i = 0; i < stream->instruction_count; i++)
        if (stream->instructions[i].opcode == OP_FORWARD &&
            stream->instructions[i].chunk == copy_of(program, 0).chunk) {
            Instruction forward = stream->instructions[i];
            forward.chunk = copy_of(program, 1).chunk;
            insert(program, other, 0, forward);
            drop(program, rank, i--);
        }
}
static void sent_to_the_other_copy(Program *program)
{
    for (uint32_t r = 0; r < program->rank_count; r++)
        for (uint32_t i = 0; i < program->ranks[r].instruction_count; i++) {
            Instruction *receive = &program->ranks[r].instructions[i];
            if (receive->opcode != OP_RECEIVE_FORWARD)
                continue;
            receive->peer =
                receive->peer == copy_of(program, 0).rank ? copy_of(program, 1).rank : copy_of(program, 0).rank;
            receive->peer = receive->peer == r ? copy_of(program, 2).rank : receive->peer;
            return;
        }
}

TEST(faults_are_named)
{
    static const Fault faults[] = {
        {two_ranks, no_ranks, "0 ranks"},
        {two_ranks, no_stages, "0 stages"},
        {two_ranks, no_pipes, "0 pipes"},
        {bidirectional, pipes_overlap, "pipe 1 begins at microbatch 1"},
        {two_ranks, empty_pipe, "pipe 0 has 0 microbatches"},
        {two_ranks, wrong_total, "3 microbatches together, but the program has 4"},
        {two_ranks, stage_missing, "2 chunks, which is too few for the 3 stages"},
        {two_ranks, rank_without_chunks, "rank 1 has no chunk: each rank needs one"},
        {two_ranks, further_rank_without_chunks, "rank 2 has no chunk: each rank needs one"},
        {two_ranks, stage_twice, "stage 1 of pipe 0 is on no rank"},
        {two_ranks, stage_out_of_range, "rank 1 chunk 0 is stage 2"},
        {two_ranks, pipe_out_of_range, "of pipe 1, but the program has only 2 stages and 1 pipe"},
        {bidirectional, groups_missing, "stage 0 has 2 copies, but the program has no group for them"},
        {bidirectional, group_wrong_rank, "of group 1 is rank 0"},
        {bidirectional, group_wrong_stage, "group 1 must have the 2 copies of stage 1, but has 2 copies of stage 7"},
        {bidirectional, group_twice, "group 1 must have the 2 copies of stage 1, but has 2 copies of stage 0"},
        {bidirectional, group_too_small, "group 1 must have the 2 copies of stage 1, but has 1 copy of stage 1"},
        {bidirectional, copies_on_one_rank, "stage 0 has two copies on rank 0"},
        {two_ranks, no_end, "rank 1|does not end with END"},
        {two_ranks, no_instructions, "rank 1|does not end with END"},
        {two_ranks, too_many_passes, "rank 0 has too few instructions: |for 1048576 forward passes and END"},
        {two_ranks, too_many_slots, "rank 0 has 60000 stash slots"},
        {two_ranks, unused_slot, "rank 0|`END`|the rank uses only|stash slots"},
        {two_ranks, slot_out_of_range, "rank 0|`F m0|slot c0 does not exist; number of the rank's context slots: 0"},
        {two_ranks, wrong_peak, "rank 1|holds up to"},
        {two_ranks, early_end, "rank 0|instructions follow END"},
        {two_ranks, end_inside, "rank 0|instructions follow END"},
        {two_ranks, no_such_opcode, "rank 1|opcode 99|no such opcode"},
        {two_ranks, forward_only_inside, "rank 1|`FO m1|is not allowed in a synchronous training program"},
        {two_ranks, backward_inside, "is not allowed in a forward-only program"},
        {two_ranks, wrong_chunk, "rank 0|there is no chunk 3: the rank has 1 chunk"},
        {two_ranks, wrong_microbatch, "rank 0|no microbatch 3: the pipe has 3 microbatches"},
        {two_ranks, forward_twice, "rank 0|`F m0|the F of stage 0 microbatch 0 has run already"},
        {two_ranks, input_twice, "rank 1|`I m0|the B or I of stage 1 microbatch 0 has run already"},
        {two_ranks, weight_first, "rank 1|`W m0|the I of stage 1 microbatch 0 has not run yet"},
        {two_ranks, backward_first, "rank 0|`I m0|the F of stage|has not run yet|generated.dps:"},
        {two_ranks, weight_missing, "rank 0|`REDUCE`|the W of stage 0 microbatch 2 has not run"},
        {two_ranks, output_missing, "rank 0|`F m0 x- y- |the instruction has no slot for its operand y"},
        {two_ranks, output_at_last,
         "rank 1|slot y0 is given for the activation made by this stage, but stage 1 of 2 needs none"},
        {two_ranks, send_at_last, "rank 1|`SEND_F|stage 1 of 2 has no stage after it"},
        {two_ranks, not_waited,
         "rank 1|`F m0|not yet received the activation made by stage 0 microbatch 0, but must hold"},
        {two_ranks, waited_twice, "rank 1|`WAIT s|but must hold a message in flight"},
        {two_ranks, overwritten, "rank 0|`F m1|the context of stage 0 microbatch 0, but must be free"},
        {two_ranks, peer_itself, "rank 0|its peer must be another rank of the program, not rank 0"},
        {two_ranks, peer_nobody, "rank 0|its peer must be another rank of the program, not rank 2"},
        {three_ranks, peer_elsewhere, "rank 0|`SEND_F m0 r2|its peer must be rank 1, which runs stage 1"},
        {ends_with_a_send, send_not_waited,
         "rank 0|`END`|message slot|still holds in flight the activation made by stage 0"},
        {two_ranks, swapped_messages,
         "RECV_F m1|SEND_F m0|by stage 0 microbatch 1|by stage 0 microbatch 0|rank 0|rank 1"},
        {two_ranks, no_norm, "a NORM must come before UPDATE"},
        {two_ranks, two_norms, "a second NORM"},
        {two_ranks, no_update, "rank 0|`END`|chunk 0 has not been updated"},
        {two_ranks, two_updates, "rank 0|`UPDATE`|updated already"},
        {bidirectional, no_reduce, "`WAIT_REDUCE|no sum of the gradients of chunk|is under way"},
        {bidirectional, reduce_twice, "`REDUCE|an earlier REDUCE has begun the sum of the gradients of chunk"},
        {bidirectional, reduce_early, "rank 0, instruction 0 `REDUCE|has not run"},
        {two_ranks, reduce_missing_alone, "rank 0|`WAIT_REDUCE`|no sum of the gradients of chunk 0 is under way"},
        {two_ranks, sum_not_waited_for,
         "rank 0|`NORM`|no WAIT_REDUCE has waited for the sum of the gradients of chunk 0"},
        {two_ranks, wait_after_norm, "rank 0|`NORM`|no WAIT_REDUCE has waited for the sum of the gradients of chunk 0"},
        {two_ranks, sum_waited_for_early, "rank 0|`WAIT_REDUCE`|no sum of the gradients of chunk 0 is under way"},
        {bidirectional, sum_waited_for_twice, "`WAIT_REDUCE|no sum of the gradients of chunk|is under way"},
        {bidirectional, sum_of_no_chunk, "`WAIT_REDUCE9|there is no chunk 9: the rank has"},
        {pipedream, backward_while_summed, "rank 0|`B|adds to the gradient of chunk 0 between its REDUCE and its U"},
        {pipedream, backward_once_summed, "rank 0|`B|adds to the gradient of chunk 0 between its REDUCE and its U"},
        {pipedream, copy_not_reduced, "rank 0|`WAIT_REDUCE`|no sum of the gradients of chunk 0 is under way"},
        {pipedream, sum_not_waited_for,
         "rank 0|`U n1|no WAIT_REDUCE has waited for the sum of the gradients of chunk 0"},
        {pipedream, newest_is_not_wanted, "must hold version 0"},
        {pipedream_2bw, wanted_is_not_there, "`F m2|of the weights of stage|but must hold version 1"},
        {pipedream, other_version, "rank 0|`B m|of the weights of stage 0, but must hold version"},
        {pipedream, no_version, "rank 0|`F m1|the instruction has no slot for its operand w"},
        {pipedream, version_out_of_range, "rank 0|`F m1|slot w9 does not exist"},
        {pipedream, version_of_nobody, "rank 0|`F m1|slot w1 is empty, but must hold weights of stage 0"},
        {pipedream, version_overwritten,
         "rank 0|`U n1 w0 w0`|holds version 0, with which 1 microbatch must still run backward"},
        {pipedream_2bw, version_missing, "rank 0|`F m4|slot w1 is empty, but must hold weights of stage 0"},
        {pipedream, update_missing, "rank 0|`END`|no U follows the last gradient or REDUCE of stage 0"},
        {pipedream, wrong_count, "`U n2|takes the gradients of 2 microbatches; the sum has those of 1"},
        {pipedream, update_twice, "`U n1|the gradients of chunk 0 have not been summed"},
        {pipedream, update_of_nothing,
         "`U n1|takes the gradients of 1 microbatch; the sum has those of 0, and needs at least one"},
        {pipedream, newest_elsewhere,
         "rank 0|`END`|slot w0 holds version|of the weights of stage 0, but must hold version 5"},
        {two_ranks, versions_in_a_synchronous_program, "only an asynchronous program has several versions"},
        {two_ranks, update_in_a_synchronous_program, "`U|is not allowed in a synchronous training program"},
        {pipedream, norm_inside, "`NORM`|is not allowed in an asynchronous program"},
        {bidirectional, asynchronous_copies, "`NORM`|is not allowed in an asynchronous program"},
        {pipedream_copies, copy_not_reduced, "rank 0|`WAIT_REDUCE|no sum of the gradients of chunk|is under way"},
        {pipedream_copies, copy_not_updated, "rank 0|`B|adds to the gradient of chunk|between its REDUCE and its U"},
        {pipedream_copies, copy_counts_its_own,
         "rank 0|`U|takes the gradients of 1 microbatch; the sum has those of 2"},
        {pipedream_copies, copy_updates_alone, "deadlock: rank 0|`REDUCE|waits for rank 1, which has ended"},
        {pipedream_copies, one_pipe_names_versions,
         "pipe 1 says which versions of the weights its microbatches use, but pipe 0 does not"},
        {pipedream, too_few_weights, "rank 0 has 0 weights slots for 1 chunk"},
        {pipedream, too_many_weights, "rank 0 has 9000 weights slots for 1 chunk"},
        {pipedream, unused_weights, "rank 0|the rank uses only|weights slots"},
        {replicated, copies_out_of_order, "the copies of a pipe must be in the order of their ranks"},
        {replicated, copy_not_in_group, "group 0 must have the 3 copies of stage 0, but has 2 copies of stage 0"},
        {replicated, forward_on_two_copies,
         "the F of stage 0 microbatch|is on rank|and on rank|only one of them may run it"},
        {replicated, backward_on_the_other_copy, "`I|goes through stage 0 on rank"},
        {replicated, forward_on_no_copy, "the F of stage 0 microbatch|is on no rank"},
        {replicated, copy_without_microbatches, "a copy of stage 0|no microbatch goes through it"},
        {replicated, sent_to_the_other_copy, "`RECV_F|its peer must be rank|which runs stage 0 for this microbatch"},
    };
    assert_faults_named(faults, sizeof faults / sizeof *faults);
}

int main(void) { return test_program("faults", NULL, NULL); }
