#include "program/derive.h"

#include "program/operands.h"

#include <string.h>

/* program_reference: all stages of a program on one rank. */

/* The passes of one microbatch on one stage. */
typedef struct Visit {
    /* the microbatch whose W the copy runs after the W of this microbatch; NOBODY: this W is the copy's last */
    uint32_t next_weight;
    struct Copy *copy;                  /* the copy of the stage that the microbatch uses */
    uint32_t forward_line, weight_line; /* source lines of its F, and of its B or W */
    bool forward, backward;             /* whether its F, and its B or I, have been appended */
} Visit;

/* A copy of a stage: a chunk of a rank of the program. */
typedef struct Copy {
    uint32_t place; /* index in the stage's group */
    /* next_weight: the microbatch whose W the reference appends next for this copy. last_weight: the microbatch of the
       copy's last W found so far in the program */
    uint32_t next_weight, last_weight;
    uint32_t newest; /* version of the copy's weights */
} Copy;

enum { NOBODY = UINT32_MAX };

/* A stage's weights, all of its copies together. */
typedef struct Weights {
    /* arrivals: how often a copy has reached a REDUCE, summed over all copies and versions */
    uint32_t copies, arrivals;
    uint32_t newest; /* the newest version made */
} Weights;

typedef struct Line {
    const Program *program;
    Program *result;
    Instruction *instructions; /* the stream of the one rank, without slots */
    uint32_t count;
    uint32_t replicas; /* replicas of the pipeline; the microbatch count of a U is multiplied by this number */
    uint32_t shards;   /* consecutive replicas that together hold one copy of sharded parameters */
    uint32_t each;     /* microbatches of one replica */
    Visit *visits;     /* [stage][microbatch of the step]: the passes of this microbatch on this stage */
    Weights *weights;  /* [stage]: the stage's weights */
    Copy **copies;     /* [rank][chunk]: the copy of a stage that is this chunk */
    uint32_t lines[OPCODE_COUNT]; /* source lines of REDUCE, NORM, UPDATE and END */
} Line;

static Visit *visit_of(const Line *line, uint32_t stage, uint32_t microbatch)
{
    return &line->visits[(size_t)stage * line->program->microbatches + microbatch];
}

static void append(Line *line, Instruction instruction) { line->instructions[line->count++] = instruction; }

/* --- collecting the stages of the program --- */

static void find_copies(Line *line, Arena *arena, Arena *scratch)
{
    const Program *program = line->program;
    for (uint32_t s = 0; s < program->stages; s++)
        line->weights[s].copies = 1;
    for (uint32_t r = 0; r < program->rank_count; r++) {
        const uint32_t chunks = program->ranks[r].chunk_count;
        line->copies[r] = arena_array(scratch, chunks, sizeof **line->copies);
        for (uint32_t c = 0; c < chunks; c++)
            line->copies[r][c].next_weight = NOBODY;
    }
    for (uint32_t g = 0; g < program->group_count; g++) {
        const Group *group = &program->groups[g];
        StageCopies *copies = &line->result->copies[group->stage];
        copies->count = line->weights[group->stage].copies = group->member_count;
        copies->of = arena_array(arena, program->microbatches, sizeof *copies->of);
        copies->sharded_of = arena_array(arena, program->microbatches, sizeof *copies->sharded_of);
        for (uint32_t m = 0; m < group->member_count; m++)
            line->copies[group->members[m].rank][group->members[m].chunk].place = m;
    }
}

/* A microbatch uses the copy that runs its F. */
static void note_forward(Line *line, Copy *copy, const Chunk *chunk, const Instruction *forward)
{
    const StageCopies *copies = &line->result->copies[chunk->stage];
    const uint32_t number = line->program->pipes[chunk->pipe].first + forward->microbatch;
    Visit *visit = visit_of(line, chunk->stage, number);
    visit->copy = copy;
    visit->forward_line = forward->line;
    visit->next_weight = NOBODY;
    if (!copies->of)
        return;
    const uint32_t of_replica = copies->count / line->replicas, before = copy->place / of_replica % line->shards;
    copies->of[number] = (uint16_t)copy->place;
    copies->sharded_of[number] = (uint16_t)(copy->place - before * of_replica);
}

