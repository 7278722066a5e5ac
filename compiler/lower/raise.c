#include "compiler/lower/raise.h"

#include <string.h>

static const uint8_t kind_of[OPCODE_COUNT] = {
    [OP_FORWARD] = ACTION_F,
    [OP_FORWARD_ONLY] = ACTION_F,
    [OP_OVERLAP] = ACTION_F,
    [OP_OVERLAP_FORWARD] = ACTION_F,
    [OP_BACKWARD] = ACTION_B,
    [OP_BACKWARD_INPUT] = ACTION_I,
    [OP_BACKWARD_WEIGHT] = ACTION_W,
    [OP_ASYNC_UPDATE] = ACTION_U,
    [OP_SEND_FORWARD] = ACTION_SEND_F,
    [OP_RECEIVE_FORWARD] = ACTION_RECV_F,
    [OP_SEND_BACKWARD] = ACTION_SEND_B,
    [OP_RECEIVE_BACKWARD] = ACTION_RECV_B,
};

/* Makes a source of empty lines, up to the last line that an instruction names. Line n begins at byte n - 1. */
static void raise_source(const Program *program, Arena *arena, Source *source)
{
    uint32_t lines = 1;
    for (uint32_t r = 0; r < program->rank_count; r++)
        for (uint32_t i = 0; i < program->ranks[r].instruction_count; i++)
            for (const Instruction *half = &program->ranks[r].instructions[i]; half; half = half->second)
                lines = half->line > lines ? half->line : lines;
    char *const text = arena_allocate(arena, (size_t)lines + 1);
    memset(text, '\n', lines);
    *source = (Source){.path = program->source, .text = text, .size = lines};
    source_lines(source, arena);
}

static void raise_pipes(const Program *program, Arena *arena, Schedule *schedule)
{
    schedule->pipes = arena_array(arena, program->pipe_count, sizeof *schedule->pipes);
    for (uint32_t p = 0; p < program->pipe_count; p++)
        schedule->pipes[p] = (PlacedPipe){.name = arena_format(arena, "p%u", p),
                                          .stages = program->stages,
                                          .microbatches = program->pipes[p].microbatches,
                                          .written = program->pipes[p].microbatches,
                                          .first = program->pipes[p].first,
                                          .versions = program->pipes[p].versions};
    for (uint32_t p = 0; p < program->pipe_count; p++)
        schedule->pipes[p].homes =
            arena_array(arena, (size_t)program->stages * program->pipes[p].microbatches, sizeof(Home));
}

/* Fills in the chunks and the order of a rank, and the homes of the stages and microbatches whose F this rank runs.
   */
static void raise_rank(const Program *program, uint32_t r, Arena *arena, Schedule *schedule)
{
    const RankProgram *rank = &program->ranks[r];
    uint32_t *const updates = arena_array(arena, rank->chunk_count, sizeof *updates);
    schedule->chunk_counts[r] = rank->chunk_count;
    schedule->chunks[r] = arena_array(arena, rank->chunk_count, sizeof **schedule->chunks);
    for (uint32_t c = 0; c < rank->chunk_count; c++)
        schedule->chunks[r][c] = (PlacedChunk){rank->chunks[c].pipe, rank->chunks[c].stage};
    for (uint32_t i = 0; i < rank->instruction_count; i++)
        for (const Instruction *half = &rank->instructions[i]; half; half = half->second) {
            if (!opcode_is_ordered(half->opcode))
                continue;
            const Chunk *chunk = &rank->chunks[half->chunk];
            const bool is_update = half->opcode == OP_ASYNC_UPDATE;
            const uint32_t at = half->line ? half->line - 1 : 0;
            order_append(&schedule->orders[r], arena,
                         &(Action){.kind = kind_of[half->opcode],
                                   .chunk = half->chunk,
                                   .overlap = half->second != NULL,
                                   .pipe = chunk->pipe,
                                   .stage = chunk->stage,
                                   /* copies put_off of a pass, too: it shares its memory with peer */
                                   .peer = half->peer,
                                   .microbatch = is_update ? ++updates[half->chunk] : half->microbatch,
                                   .span = {at, at + 1}});
            if (kind_of[half->opcode] == ACTION_F) {
                PlacedPipe *pipe = &schedule->pipes[chunk->pipe];
                pipe->homes[(size_t)chunk->stage * pipe->written + half->microbatch] = (Home){(uint16_t)r, half->chunk};
            }
        }
}

/* If every stage of the pipe lives on a single rank, keeps one home for each stage instead of one for each stage and
   microbatch. */
static void raise_homes(PlacedPipe *pipe)
{
    for (uint32_t s = 0; s < pipe->stages; s++)
        for (uint32_t m = 1; m < pipe->written; m++)
            pipe->replicated |=
                pipe->homes[(size_t)s * pipe->written + m].rank != pipe->homes[(size_t)s * pipe->written].rank;
    for (uint32_t s = 0; s < pipe->stages && !pipe->replicated; s++)
        pipe->homes[s] = pipe->homes[(size_t)s * pipe->written];
}

void raise_schedule(const Program *program, Arena *arena, Source *source, Schedule *schedule)
{
    raise_source(program, arena, source);
    *schedule = (Schedule){.name = program->schedule,
                           .ranks = program->rank_count,
                           .microbatches = program->microbatches,
                           .pipe_count = program->pipe_count,
                           .chunk_counts = arena_array(arena, program->rank_count, sizeof *schedule->chunk_counts),
                           .chunks = arena_array(arena, program->rank_count, sizeof *schedule->chunks),
                           .orders = arena_array(arena, program->rank_count, sizeof *schedule->orders),
                           .has_messages = true,
                           .forward_only = program->forward_only,
                           .recipes = program->recipes};
    raise_pipes(program, arena, schedule);
    for (uint32_t r = 0; r < program->rank_count; r++)
        raise_rank(program, r, arena, schedule);
    for (uint32_t p = 0; p < program->pipe_count; p++)
        raise_homes(&schedule->pipes[p]);
}
