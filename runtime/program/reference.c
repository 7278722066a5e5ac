#include "runtime/program/derive.h"

#include "runtime/program/operands.h"

#include <string.h>

/* All stages on one rank. */

static Status no_memory(Error *error) { return error_set(error, STATUS_RUN_FAILED, "no memory for the program"); }

/* What a microbatch holds on a stage. */
typedef struct Held {
    uint16_t activation, derivative, context, stash, gradient; /* slots */
    uint32_t version;                                          /* of the weights that it uses */
    /* the microbatch whose W its copy runs next, or NOBODY */
    uint32_t next_weight;
    struct Copy *copy;                  /* of the stage: the one that it passes */
    uint32_t forward_line, weight_line; /* of F, and of B or W, in the source */
    bool forward, backward;             /* have been */
} Held;

/* A copy of a stage: a chunk of a rank of the program. */
typedef struct Copy {
    uint32_t place; /* in the stage's group */
    /* microbatches in the order of the copy's W: the first that is to come, and the last */
    uint32_t next_weight, last_weight;
    uint32_t newest; /* version of its weights */
} Copy;

enum { NOBODY = UINT32_MAX };

/* A stage's weights, all of its copies together. */
typedef struct Weights {
    uint32_t copies, arrivals; /* at REDUCE, of all copies and versions */
    uint32_t newest, versions; /* that are made; in all */
    uint16_t *slots;           /* [versions + 1] */
    uint32_t *uses;            /* [versions + 1]: backward passes that are still to come on it */
    uint16_t *free;            /* slots of this stage; a stack */
    uint32_t free_count;
} Weights;

typedef struct Line {
    const Program *program;
    Program *result;
    RankProgram *rank;            /* of the result */
    Held *held;                   /* [stage][microbatch of the step] */
    Weights *weights;             /* [stage] */
    Copy **copies;                /* [rank][chunk] */
    uint32_t lines[OPCODE_COUNT]; /* of NORM, UPDATE, END */
    uint16_t *free[SLOT_WEIGHTS]; /* stacks */
    uint32_t free_count[SLOT_WEIGHTS];
    uint32_t activations;
} Line;

static Held *held_by(const Line *line, uint32_t stage, uint32_t microbatch)
{
    return &line->held[(size_t)stage * line->program->microbatches + microbatch];
}

static void append(Line *line, Instruction instruction)
{
    line->rank->instructions[line->rank->instruction_count++] = instruction;
}

/* --- what the program says of its stages --- */

static bool find_copies(Line *line, Arena *arena)
{
    const Program *program = line->program;
    for (uint32_t s = 0; s < program->stages; s++)
        line->weights[s].copies = 1;
    for (uint32_t r = 0; r < program->rank_count; r++) {
        const uint32_t chunks = program->ranks[r].chunk_count;
        if (!(line->copies[r] = arena_array(arena, chunks, sizeof **line->copies)))
            return false;
        for (uint32_t c = 0; c < chunks; c++)
            line->copies[r][c].next_weight = NOBODY;
    }
    for (uint32_t g = 0; g < program->group_count; g++) {
        const Group *group = &program->groups[g];
        StageCopies *copies = &line->result->copies[group->stage];
        copies->count = line->weights[group->stage].copies = group->member_count;
        if (!(copies->of = arena_array(arena, program->microbatches, sizeof *copies->of)))
            return false;
        for (uint32_t m = 0; m < group->member_count; m++)
            line->copies[group->members[m].rank][group->members[m].chunk].place = m;
    }
    return true;
}

/* A microbatch passes the copy that runs its F, on that copy's newest weights unless its pipe says otherwise. */
static void note_forward(Line *line, Copy *copy, const Chunk *chunk, const Instruction *forward)
{
    const Pipe *pipe = &line->program->pipes[chunk->pipe];
    const StageCopies *copies = &line->result->copies[chunk->stage];
    const uint32_t number = pipe->first + forward->microbatch;
    Held *held = held_by(line, chunk->stage, number);
    held->copy = copy;
    held->forward_line = forward->line;
    held->version = pipe->versions ? pipe->versions[forward->microbatch] : copy->newest;
    held->next_weight = NOBODY;
    if (copies->of)
        copies->of[number] = (uint16_t)copy->place;
}

static void note_weight(Line *line, Copy *copy, const Chunk *chunk, const Instruction *weight)
{
    const uint32_t number = line->program->pipes[chunk->pipe].first + weight->microbatch;
    held_by(line, chunk->stage, number)->weight_line = weight->line;
    if (copy->next_weight == NOBODY)
        copy->next_weight = number;
    else
        held_by(line, chunk->stage, copy->last_weight)->next_weight = number;
    copy->last_weight = number;
}