static void note_weight(Line *line, Copy *copy, const Chunk *chunk, const Instruction *weight)
{
    const uint32_t number = line->program->pipes[chunk->pipe].first + weight->microbatch;
    visit_of(line, chunk->stage, number)->weight_line = weight->line;
    if (copy->next_weight == NOBODY)
        copy->next_weight = number;
    else
        visit_of(line, chunk->stage, copy->last_weight)->next_weight = number;
    copy->last_weight = number;
}

/* Records for the passes of rank r which copy of a stage each microbatch uses, and in which order each copy runs its
   W. */
static void note_passes(Line *line, uint32_t r)
{
    const RankProgram *rank = &line->program->ranks[r];
    for (uint32_t i = 0; i < rank->instruction_count; i++)
        for (const Instruction *half = &rank->instructions[i]; half; half = half->second) {
            Copy *copy = &line->copies[r][half->chunk];
            const Chunk *chunk = &rank->chunks[half->chunk];
            if (opcode_is_forward(half->opcode))
                note_forward(line, copy, chunk, half);
            else if (half->opcode == OP_BACKWARD || half->opcode == OP_BACKWARD_WEIGHT)
                note_weight(line, copy, chunk, half);
            else
                line->lines[half->opcode] = half->line;
        }
}

/* Allocates the tables of `line` and notes which copy of each stage runs each microbatch. */
static void survey(Line *line, Arena *arena, Arena *scratch)
{
    const Program *program = line->program;
    const size_t passes = (size_t)program->stages * program->microbatches;
    /* an upper bound: F, I and W for each stage and microbatch, plus the number of instructions of the program */
    uint64_t instructions = 3 * passes;
    for (uint32_t r = 0; r < program->rank_count; r++)
        instructions += program->ranks[r].instruction_count;
    line->visits = arena_array(scratch, passes, sizeof *line->visits);
    line->weights = arena_array(scratch, program->stages, sizeof *line->weights);
    line->copies = arena_array(scratch, program->rank_count, sizeof *line->copies);
    line->result->copies = arena_array(arena, program->stages, sizeof *line->result->copies);
    line->instructions = arena_array(scratch, instructions, sizeof *line->instructions);
    find_copies(line, arena, scratch);
    for (uint32_t r = 0; r < program->rank_count; r++)
        note_passes(line, r);
}

/* --- passes on the one rank --- */

/* Appends a pass to the stream of the one rank. False: a pass that it needs has not been appended yet. */
static bool add_pass(Line *line, Opcode opcode, uint32_t stage, uint32_t microbatch, uint32_t source_line)
{
    Visit *visit = visit_of(line, stage, microbatch);
    if (opcode == OP_FORWARD) {
        if (stage > 0 && !visit_of(line, stage - 1, microbatch)->forward)
            return false;
        visit->forward = true;
    } else if (opcode != OP_BACKWARD_WEIGHT) {
        if (stage + 1 < line->program->stages && !visit_of(line, stage + 1, microbatch)->backward)
            return false;
        visit->backward = true;
    }
    Instruction pass = instruction_blank(opcode, source_line);
    pass.chunk = (uint8_t)stage;
    pass.microbatch = microbatch;
    append(line, pass);
    return true;
}

static void add_of_stage(Line *line, Opcode opcode, uint32_t stage, uint32_t source_line)
{
    Instruction instruction = instruction_blank(opcode, source_line);
    instruction.chunk = (uint8_t)stage;
    append(line, instruction);
}

