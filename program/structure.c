#include "program/verify.h"

#include "base/counted.h"

#include <string.h>

/* The static checks of the verifier. Their memory is bounded by the size of the program: a count that is larger than
   the chunks or instructions allow is refused before anything is allocated for it. */

#define refuse(verifier, ...) error_set((verifier)->error, STATUS_BAD_INPUT, __VA_ARGS__)

static Status no_memory(const Verifier *verifier)
{
    return error_set(verifier->error, STATUS_NO_MEMORY, "no memory to verify the program");
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
            return refuse(verifier, "pipe %u begins at microbatch %u of the step, but must begin at %llu", p,
                          program->pipes[p].first, (unsigned long long)first);
        first += program->pipes[p].microbatches;
        if (program->pipes[p].microbatches == 0 || first > PROGRAM_MICROBATCHES_MAX)
            return refuse(verifier, "pipe %u has %s: a pipe needs at least one, all pipes together at most %d", p,
                          counted(program->pipes[p].microbatches, "microbatch").text, PROGRAM_MICROBATCHES_MAX);
    }
    if (program->asynchronous && program->forward_only)
        return refuse(verifier, "a program cannot be both asynchronous and forward-only");
    for (uint32_t p = 0; p < program->pipe_count; p++) {
        if (!program->asynchronous && program->pipes[p].versions)
            return refuse(verifier,
                          "pipe %u names versions of weights, but only an asynchronous program has several versions",
                          p);
        if (!program->pipes[p].versions != !program->pipes[0].versions)
            return refuse(verifier, "pipe %u %s which versions of the weights its microbatches use, but pipe 0 %s", p,
                          program->pipes[p].versions ? "says" : "does not say",
                          program->pipes[p].versions ? "does not" : "does");
    }
    if (first != program->microbatches)
        return refuse(verifier, "the pipes have %s together, but the program has %u", counted(first, "microbatch").text,
                      program->microbatches);
    return STATUS_OK;
}

static Status check_recipe(const Verifier *verifier, const Recipe *recipe, const char *pairs)
{
    RecipeFault fault;
    if (recipe_is_forward(recipe) != recipes_are_forward(&verifier->program->recipes))
        return refuse(verifier, "some recipes are of F&Bs and others of F&Fs: a program has one kind");
    if (recipe_check(recipe, &fault))
        return STATUS_OK;
    return refuse(verifier, "the recipe of %s: %s", pairs, fault.text);
}

static bool has_chunk(const Program *program, uint32_t chunk)
{
    for (uint32_t r = 0; r < program->rank_count; r++)
        if (chunk < program->ranks[r].chunk_count)
            return true;
    return false;
}

static Status check_recipes(const Verifier *verifier)
{
    const Recipes *recipes = &verifier->program->recipes;
    char pairs[20];
    for (uint32_t i = 0; i < recipes->count; i++) {
        const ChunkRecipe *own = &recipes->own[i];
        recipes_pair_text(recipes, i, pairs, sizeof pairs);
        if (recipes_find(recipes, own->first, own->second) < i)
            return refuse(verifier, "%s has two recipes", pairs);
        if (!has_chunk(verifier->program, own->first) || !has_chunk(verifier->program, own->second))
            return refuse(verifier, "the recipe of %s names a chunk that no rank has", pairs);
        TRY(check_recipe(verifier, &own->recipe, pairs));
    }
    recipes_pair_text(recipes, recipes->count, pairs, sizeof pairs);
    return recipes->common ? check_recipe(verifier, recipes->common, pairs) : STATUS_OK;
}

