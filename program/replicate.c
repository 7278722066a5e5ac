/* One program with the passes of all replicas of a mesh, for program_reference. */
#include "program/derive.h"

#include <string.h>

/* Gives every replica its own pipes, whose microbatches are numbered after those of the replicas before. */
static void replicate_pipes(const Program *program, uint32_t replicas, Arena *arena, Program *mesh)
{
    mesh->pipe_count = replicas * program->pipe_count;
    mesh->pipes = arena_array(arena, mesh->pipe_count, sizeof *mesh->pipes);
    for (uint32_t p = 0; p < mesh->pipe_count; p++) {
        mesh->pipes[p] = program->pipes[p % program->pipe_count];
        mesh->pipes[p].first += p / program->pipe_count * program->microbatches;
    }
}

/* Gives every replica its own ranks. Their chunks are in the pipes of the replica. The ranks share the
   instructions of the program. */
static void replicate_ranks(const Program *program, uint32_t replicas, Arena *arena, Program *mesh)
{
    mesh->rank_count = replicas * program->rank_count;
    mesh->ranks = arena_array(arena, mesh->rank_count, sizeof *mesh->ranks);
    for (uint32_t r = 0; r < mesh->rank_count; r++) {
        RankProgram *rank = &mesh->ranks[r];
        *rank = program->ranks[r % program->rank_count];
        const Chunk *chunks = rank->chunks;
        rank->chunks = arena_array(arena, rank->chunk_count, sizeof *chunks);
        for (uint32_t c = 0; c < rank->chunk_count; c++)
            rank->chunks[c] = (Chunk){
                .pipe = (uint16_t)(chunks[c].pipe + r / program->rank_count * program->pipe_count),
                .stage = chunks[c].stage,
            };
    }
}

/* The copies of a stage in the program. A stage with one copy has no group in the program; for such a stage this
   function sets *alone to the copy and returns a group that has only it. */
static Group copies_of(const Program *program, uint32_t stage, Home *alone)
{
    const Group *group = program_group(program, stage);
    if (group)
        return *group;
    for (uint32_t r = 0; r < program->rank_count; r++)
        for (uint32_t c = 0; c < program->ranks[r].chunk_count; c++)
            if (program->ranks[r].chunks[c].stage == stage)
                *alone = (Home){(uint16_t)r, (uint8_t)c};
    return (Group){.stage = (uint16_t)stage, .member_count = 1, .members = alone};
}

/* Makes one group of the copies of each stage in all replicas, replica after replica. */
static void replicate_groups(const Program *program, uint32_t replicas, Arena *arena, Program *mesh)
{
    mesh->group_count = mesh->stages;
    mesh->groups = arena_array(arena, mesh->group_count, sizeof *mesh->groups);
    for (uint32_t s = 0; s < mesh->stages; s++) {
        Home alone;
        const Group own = copies_of(program, s, &alone);
        Group *group = &mesh->groups[s];
        *group = (Group){.stage = (uint16_t)s, .member_count = (uint16_t)(replicas * own.member_count)};
        group->members = arena_array(arena, group->member_count, sizeof *group->members);
        for (uint32_t i = 0; i < group->member_count; i++) {
            group->members[i] = own.members[i % own.member_count];
            group->members[i].rank = (uint16_t)(group->members[i].rank + i / own.member_count * program->rank_count);
        }
    }
}

Program *derive_mesh(const Program *program, uint32_t replicas, Arena *arena)
{
    Program *mesh = arena_allocate(arena, sizeof *mesh);
    *mesh = *program;
    mesh->microbatches = replicas * program->microbatches;
    replicate_pipes(program, replicas, arena, mesh);
    replicate_ranks(program, replicas, arena, mesh);
    replicate_groups(program, replicas, arena, mesh);
    return mesh;
}