static void add_sum(Line *line, uint32_t stage, uint32_t source_line)
{
    add_of_stage(line, OP_REDUCE, stage, source_line);
    add_of_stage(line, OP_WAIT_REDUCE, stage, source_line);
}

/* --- synchronous: microbatch after microbatch --- */

static void add_own(Line *line, Opcode opcode, uint32_t stage, uint32_t microbatch)
{
    const Visit *visit = visit_of(line, stage, microbatch);
    add_pass(line, opcode, stage, microbatch, opcode == OP_FORWARD ? visit->forward_line : visit->weight_line);
}

/* Adds a pass of a microbatch of the first of `shards` consecutive replicas, and then the same pass of the same
   microbatch of the others. */
static void add_of_shards(Line *line, Opcode opcode, uint32_t stage, uint32_t microbatch)
{
    for (uint32_t shard = 0; shard < line->shards; shard++)
        add_own(line, opcode, stage, microbatch + shard * line->each);
}

/* Appends the I of a microbatch. Then appends every W that is next in the order of its copy and whose I is already
   there: so each copy adds up its gradient in the order of the program. Each W is followed by the same W of the other
   replicas that together hold all shards, so the gradient of sharded parameters is added up replica after replica. The
   F of a forward-only program get a backward too, which program_forward_only removes. */
static void add_backward(Line *line, uint32_t stage, uint32_t microbatch)
{
    const Visit *visit = visit_of(line, stage, microbatch);
    Copy *copy = visit->copy;
    const bool due = copy->next_weight == microbatch || line->program->forward_only;
    const bool whole = due && (line->shards == 1 || line->program->forward_only);
    add_of_shards(line, whole ? OP_BACKWARD : OP_BACKWARD_INPUT, stage, microbatch);
    if (!due)
        return;
    uint32_t next = whole ? visit->next_weight : microbatch;
    for (; next != NOBODY && visit_of(line, stage, next)->backward; next = visit_of(line, stage, next)->next_weight)
        add_of_shards(line, OP_BACKWARD_WEIGHT, stage, next);
    copy->next_weight = next;
}

static void synchronous(Line *line)
{
    const uint32_t stages = line->program->stages;
    for (uint32_t r = 0; r < line->replicas; r += line->shards)
        for (uint32_t m = r * line->each; m < (r + 1) * line->each; m++) {
            for (uint32_t s = 0; s < stages; s++)
                add_of_shards(line, OP_FORWARD, s, m);
            for (uint32_t s = stages; s-- > 0;)
                add_backward(line, s, m);
        }
    for (uint32_t s = 0; s < stages; s++)
        add_sum(line, s, line->lines[OP_REDUCE]);
    append(line, instruction_blank(OP_NORM, line->lines[OP_NORM]));
    for (uint32_t s = 0; s < stages; s++)
        add_of_stage(line, OP_UPDATE, s, line->lines[OP_UPDATE]);
}

/* --- asynchronous programs: visits the ranks in turn, and appends the instructions of each as far as it can run --- */

/* Appends the next instruction of a rank if it is a pass or a U; a REDUCE is only counted, and all others are left out.
   False: the rank has to wait for another rank first. */
static bool add(Line *line, uint32_t rank, const Instruction *instruction)
{
    const RankProgram *from = &line->program->ranks[rank];
    const uint8_t opcode = opcode_is_forward(instruction->opcode) ? OP_FORWARD : instruction->opcode;
    if (!opcode_is_pass(opcode) && opcode != OP_REDUCE && opcode != OP_ASYNC_UPDATE)
        return true;
    const Chunk *chunk = &from->chunks[instruction->chunk];
    Weights *weights = &line->weights[chunk->stage];
    if (opcode == OP_REDUCE) {
        weights->arrivals++;
    } else if (opcode == OP_ASYNC_UPDATE) {
        Copy *copy = &line->copies[rank][instruction->chunk];
        if (weights->copies > 1 && weights->arrivals < weights->copies * (copy->newest + 1))
            return false;
        /* the copy that gets here first makes the version; the others reuse it */
        if (weights->newest == copy->newest++) {
            weights->newest++;
            add_sum(line, chunk->stage, instruction->line);
            Instruction update = instruction_blank(OP_ASYNC_UPDATE, instruction->line);
            update.chunk = (uint8_t)chunk->stage;
            update.microbatch = instruction->microbatch * line->replicas;
            append(line, update);
        }
    } else {
        const uint32_t microbatch = line->program->pipes[chunk->pipe].first + instruction->microbatch;
        return add_pass(line, opcode, chunk->stage, microbatch, instruction->line);
    }
    return true;
}