static Status place_stages(Verifier *verifier)
{
    const Program *program = verifier->program;
    uint64_t chunks = 0;
    for (uint32_t r = 0; r < program->rank_count; r++) {
        if (program->ranks[r].chunk_count > PROGRAM_CHUNKS_MAX)
            return refuse(verifier, "rank %u has %u chunks: a rank can have at most %d", r,
                          program->ranks[r].chunk_count, PROGRAM_CHUNKS_MAX);
        if (program->ranks[r].chunk_count == 0)
            return refuse(verifier, "rank %u has no chunk: each rank needs one", r);
        chunks += program->ranks[r].chunk_count;
    }
    const uint64_t places = (uint64_t)program->pipe_count * program->stages;
    if (chunks < places)
        return refuse(verifier, "the ranks hold %s, which is too few for the %s of %s", counted(chunks, "chunk").text,
                      counted(places, "stage").text, counted(program->pipe_count, "pipe").text);
    verifier->places = arena_array(&verifier->arena, places, sizeof *verifier->places);
    if (!verifier->places)
        return no_memory(verifier);
    for (uint32_t r = 0; r < program->rank_count; r++) {
        for (uint32_t c = 0; c < program->ranks[r].chunk_count; c++) {
            const Chunk *chunk = &program->ranks[r].chunks[c];
            if (chunk->pipe >= program->pipe_count || chunk->stage >= program->stages)
                return refuse(verifier, "rank %u chunk %u is stage %u of pipe %u, but the program has only %s and %s",
                              r, c, chunk->stage, chunk->pipe, counted(program->stages, "stage").text,
                              counted(program->pipe_count, "pipe").text);
            Place *place = &verifier->places[(size_t)chunk->pipe * program->stages + chunk->stage];
            for (uint32_t other = 0; other < c; other++)
                if (program->ranks[r].chunks[other].stage == chunk->stage)
                    return refuse(verifier, "stage %u has two copies on rank %u: a rank can hold one copy of a stage",
                                  chunk->stage, r);
            if (!place->copies)
                *place = (Place){.rank = (uint16_t)r, .chunk = (uint8_t)c};
            place->copies++;
        }
    }
    for (uint32_t i = 0; i < places; i++)
        if (!verifier->places[i].copies)
            return refuse(verifier, "stage %u of pipe %u is on no rank", i % program->stages, i / program->stages);
    return STATUS_OK;
}

/* The number of chunks that are copies of a stage, over all pipes. */
static uint32_t count_copies(const Verifier *verifier, uint32_t stage)
{
    uint32_t copies = 0;
    for (uint32_t p = 0; p < verifier->program->pipe_count; p++)
        copies += verifier_place(verifier, p, stage)->copies;
    return copies;
}

/* Checks that every stage with several copies has one group, in stage order, with its copies in the order of pipes,
   then ranks. */
static Status check_groups(Verifier *verifier)
{
    const Program *program = verifier->program;
    uint32_t g = 0;
    for (uint32_t s = 0; s < program->stages; s++) {
        const uint32_t copies = count_copies(verifier, s);
        if (copies == 1)
            continue;
        if (g == program->group_count)
            return refuse(verifier, "stage %u has %u copies, but the program has no group for them", s, copies);
        const Group *group = &program->groups[g];
        if (group->stage != s || group->member_count != copies)
            return refuse(verifier, "group %u must have the %u copies of stage %u, but has %s of stage %u", g, copies,
                          s, counted(group->member_count, "copy").text, group->stage);
        for (uint32_t m = 0, pipe = 0, next = 0; m < copies; m++) {
            const Home *member = &group->members[m];
            if (next == verifier_place(verifier, pipe, s)->copies) {
                pipe++;
                next = 0;
            }
            next++;
            ChunkState *chunk =
                member->rank < program->rank_count && member->chunk < program->ranks[member->rank].chunk_count
                    ? &verifier->ranks[member->rank].chunks[member->chunk]
                    : NULL;
            if (!chunk || chunk->stage != s || chunk->pipe != pipe)
                return refuse(verifier,
                              "member %u of group %u is rank %u chunk %u, which is not a copy of stage %u of pipe %u",
                              m, g, member->rank, member->chunk, s, pipe);
            if (next > 1 && group->members[m - 1].rank >= member->rank)
                return refuse(
                    verifier,
                    "group %u names rank %u after rank %u: the copies of a pipe must be in the order of their ranks", g,
                    member->rank, group->members[m - 1].rank);
            chunk->group = (uint16_t)g;
        }
        g++;
    }
    if (g < program->group_count)
        return refuse(verifier, "the program has %s, but must have %u: one for each stage with several copies",
                      counted(program->group_count, "group").text, g);
    return STATUS_OK;
}

/* --- stages with several copies in a pipe --- */

/* The most F that `instructions` instructions can have: an F&F of a forward-only program has two. */
static uint64_t most_forwards(const Program *program, uint64_t instructions)
{
    return program->forward_only ? 2 * instructions : instructions;
}

/* Allocates Place.homes and Place.passes of the stages that have several copies in one pipe. Sets *replicated if there
   are such stages. */
