#include "program/verify.h"

#include "base/counted.h"

/* This file verifies sums of gradients, the norm, updates of the weights, and the end of a rank. */

static Status check_complete(const Verifier *verifier, uint32_t rank, const ChunkState *chunk)
{
    if (chunk->completed == chunk->own)
        return STATUS_OK;
    const bool forward_only = verifier->program->forward_only;
    const uint8_t last = forward_only ? PASS_F : PASS_W;
    uint32_t missing = 0;
    while (chunk->passes[missing] & last || (chunk->homes && chunk->homes[missing] != rank))
        missing++;
    const uint8_t passes = chunk->passes[missing];
    return verifier_refuse(verifier, rank, "the %s of stage %u microbatch %u has not run",
                           !(passes & PASS_F) ? "F"
                           : passes & PASS_I  ? "W"
                                              : "B (or I and W)",
                           chunk->stage, missing);
}

/* Checks that the gradients of all chunks of the rank are complete: every microbatch of the chunk has added to them,
   and they are summed over all copies of the stage. */
static Status check_gradients(const Verifier *verifier, uint32_t rank)
{
    const RankState *state = &verifier->ranks[rank];
    for (uint32_t c = 0; c < state->program->chunk_count; c++) {
        TRY(check_complete(verifier, rank, &state->chunks[c]));
        TRY(verifier_check_reduced(verifier, rank, c));
    }
    return STATUS_OK;
}

static ChunkState *member_chunk(const Verifier *verifier, const Home *member)
{
    return &verifier->ranks[member->rank].chunks[member->chunk];
}

/* A rank arrives at a REDUCE. In an asynchronous program the sum has the gradients of the microbatches of all copies
   since their last U. */
Status verifier_arrive_at_reduce(Verifier *verifier, uint32_t rank, const Instruction *instruction)
{
    RankState *state = &verifier->ranks[rank];
    ChunkState *chunk = &state->chunks[instruction->chunk];
    if (chunk->posted)
        return verifier_refuse(verifier, rank, "an earlier REDUCE has begun the sum of the gradients of chunk %u",
                               instruction->chunk);
    if (!verifier->program->asynchronous)
        TRY(check_complete(verifier, rank, chunk));
    chunk->posted = true;
    chunk->reductions++;
    state->blocked = true;
    if (chunk->group == GROUP_NONE) {
        verifier_resume(verifier, rank);
        return STATUS_OK;
    }
    const Group *group = &verifier->program->groups[chunk->group];
    if (++verifier->reduce_arrivals[chunk->group] < group->member_count)
        return STATUS_OK;
    verifier->reduce_arrivals[chunk->group] = 0;
    uint32_t gathered = 0;
    for (uint32_t m = 0; m < group->member_count; m++)
        gathered += member_chunk(verifier, &group->members[m])->gathered;
    for (uint32_t m = 0; m < group->member_count; m++) {
        member_chunk(verifier, &group->members[m])->gathered = gathered;
        verifier_resume(verifier, group->members[m].rank);
    }
    return STATUS_OK;
}

Status verifier_wait_for_sum(const Verifier *verifier, uint32_t rank, const Instruction *instruction)
{
    ChunkState *chunk = &verifier->ranks[rank].chunks[instruction->chunk];
    if (!chunk->posted || chunk->reduced)
        return verifier_refuse(
            verifier, rank,
            "no sum of the gradients of chunk %u is under way: no REDUCE has begun one, or a WAIT_REDUCE "
            "has waited for it already",
            instruction->chunk);
    chunk->reduced = true;
    return STATUS_OK;
}

Status verifier_arrive_at_norm(Verifier *verifier, uint32_t rank)
{
    RankState *state = &verifier->ranks[rank];
    if (state->normed)
        return verifier_refuse(verifier, rank, "the rank runs a second NORM: a step has only one");
    TRY(check_gradients(verifier, rank));
    state->normed = true;
    state->blocked = true;
    if (++verifier->norm_arrivals == verifier->program->rank_count)
        for (uint32_t r = 0; r < verifier->program->rank_count; r++)
            verifier_resume(verifier, r);
    return STATUS_OK;
}