/* Every microbatch's copy of every stage, version of its weights and turn for its W. */
static void note_passes(Line *line, uint32_t r)
{
    const RankProgram *rank = &line->program->ranks[r];
    for (uint32_t i = 0; i < rank->instruction_count; i++) {
        const Instruction *instruction = &rank->instructions[i];
        Copy *copy = &line->copies[r][instruction->chunk];
        const Chunk *chunk = &rank->chunks[instruction->chunk];
        switch ((Opcode)instruction->opcode) {
        case OP_FORWARD:
        case OP_FORWARD_ONLY: note_forward(line, copy, chunk, instruction); break;
        case OP_BACKWARD:
        case OP_BACKWARD_WEIGHT: note_weight(line, copy, chunk, instruction); break;
        case OP_RENEW: line->weights[chunk->stage].versions = ++copy->newest; break; /* as many on all copies */
        default: line->lines[instruction->opcode] = instruction->line; break;
        }
    }
    for (uint32_t c = 0; c < rank->chunk_count; c++)
        line->copies[r][c].newest = 0;
}

/* Room for the versions of each stage, and how often each is used. */
static bool count_versions(Line *line, Arena *arena)
{
    const Program *program = line->program;
    for (uint32_t s = 0; s < program->stages; s++) {
        Weights *weights = &line->weights[s];
        weights->slots = arena_array(arena, weights->versions + 1, sizeof *weights->slots);
        weights->uses = arena_array(arena, weights->versions + 1, sizeof *weights->uses);
        weights->free = arena_array(arena, weights->versions + 1, sizeof *weights->free);
        if (!weights->slots || !weights->uses || !weights->free)
            return false;
        weights->slots[0] = (uint16_t)s;
        for (uint32_t m = 0; m < program->microbatches; m++)
            weights->uses[held_by(line, s, m)->version]++;
    }
    return true;
}

/* False: no memory. */
static bool survey(Line *line, Arena *arena)
{
    const Program *program = line->program;
    const size_t passes = (size_t)program->stages * program->microbatches;
    uint64_t instructions = 3 * passes; /* F, I and W; besides, as many as the program has at most */
    for (uint32_t r = 0; r < program->rank_count; r++)
        instructions += program->ranks[r].instruction_count;
    line->held = arena_array(arena, passes, sizeof *line->held);
    line->weights = arena_array(arena, program->stages, sizeof *line->weights);
    line->copies = arena_array(arena, program->rank_count, sizeof *line->copies);
    line->result->copies = arena_array(arena, program->stages, sizeof *line->result->copies);
    line->rank->instructions = arena_array(arena, instructions, sizeof *line->rank->instructions);
    for (int class = 0; class < SLOT_WEIGHTS; class ++)
        if (!(line->free[class] = arena_array(arena, 2 * passes, sizeof *line->free[class])))
            return false;
    if (!line->held || !line->weights || !line->copies || !line->result->copies || !line->rank->instructions ||
        !find_copies(line, arena))
        return false;
    for (uint32_t r = 0; r < program->rank_count; r++)
        note_passes(line, r);
    line->rank->slots[SLOT_WEIGHTS] = program->stages;
    return count_versions(line, arena);
}

/* --- passes on the one rank --- */

static uint16_t take(Line *line, SlotClass class)
{
    if (line->free_count[class])
        return line->free[class][--line->free_count[class]];
    return (uint16_t)line->rank->slots[class]++;
}

static void release(Line *line, SlotClass class, uint16_t slot)
{
    if (slot != SLOT_NONE)
        line->free[class][line->free_count[class]++] = slot;
}