static Status make_homes(Verifier *verifier, bool *replicated)
{
    const Program *program = verifier->program;
    uint64_t passes = 0, instructions = 0;
    for (uint32_t r = 0; r < program->rank_count; r++)
        instructions += program->ranks[r].instruction_count;
    for (uint32_t p = 0; p < program->pipe_count; p++)
        for (uint32_t s = 0; s < program->stages; s++) {
            Place *place = &verifier->places[(size_t)p * program->stages + s];
            const uint32_t microbatches = program->pipes[p].microbatches;
            if (place->copies == 1)
                continue;
            passes += microbatches;
            if (passes > most_forwards(program, instructions))
                return refuse(verifier, "too few instructions: %u for at least %s", (unsigned)instructions,
                              counted(passes, "forward pass").text);
            place->homes = arena_array(&verifier->arena, microbatches, sizeof *place->homes);
            place->passes = arena_array(&verifier->arena, microbatches, 1);
            if (!place->homes || !place->passes)
                return no_memory(verifier);
            memset(place->homes, 0xff, microbatches * sizeof *place->homes);
            *replicated = true;
        }
    return STATUS_OK;
}

enum { NOWHERE = 0xffff };

/* Records the rank that runs the F of a microbatch as the microbatch's home: it uses the copy of the stage on that
   rank. */
static Status find_home(Verifier *verifier, uint32_t r, const Instruction *half)
{
    const RankProgram *rank = &verifier->program->ranks[r];
    if (!opcode_is_forward(half->opcode) || half->chunk >= rank->chunk_count)
        return STATUS_OK; /* no F, or a wrong operand, which program_verify reports later */
    const Chunk *chunk = &rank->chunks[half->chunk];
    const Place *place = verifier_place(verifier, chunk->pipe, chunk->stage);
    if (!place->homes || half->microbatch >= verifier->program->pipes[chunk->pipe].microbatches)
        return STATUS_OK;
    uint16_t *home = &place->homes[half->microbatch];
    if (*home != NOWHERE && *home != r)
        return refuse(verifier,
                      "the F of stage %u microbatch %u is on rank %u and on rank %u: only one of them may run it",
                      chunk->stage, half->microbatch, *home, r);
    verifier->ranks[r].chunks[half->chunk].own += *home == NOWHERE;
    *home = (uint16_t)r;
    return STATUS_OK;
}

static Status find_homes(Verifier *verifier)
{
    const Program *program = verifier->program;
    bool replicated = false;
    TRY(make_homes(verifier, &replicated));
    for (uint32_t r = 0; replicated && r < program->rank_count; r++) {
        const RankProgram *rank = &program->ranks[r];
        for (uint32_t i = 0; i < rank->instruction_count; i++)
            for (const Instruction *half = &rank->instructions[i]; half; half = half->second)
                TRY(find_home(verifier, r, half));
    }
    for (uint32_t p = 0; replicated && p < program->pipe_count; p++)
        for (uint32_t s = 0; s < program->stages; s++) {
            const Place *place = verifier_place(verifier, p, s);
            for (uint32_t m = 0; place->homes && m < program->pipes[p].microbatches; m++)
                if (place->homes[m] == NOWHERE)
                    return refuse(verifier, "the F of stage %u microbatch %u is on no rank", s, m);
        }
    return STATUS_OK;
}

/* --- ranks --- */

static Status make_chunks(Verifier *verifier, uint32_t r)
{
    const RankProgram *rank = &verifier->program->ranks[r];
    RankState *state = &verifier->ranks[r];
    state->program = rank;
    state->chunks = arena_array(&verifier->arena, rank->chunk_count, sizeof *state->chunks);
    if (!state->chunks)
        return no_memory(verifier);
    for (uint32_t c = 0; c < rank->chunk_count; c++) {
        ChunkState *chunk = &state->chunks[c];
        chunk->pipe = rank->chunks[c].pipe;
        chunk->stage = rank->chunks[c].stage;
        chunk->label = (uint64_t)chunk->pipe << LABEL_PIPE_SHIFT | (uint64_t)chunk->stage << LABEL_STAGE_SHIFT;
        chunk->microbatches = verifier->program->pipes[chunk->pipe].microbatches;
        chunk->group = GROUP_NONE;
    }
    return STATUS_OK;
}

