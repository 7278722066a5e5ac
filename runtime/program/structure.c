#include "runtime/program/verify.h"

/* What verify checks before the run. All memory that it takes is bounded by what the program really contains: a count that
   the chunks or instructions do not justify is refused first. */

#define refuse(verifier, ...) error_set((verifier)->error, STATUS_BAD_INPUT, __VA_ARGS__)

static Status no_memory(const Verifier *verifier)
{
    return error_set(verifier->error, STATUS_RUN_FAILED, "no memory to verify the program");
}

static Status check_pipes(const Verifier *verifier)
{
    const Program *program = verifier->program;
    if (program->rank_count == 0 || program->rank_count > PROGRAM_RANKS_MAX)
        return refuse(verifier, "%u ranks: there can be 1 to %d", program->rank_count, PROGRAM_RANKS_MAX);
    if (program->stages == 0 || program->stages > PROGRAM_STAGES_MAX)
        return refuse(verifier, "%u stages: there can be 1 to %d", program->stages, PROGRAM_STAGES_MAX);
    if (program->pipe_count == 0 || program->pipe_count > PROGRAM_PIPES_MAX)
        return refuse(verifier, "%u pipes: there can be 1 to %d", program->pipe_count, PROGRAM_PIPES_MAX);
    uint64_t first = 0;
    for (uint32_t p = 0; p < program->pipe_count; p++) {
        if (program->pipes[p].first != first)
            return refuse(verifier, "pipe %u begins at microbatch %u of the step, the pipes before it end at %llu",
                          p, program->pipes[p].first, (unsigned long long)first);
        first += program->pipes[p].microbatches;
        if (program->pipes[p].microbatches == 0 || first > PROGRAM_MICROBATCHES_MAX)
            return refuse(verifier, "pipe %u has %u microbatches: each needs one, all together at most %d", p,
                          program->pipes[p].microbatches, PROGRAM_MICROBATCHES_MAX);
    }
    if (program->asynchronous && (program->forward_only || program->pipe_count > 1))
        return refuse(verifier, "an asynchronous program has one pipe and is not forward only");
    if (!program->asynchronous && program->pipes[0].versions)
        return refuse(verifier, "versions of weights: only an asynchronous program has several");
    if (first != program->microbatches)
        return refuse(verifier, "the pipes have %llu microbatches, the program %u", (unsigned long long)first,
                      program->microbatches);
    return STATUS_OK;
}

static Status place_stages(Verifier *verifier)
{
    const Program *program = verifier->program;
    uint64_t chunks = 0;
    for (uint32_t r = 0; r < program->rank_count; r++) {
        if (program->ranks[r].chunk_count > PROGRAM_CHUNKS_MAX)
            return refuse(verifier, "rank %u has %u chunks: at most %d", r, program->ranks[r].chunk_count,
                          PROGRAM_CHUNKS_MAX);
        chunks += program->ranks[r].chunk_count;
    }
    const uint64_t places = (uint64_t)program->pipe_count * program->stages;
    if (chunks != places)
        return refuse(verifier, "the ranks hold %llu chunks for %llu stages (of %u pipes)",
                      (unsigned long long)chunks, (unsigned long long)places, program->pipe_count);
    verifier->places = arena_array(&verifier->arena, places, sizeof *verifier->places);
    if (!verifier->places)
        return no_memory(verifier);
    for (uint32_t r = 0; r < program->rank_count; r++) {
        for (uint32_t c = 0; c < program->ranks[r].chunk_count; c++) {
            const Chunk *chunk = &program->ranks[r].chunks[c];
            if (chunk->pipe >= program->pipe_count || chunk->stage >= program->stages)
                return refuse(verifier, "rank %u chunk %u is stage %u of pipe %u: there are %u stages, %u pipes",
                              r, c, chunk->stage, chunk->pipe, program->stages, program->pipe_count);
            Place *place = &verifier->places[(size_t)chunk->pipe * program->stages + chunk->stage];
            if (place->taken)
                return refuse(verifier, "stage %u of pipe %u is rank %u chunk %u and also rank %u chunk %u",
                              chunk->stage, chunk->pipe, place->rank, place->chunk, r, c);
            *place = (Place){(uint16_t)r, (uint8_t)c, true};
        }
    }
    return STATUS_OK; /* as many chunks as places, and none taken twice: none is missing */
}