/* A pass with its slots in the one rank; false when it needs what is not there yet. */
static bool add_pass(Line *line, Instruction *pass, uint32_t stage)
{
    Held *held = held_by(line, stage, pass->microbatch);
    Held *before = stage > 0 ? held_by(line, stage - 1, pass->microbatch) : NULL;
    Held *after = stage + 1 < line->program->stages ? held_by(line, stage + 1, pass->microbatch) : NULL;
    const bool weight = pass->opcode == OP_BACKWARD_WEIGHT;
    if (pass->opcode == OP_FORWARD) {
        if (before && !before->forward)
            return false;
        held->activation = after ? take(line, SLOT_MESSAGE) : SLOT_NONE;
        held->context = take(line, SLOT_CONTEXT);
        held->stash = take(line, SLOT_STASH);
        held->forward = true;
        if (++line->activations > line->rank->peak_activations)
            line->rank->peak_activations = line->activations;
        pass->y = held->activation;
    } else if (!weight) {
        if (after && !after->backward)
            return false;
        held->derivative = before ? take(line, SLOT_MESSAGE) : SLOT_NONE;
        held->gradient = take(line, SLOT_GRADIENT);
        held->backward = true;
        pass->dx = held->derivative;
    }
    pass->x = before ? before->activation : SLOT_NONE;
    pass->context = weight ? SLOT_NONE : held->context;
    pass->stash = held->stash;
    if (!weight)
        pass->weights = line->weights[stage].slots[held->version];
    if (pass->opcode == OP_FORWARD)
        return true;
    pass->dy = after ? after->derivative : SLOT_NONE;
    pass->gradient = held->gradient;
    if (!weight) {
        release(line, SLOT_CONTEXT, held->context);
        Weights *weights = &line->weights[stage];
        if (--weights->uses[held->version] == 0 && held->version != weights->newest)
            weights->free[weights->free_count++] = weights->slots[held->version];
    }
    if (pass->opcode == OP_BACKWARD_INPUT)
        return true;
    release(line, SLOT_MESSAGE, pass->x);
    release(line, SLOT_MESSAGE, pass->dy);
    release(line, SLOT_STASH, held->stash);
    release(line, SLOT_GRADIENT, held->gradient);
    line->activations--;
    return true;
}

/* --- synchronous: microbatch after microbatch --- */

static void add_own(Line *line, Opcode opcode, uint32_t stage, uint32_t microbatch)
{
    const Held *held = held_by(line, stage, microbatch);
    Instruction pass = instruction_blank(opcode, opcode == OP_FORWARD ? held->forward_line : held->weight_line);
    pass.chunk = (uint8_t)stage;
    pass.microbatch = microbatch;
    add_pass(line, &pass, stage);
    append(line, pass);
}

/* The I of a microbatch, and every W whose turn it is then: each copy adds up its gradient in the order in which the
   program does. The F of a forward-only program are followed by a backward, too, until program_forward_only takes it
   away. */
static void add_backward(Line *line, uint32_t stage, uint32_t microbatch)
{
    const Held *held = held_by(line, stage, microbatch);
    Copy *copy = held->copy;
    const bool whole = copy->next_weight == microbatch || line->program->forward_only;
    add_own(line, whole ? OP_BACKWARD : OP_BACKWARD_INPUT, stage, microbatch);
    if (!whole)
        return;
    uint32_t next = held->next_weight;
    for (; next != NOBODY && held_by(line, stage, next)->backward; next = held_by(line, stage, next)->next_weight)
        add_own(line, OP_BACKWARD_WEIGHT, stage, next);
    copy->next_weight = next;
}

static void synchronous(Line *line)
{
    const uint32_t stages = line->program->stages;
    for (uint32_t m = 0; m < line->program->microbatches; m++) {
        for (uint32_t s = 0; s < stages; s++)
            add_own(line, OP_FORWARD, s, m);
        for (uint32_t s = stages; s-- > 0;)
            add_backward(line, s, m);
    }
    append(line, instruction_blank(OP_NORM, line->lines[OP_NORM]));
    for (uint32_t s = 0; s < stages; s++) {
        Instruction update = instruction_blank(OP_UPDATE, line->lines[OP_UPDATE]);
        update.chunk = (uint8_t)s;
        append(line, update);
    }
}

/* --- asynchronous: what the ranks do, in turns, as far as each comes --- */

/* The next version: in place where nobody needs the one before, and the last where the step found the first. */
static void add_renewal(Line *line, Instruction renew, uint32_t stage)
{
    Weights *weights = &line->weights[stage];
    const uint32_t before = weights->newest++;
    uint16_t slot = weights->slots[before];
    if (weights->newest == weights->versions)
        slot = (uint16_t)stage;
    else if (weights->uses[before])
        slot = weights->free_count ? weights->free[--weights->free_count] : (uint16_t)line->rank->slots[SLOT_WEIGHTS]++;
    weights->slots[weights->newest] = slot;
    renew.newest = weights->slots[before];
    renew.next = slot;
    renew.chunk = (uint8_t)stage;
    append(line, renew);
}