Status verifier_update(const Verifier *verifier, uint32_t rank, ChunkState *chunk)
{
    if (!verifier->ranks[rank].normed || chunk->updated)
        return verifier_refuse(
            verifier, rank, chunk->updated ? "the chunk has been updated already" : "a NORM must come before UPDATE");
    chunk->updated = true;
    return STATUS_OK;
}

void verifier_update_async(RankState *state, const Instruction *instruction)
{
    ChunkState *chunk = &state->chunks[instruction->chunk];
    WeightSlot *weights = &state->weights[instruction->next];
    state->used[SLOT_WEIGHTS] += weights->chunk == CHUNK_NONE;
    weights->chunk = instruction->chunk;
    weights->version = ++chunk->newest;
    chunk->gathered = 0;
    chunk->posted = chunk->reduced = false;
}

/* At the END of an asynchronous program: checks that a U has used every gradient, and that the newest version of each
   chunk's weights is in the slot from which the next step reads it (slot c for chunk c). */
static Status check_updated(const Verifier *verifier, uint32_t rank)
{
    const RankState *state = &verifier->ranks[rank];
    for (uint32_t c = 0; c < state->program->chunk_count; c++) {
        const ChunkState *chunk = &state->chunks[c];
        TRY(check_complete(verifier, rank, chunk));
        if (chunk->gathered || chunk->posted)
            return verifier_refuse(verifier, rank, "no U follows the last gradient or REDUCE of stage %u",
                                   chunk->stage);
        if (state->weights[c].version != chunk->newest)
            return verifier_refuse(verifier, rank,
                                   "slot w%u holds version %u of the weights of stage %u, but must hold version %u", c,
                                   state->weights[c].version, chunk->stage, chunk->newest);
    }
    return STATUS_OK;
}

Status verifier_arrive_at_end(Verifier *verifier, uint32_t rank)
{
    RankState *state = &verifier->ranks[rank];
    const RankProgram *program = state->program;
    if (state->next != program->instruction_count - 1)
        return verifier_refuse(verifier, rank, "instructions follow END");
    if (verifier->program->forward_only) {
        for (uint32_t c = 0; c < program->chunk_count; c++)
            TRY(check_complete(verifier, rank, &state->chunks[c]));
    } else if (verifier->program->asynchronous) {
        TRY(check_updated(verifier, rank));
    } else {
        TRY(check_gradients(verifier, rank));
        if (!state->normed)
            return verifier_refuse(verifier, rank, "the rank runs no NORM");
        for (uint32_t c = 0; c < program->chunk_count; c++)
            if (!state->chunks[c].updated)
                return verifier_refuse(verifier, rank, "chunk %u has not been updated", c);
    }
    for (int class = 0; class < SLOT_CLASSES; class ++) {
        for (uint32_t slot = 0; state->occupied && class < SLOT_WEIGHTS && slot < program->slots[class]; slot++) {
            char holds[VERIFIER_TEXT];
            if (state->slots[class][slot] > SLOT_FREE)
                return verifier_refuse(verifier, rank, "%s slot %u still holds %s", slot_class_names[class], slot,
                                       verifier_word_text(verifier, state->slots[class][slot], holds));
        }
        if (state->used[class] != program->slots[class])
            return verifier_refuse(verifier, rank, "the rank uses only %u of its %u %s slots", state->used[class],
                                   program->slots[class], slot_class_names[class]);
    }
    if (state->peak != program->peak_activations)
        return verifier_refuse(verifier, rank, "the rank holds up to %s at once, but the program says %u",
                               counted(state->peak, "activation").text, program->peak_activations);
    state->ended = true;
    verifier->ended++;
    return STATUS_OK;
}