/* Every stage with several copies has one group: its copies in pipe order, on ranks of their own (a group is a meeting). */
static Status check_groups(Verifier *verifier)
{
    const Program *program = verifier->program;
    const uint32_t expected = program->pipe_count > 1 ? program->stages : 0;
    if (program->group_count != expected)
        return refuse(verifier, "%u groups: %u stages in %u pipes have %u", program->group_count, program->stages,
                      program->pipe_count, expected);
    for (uint32_t g = 0; g < program->group_count; g++) {
        const Group *group = &program->groups[g];
        if (group->stage >= program->stages || group->member_count != program->pipe_count)
            return refuse(verifier, "group %u is stage %u with %u copies: there are %u stages in %u pipes", g,
                          group->stage, group->member_count, program->stages, program->pipe_count);
        for (uint32_t p = 0; p < program->pipe_count; p++) {
            const GroupMember *member = &group->members[p];
            const Place *place = verifier_place(verifier, p, group->stage);
            if (member->rank != place->rank || member->chunk != place->chunk)
                return refuse(verifier, "group %u names rank %u chunk %u as copy %u of stage %u, which is rank %u chunk %u", g,
                              member->rank, member->chunk, p, group->stage, place->rank, place->chunk);
            for (uint32_t other = 0; other < p; other++)
                if (group->members[other].rank == member->rank)
                    return refuse(verifier, "stage %u has two copies on rank %u: a rank can hold one",
                                  group->stage, member->rank);
            ChunkState *chunk = &verifier->ranks[place->rank].chunks[place->chunk];
            if (chunk->group != GROUP_NONE)
                return refuse(verifier, "stage %u is in group %u and in group %u", group->stage, chunk->group, g);
            chunk->group = (uint16_t)g;
        }
    }
    return STATUS_OK;
}

static Status prepare_rank(Verifier *verifier, uint32_t r)
{
    const Program *program = verifier->program;
    const RankProgram *rank = &program->ranks[r];
    RankState *state = &verifier->ranks[r];
    state->program = rank;
    if (rank->instruction_count == 0 || rank->instructions[rank->instruction_count - 1].opcode != OP_END)
        return refuse(verifier, "rank %u: the last of its %u instructions is not END", r, rank->instruction_count);
    for (int class = 0; class < SLOT_WEIGHTS; class++) {
        /* An instruction fills at most one slot of a class. */
        if (rank->slots[class] > PROGRAM_SLOTS_MAX || rank->slots[class] > rank->instruction_count)
            return refuse(verifier, "rank %u has %u %s slots for %u instructions", r, rank->slots[class],
                          slot_class_names[class], rank->instruction_count);
        state->slots[class] = arena_array(&verifier->arena, rank->slots[class], sizeof *state->slots[class]);
        if (!state->slots[class])
            return no_memory(verifier);
    }
    const uint32_t weights = rank->slots[SLOT_WEIGHTS];
    if (weights < rank->chunk_count || weights - rank->chunk_count > rank->instruction_count || weights > PROGRAM_SLOTS_MAX)
        return refuse(verifier, "rank %u has %u weights slots for %u chunks and %u instructions", r, weights, rank->chunk_count,
                      rank->instruction_count);
    state->weights = arena_array(&verifier->arena, weights, sizeof *state->weights);
    state->chunks = arena_array(&verifier->arena, rank->chunk_count, sizeof *state->chunks);
    if (!state->chunks || !state->weights)
        return no_memory(verifier);
    state->used[SLOT_WEIGHTS] = rank->chunk_count;
    for (uint32_t w = 0; w < weights; w++)
        state->weights[w].chunk = w < rank->chunk_count ? (uint16_t)w : CHUNK_NONE;
    uint64_t passes = 0;
    for (uint32_t c = 0; c < rank->chunk_count; c++)
        passes += program->pipes[rank->chunks[c].pipe].microbatches;
    if (passes >= rank->instruction_count)
        return refuse(verifier, "rank %u has %u instructions for %llu forward passes", r, rank->instruction_count,
                      (unsigned long long)passes);
    for (uint32_t c = 0; c < rank->chunk_count; c++) {
        ChunkState *chunk = &state->chunks[c];
        chunk->pipe = rank->chunks[c].pipe;
        chunk->stage = rank->chunks[c].stage;
        chunk->label = (uint64_t)chunk->pipe << LABEL_PIPE_SHIFT | (uint64_t)chunk->stage << LABEL_STAGE_SHIFT;
        chunk->microbatches = program->pipes[chunk->pipe].microbatches;
        chunk->group = GROUP_NONE;
        chunk->passes = arena_array(&verifier->arena, chunk->microbatches, 1);
        chunk->wanted = program->pipes[chunk->pipe].versions;
        chunk->versions = program->asynchronous ? arena_array(&verifier->arena, chunk->microbatches, sizeof *chunk->versions) : NULL;
        if (!chunk->passes || (program->asynchronous && !chunk->versions))
            return no_memory(verifier);
    }
    return STATUS_OK;
}

Status verifier_prepare(Verifier *verifier)
{
    const Program *program = verifier->program;
    TRY(check_pipes(verifier));
    TRY(place_stages(verifier));
    verifier->ranks = arena_array(&verifier->arena, program->rank_count, sizeof *verifier->ranks);
    verifier->runnable = arena_array(&verifier->arena, program->rank_count, sizeof *verifier->runnable);
    verifier->reduce_arrivals = arena_array(&verifier->arena, program->group_count, sizeof *verifier->reduce_arrivals);
    if (!verifier->ranks || !verifier->runnable || !verifier->reduce_arrivals)
        return no_memory(verifier);
    for (uint32_t r = 0; r < program->rank_count; r++)
        TRY(prepare_rank(verifier, r));
    return check_groups(verifier);
}