static void asynchronous(Line *line, Arena *scratch)
{
    const Program *program = line->program;
    /* [rank] its next instruction or second half */
    const Instruction **half = arena_array(scratch, program->rank_count, sizeof *half);
    /* [rank] the index of the instruction that comes after the one of `half` */
    uint32_t *next = arena_array(scratch, program->rank_count, sizeof *next);
    for (uint32_t r = 0; r < program->rank_count; r++)
        half[r] = &program->ranks[r].instructions[next[r]++];
    for (uint32_t ended = 0; ended < program->rank_count;) {
        ended = 0;
        for (uint32_t r = 0; r < program->rank_count; r++) {
            while (half[r]->opcode != OP_END && add(line, r, half[r]))
                half[r] = half[r]->second ? half[r]->second : &program->ranks[r].instructions[next[r]++];
            ended += half[r]->opcode == OP_END;
        }
    }
}

static Status fill_in(Line *line, Arena *arena, Arena *scratch, Error *error)
{
    survey(line, arena, scratch);
    if (line->program->asynchronous)
        asynchronous(line, scratch);
    else
        synchronous(line);
    append(line, instruction_blank(OP_END, line->lines[OP_END]));
    return derive_slots(line->result, line->result->ranks, line->instructions, line->count, arena, error);
}

Status program_reference(const Program *program, uint32_t replicas, uint32_t shards, Arena *arena, Program **derived,
                         Error *error)
{
    if (replicas > 1)
        program = derive_mesh(program, replicas, arena);
    if (program->stages > PROGRAM_CHUNKS_MAX)
        return error_set(error, STATUS_BAD_INPUT, "%u stages: a reference on one rank can hold at most %d",
                         program->stages, PROGRAM_CHUNKS_MAX);
    Program *result = derive_begin(program, arena);
    result->pipe_count = result->rank_count = 1;
    result->pipes = arena_array(arena, 1, sizeof *result->pipes);
    result->groups = arena_array(arena, 0, sizeof *result->groups);
    result->ranks = arena_array(arena, 1, sizeof *result->ranks);
    result->pipes[0].microbatches = program->microbatches;
    RankProgram *rank = &result->ranks[0];
    rank->chunk_count = program->stages;
    rank->chunks = arena_array(arena, program->stages, sizeof *rank->chunks);
    for (uint32_t s = 0; s < program->stages; s++)
        rank->chunks[s].stage = (uint16_t)s;
    result->asynchronous = program->asynchronous;
    if (program->pipes[0].versions)
        result->pipes[0].versions = arena_array(arena, program->microbatches, sizeof(uint32_t));
    for (uint32_t p = 0; result->pipes[0].versions && p < program->pipe_count; p++)
        memcpy(result->pipes[0].versions + program->pipes[p].first, program->pipes[p].versions,
               program->pipes[p].microbatches * sizeof(uint32_t));
    Arena *const scratch = arena_scratch(arena);
    Line line = {.program = program,
                 .result = result,
                 .replicas = replicas,
                 .shards = shards,
                 .each = program->microbatches / replicas};
    const Status status = fill_in(&line, arena, scratch, error);
    arena_free(scratch);
    *derived = result;
    return status == STATUS_OK && program->forward_only ? program_forward_only(result, arena, derived, error) : status;
}