/* The next instruction of a rank; false: not yet. */
static bool add(Line *line, uint32_t rank, const Instruction *instruction)
{
    const RankProgram *from = &line->program->ranks[rank];
    const uint8_t opcode = instruction->opcode;
    const bool is_pass =
        opcode == OP_FORWARD || opcode == OP_BACKWARD || opcode == OP_BACKWARD_INPUT || opcode == OP_BACKWARD_WEIGHT;
    if (!is_pass && opcode != OP_REDUCE && opcode != OP_RENEW)
        return true;
    const Chunk *chunk = &from->chunks[instruction->chunk];
    Weights *weights = &line->weights[chunk->stage];
    if (opcode == OP_REDUCE) {
        weights->arrivals++;
    } else if (opcode == OP_RENEW) {
        Copy *copy = &line->copies[rank][instruction->chunk];
        if (weights->copies > 1 && weights->arrivals < weights->copies * (copy->newest + 1))
            return false;
        if (weights->newest == copy->newest++) /* the first copy to come here makes it */
            add_renewal(line, *instruction, chunk->stage);
    } else {
        Instruction pass = *instruction;
        pass.chunk = (uint8_t)chunk->stage;
        pass.microbatch += line->program->pipes[chunk->pipe].first;
        if (!add_pass(line, &pass, chunk->stage))
            return false;
        append(line, pass);
    }
    return true;
}

static Status asynchronous(Line *line, Arena *arena, Error *error)
{
    const Program *program = line->program;
    uint32_t *next = arena_array(arena, program->rank_count, sizeof *next);
    if (!next)
        return no_memory(error);
    for (uint32_t ended = 0; ended < program->rank_count;) {
        ended = 0;
        for (uint32_t r = 0; r < program->rank_count; r++) {
            const RankProgram *from = &program->ranks[r];
            while (next[r] + 1 < from->instruction_count && add(line, r, &from->instructions[next[r]]))
                next[r]++;
            ended += next[r] + 1 == from->instruction_count;
        }
    }
    return STATUS_OK;
}

static Status fill_in(Line *line, Arena *arena, Error *error)
{
    if (!survey(line, arena))
        return no_memory(error);
    if (line->program->asynchronous)
        TRY(asynchronous(line, arena, error));
    else
        synchronous(line);
    append(line, instruction_blank(OP_END, line->lines[OP_END]));
    for (int class = 0; class < SLOT_CLASSES; class ++)
        if (line->rank->slots[class] > PROGRAM_SLOTS_MAX)
            return error_set(error, STATUS_BAD_INPUT,
                             "a reference on one rank would need %u %s buffers: there can be %d",
                             line->rank->slots[class], slot_class_names[class], PROGRAM_SLOTS_MAX);
    return STATUS_OK;
}

Status program_reference(const Program *program, Arena *arena, Program **derived, Error *error)
{
    if (program->stages > PROGRAM_CHUNKS_MAX)
        return error_set(error, STATUS_BAD_INPUT, "%u stages: a reference on one rank can hold %d", program->stages,
                         PROGRAM_CHUNKS_MAX);
    Program *result = derive_begin(program, arena);
    if (!result)
        return no_memory(error);
    result->pipe_count = result->rank_count = 1;
    result->pipes = arena_array(arena, 1, sizeof *result->pipes);
    result->groups = arena_array(arena, 0, sizeof *result->groups);
    result->ranks = arena_array(arena, 1, sizeof *result->ranks);
    if (!result->pipes || !result->groups || !result->ranks)
        return no_memory(error);
    result->pipes[0].microbatches = program->microbatches;
    RankProgram *rank = &result->ranks[0];
    rank->chunk_count = program->stages;
    rank->chunks = arena_array(arena, program->stages, sizeof *rank->chunks);
    if (!rank->chunks)
        return no_memory(error);
    for (uint32_t s = 0; s < program->stages; s++)
        rank->chunks[s].stage = (uint16_t)s;
    result->asynchronous = program->asynchronous;
    if (program->pipes[0].versions &&
        !(result->pipes[0].versions = arena_array(arena, program->microbatches, sizeof(uint32_t))))
        return no_memory(error);
    for (uint32_t p = 0; result->pipes[0].versions && p < program->pipe_count; p++)
        memcpy(result->pipes[0].versions + program->pipes[p].first, program->pipes[p].versions,
               program->pipes[p].microbatches * sizeof(uint32_t));
    TRY(fill_in(&(Line){.program = program, .result = result, .rank = rank}, arena, error));
    *derived = result;
    return program->forward_only ? program_forward_only(result, arena, derived, error) : STATUS_OK;
}