static Status prepare_rank(Verifier *verifier, uint32_t r)
{
    const Program *program = verifier->program;
    const RankProgram *rank = &program->ranks[r];
    RankState *state = &verifier->ranks[r];
    if (rank->instruction_count == 0 || rank->instructions[rank->instruction_count - 1].opcode != OP_END)
        return refuse(verifier, "rank %u does not end with END", r);
    for (int class = 0; class < SLOT_WEIGHTS; class ++) {
        /* An instruction fills at most one slot of a class, an F&B or F&F two. The compiler never gives a rank more
           slots of a class than instructions. */
        if (rank->slots[class] > PROGRAM_SLOTS_MAX || rank->slots[class] > rank->instruction_count)
            return refuse(verifier, "rank %u has %u %s slots for %s, which is too many", r, rank->slots[class],
                          slot_class_names[class], counted(rank->instruction_count, "instruction").text);
        state->slots[class] = arena_array(&verifier->arena, rank->slots[class], sizeof *state->slots[class]);
        if (!state->slots[class])
            return no_memory(verifier);
    }
    const uint32_t weights = rank->slots[SLOT_WEIGHTS];
    if (weights < rank->chunk_count || weights - rank->chunk_count > rank->instruction_count ||
        weights > PROGRAM_SLOTS_MAX)
        return refuse(verifier, "rank %u has %s for %s, which is too %s", r, counted(weights, "weights slot").text,
                      counted(rank->chunk_count, "chunk").text, weights < rank->chunk_count ? "few" : "many");
    state->weights = arena_array(&verifier->arena, weights, sizeof *state->weights);
    if (!state->weights)
        return no_memory(verifier);
    state->used[SLOT_WEIGHTS] = rank->chunk_count;
    for (uint32_t w = 0; w < weights; w++)
        state->weights[w].chunk = w < rank->chunk_count ? (uint16_t)w : CHUNK_NONE;
    uint64_t passes = 0;
    for (uint32_t c = 0; c < rank->chunk_count; c++) {
        ChunkState *chunk = &state->chunks[c];
        const Place *place = verifier_place(verifier, chunk->pipe, chunk->stage);
        if (!place->homes)
            chunk->own = chunk->microbatches;
        else if (!chunk->own)
            return refuse(verifier, "rank %u chunk %u is a copy of stage %u, but no microbatch goes through it", r, c,
                          chunk->stage);
        chunk->homes = place->homes;
        chunk->passes = place->passes;
        passes += chunk->own;
    }
    if (passes >= most_forwards(verifier->program, rank->instruction_count))
        return refuse(verifier, "rank %u has too few instructions: %u for %s and END", r, rank->instruction_count,
                      counted(passes, "forward pass").text);
    for (uint32_t c = 0; c < rank->chunk_count; c++) {
        ChunkState *chunk = &state->chunks[c];
        if (!chunk->passes)
            chunk->passes = arena_array(&verifier->arena, chunk->microbatches, 1);
        chunk->wanted = program->pipes[chunk->pipe].versions;
        chunk->versions =
            program->asynchronous ? arena_array(&verifier->arena, chunk->microbatches, sizeof *chunk->versions) : NULL;
        if (!chunk->passes || (program->asynchronous && !chunk->versions))
            return no_memory(verifier);
    }
    return STATUS_OK;
}

Status verifier_prepare(Verifier *verifier)
{
    const Program *program = verifier->program;
    TRY(check_pipes(verifier));
    TRY(check_recipes(verifier));
    TRY(place_stages(verifier));
    verifier->ranks = arena_array(&verifier->arena, program->rank_count, sizeof *verifier->ranks);
    verifier->runnable = arena_array(&verifier->arena, program->rank_count, sizeof *verifier->runnable);
    verifier->reduce_arrivals = arena_array(&verifier->arena, program->group_count, sizeof *verifier->reduce_arrivals);
    if (!verifier->ranks || !verifier->runnable || !verifier->reduce_arrivals)
        return no_memory(verifier);
    for (uint32_t r = 0; r < program->rank_count; r++)
        TRY(make_chunks(verifier, r));
    TRY(find_homes(verifier));
    for (uint32_t r = 0; r < program->rank_count; r++)
        TRY(prepare_rank(verifier, r));
    return check_groups(verifier);
}
