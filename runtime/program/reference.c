#include "runtime/program/derive.h"

#include "runtime/program/operands.h"

#include <string.h>

/* All stages on one rank. */

static Status no_memory(Error *error)
{
    return error_set(error, STATUS_RUN_FAILED, "no memory for the program");
}

static Instruction blank(Opcode opcode, uint32_t line)
{
    Instruction instruction = {.opcode = (uint8_t)opcode, .line = line};
    for (int k = 0; k < SLOT_OPERANDS; k++)
        instruction.slot[k] = SLOT_NONE;
    return instruction;
}

/* --- synchronous: microbatch after microbatch --- */

static void find_lines(const Program *program, uint32_t lines[OPCODE_COUNT])
{
    for (uint32_t r = 0; r < program->rank_count; r++) {
        const RankProgram *rank = &program->ranks[r];
        for (uint32_t i = 0; i < rank->instruction_count; i++)
            if (!lines[rank->instructions[i].opcode])
                lines[rank->instructions[i].opcode] = rank->instructions[i].line;
    }
    if (!lines[OP_FORWARD])
        lines[OP_FORWARD] = lines[OP_FORWARD_ONLY];
    if (!lines[OP_BACKWARD])
        lines[OP_BACKWARD] = lines[OP_BACKWARD_INPUT];
}

/* Slots of a microbatch: the activation that stage s makes is in slot s, until the B of stage s+1 has taken it and the B of
   stage s fills it with its gradient. */
static Instruction reference_pass(uint32_t opcode, uint32_t stage, uint32_t stages, uint32_t microbatch, uint32_t line)
{
    const uint16_t before = stage > 0 ? (uint16_t)(stage - 1) : SLOT_NONE;
    const uint16_t after = stage + 1 < stages ? (uint16_t)(stage + 1) : SLOT_NONE;
    const uint16_t own = (uint16_t)stage;
    Instruction pass = blank(opcode, line);
    pass.chunk = (uint8_t)stage;
    pass.microbatch = microbatch;
    pass.slot[0] = before;
    pass.slot[2] = pass.slot[3] = pass.slot[6] = own;
    if (opcode == OP_FORWARD) {
        pass.slot[1] = after == SLOT_NONE ? SLOT_NONE : own;
    } else {
        pass.slot[1] = before == SLOT_NONE ? SLOT_NONE : own;
        pass.slot[4] = after;
        pass.slot[5] = 0;
    }
    return pass;
}

static Status synchronous(const Program *program, Arena *arena, RankProgram *rank, Error *error)
{
    const uint32_t stages = program->stages, microbatches = program->microbatches;
    uint32_t lines[OPCODE_COUNT] = {0};
    find_lines(program, lines);
    rank->slots[SLOT_MESSAGE] = stages > 1 ? stages : 0;
    rank->slots[SLOT_CONTEXT] = rank->slots[SLOT_STASH] = stages;
    rank->slots[SLOT_GRADIENT] = 1;
    rank->slots[SLOT_WEIGHTS] = stages;
    rank->peak_activations = stages;
    rank->instructions = arena_array(arena, 2 * (size_t)stages * microbatches + stages + 2, sizeof *rank->instructions);
    if (!rank->instructions)
        return no_memory(error);
    Instruction *next = rank->instructions;
    for (uint32_t m = 0; m < microbatches; m++) {
        for (uint32_t s = 0; s < stages; s++)
            *next++ = reference_pass(OP_FORWARD, s, stages, m, lines[OP_FORWARD]);
        for (uint32_t s = stages; s-- > 0;)
            *next++ = reference_pass(OP_BACKWARD, s, stages, m, lines[OP_BACKWARD]);
    }
    *next++ = blank(OP_NORM, lines[OP_NORM]);
    for (uint32_t s = 0; s < stages; s++) {
        *next = blank(OP_UPDATE, lines[OP_UPDATE]);
        next++->chunk = (uint8_t)s;
    }
    *next++ = blank(OP_END, lines[OP_END]);
    rank->instruction_count = (uint32_t)(next - rank->instructions);
    return STATUS_OK;
}

/* --- asynchronous: what the ranks do, in turns, as far as each comes --- */

/* What a microbatch holds on a stage. */
typedef struct Held {
    uint16_t activation, derivative, context, stash, gradient; /* slots */
    uint32_t version;                                          /* of the weights that it uses */
    bool forward, backward;                                    /* have been */
} Held;

/* A stage's weights, all of its copies together. */
typedef struct Weights {
    uint32_t copies, arrivals; /* at REDUCE, of all copies and versions */
    uint32_t newest, versions; /* that are made; in all */
    uint16_t *slot;            /* [versions + 1] */
    uint32_t *uses;            /* [versions + 1]: backward passes that are still to come on it */
    uint16_t *free;            /* slots of this stage; a stack */
    uint32_t free_count;
} Weights;

typedef struct Line {
    const Program *program;
    RankProgram *rank; /* that is made */
    Held *held;        /* [stage][microbatch of the step] */
    Weights *weights;  /* [stage] */
    uint32_t **renewed; /* [rank][chunk]: versions that a copy has */
    uint16_t *free[SLOT_WEIGHTS]; /* stacks */
    uint32_t free_count[SLOT_WEIGHTS];
    uint32_t activations;
} Line;

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
    const uint32_t microbatches = line->program->microbatches;
    Held *held = &line->held[(size_t)stage * microbatches + pass->microbatch];
    Held *before = stage > 0 ? held - microbatches : NULL;
    Held *after = stage + 1 < line->program->stages ? held + microbatches : NULL;
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
        pass->slot[1] = held->activation;
    } else if (!weight) {
        if (after && !after->backward)
            return false;
        held->derivative = before ? take(line, SLOT_MESSAGE) : SLOT_NONE;
        held->gradient = take(line, SLOT_GRADIENT);
        held->backward = true;
        pass->slot[1] = held->derivative;
    }
    pass->slot[0] = before ? before->activation : SLOT_NONE;
    pass->slot[2] = weight ? SLOT_NONE : held->context;
    pass->slot[3] = held->stash;
    if (!weight)
        pass->slot[6] = line->weights[stage].slot[held->version];
    if (pass->opcode == OP_FORWARD)
        return true;
    pass->slot[4] = after ? after->derivative : SLOT_NONE;
    pass->slot[5] = held->gradient;
    if (!weight) {
        release(line, SLOT_CONTEXT, held->context);
        Weights *weights = &line->weights[stage];
        if (--weights->uses[held->version] == 0 && held->version != weights->newest)
            weights->free[weights->free_count++] = weights->slot[held->version];
    }
    if (pass->opcode == OP_BACKWARD_INPUT)
        return true;
    release(line, SLOT_MESSAGE, pass->slot[0]);
    release(line, SLOT_MESSAGE, pass->slot[4]);
    release(line, SLOT_STASH, held->stash);
    release(line, SLOT_GRADIENT, held->gradient);
    line->activations--;
    return true;
}

/* The next version: in place where nobody needs the one before, and the last where the step found the first. */
static void add_renewal(Line *line, Instruction renew, uint32_t stage)
{
    Weights *weights = &line->weights[stage];
    const uint32_t before = weights->newest++;
    uint16_t slot = weights->slot[before];
    if (weights->newest == weights->versions)
        slot = (uint16_t)stage;
    else if (weights->uses[before])
        slot = weights->free_count ? weights->free[--weights->free_count] : (uint16_t)line->rank->slots[SLOT_WEIGHTS]++;
    weights->slot[weights->newest] = slot;
    renew.slot[0] = weights->slot[before];
    renew.slot[1] = slot;
    renew.chunk = (uint8_t)stage;
    line->rank->instructions[line->rank->instruction_count++] = renew;
}

/* The next instruction of a rank; false: not yet. */
static bool add(Line *line, uint32_t rank, const Instruction *instruction)
{
    const RankProgram *from = &line->program->ranks[rank];
    const uint8_t opcode = instruction->opcode;
    const bool is_pass = opcode == OP_FORWARD || opcode == OP_BACKWARD || opcode == OP_BACKWARD_INPUT || opcode == OP_BACKWARD_WEIGHT;
    if (!is_pass && opcode != OP_REDUCE && opcode != OP_RENEW)
        return true;
    const Chunk *chunk = &from->chunks[instruction->chunk];
    Weights *weights = &line->weights[chunk->stage];
    if (opcode == OP_REDUCE) {
        weights->arrivals++;
    } else if (opcode == OP_RENEW) {
        uint32_t *renewed = &line->renewed[rank][instruction->chunk];
        if (weights->copies > 1 && weights->arrivals < weights->copies * (*renewed + 1))
            return false;
        if (weights->newest == (*renewed)++) /* the first copy to come here makes it */
            add_renewal(line, *instruction, chunk->stage);
    } else {
        Instruction pass = *instruction;
        pass.chunk = (uint8_t)chunk->stage;
        pass.microbatch += line->program->pipes[chunk->pipe].first;
        if (!add_pass(line, &pass, chunk->stage))
            return false;
        line->rank->instructions[line->rank->instruction_count++] = pass;
    }
    return true;
}

/* Which version every microbatch uses on every stage, and how many there are. */
static bool find_versions(Line *line, Arena *arena)
{
    const Program *program = line->program;
    for (uint32_t s = 0; s < program->stages; s++)
        line->weights[s].copies = 1;
    for (uint32_t g = 0; g < program->group_count; g++)
        line->weights[program->groups[g].stage].copies = program->groups[g].member_count;
    for (uint32_t r = 0; r < program->rank_count; r++) {
        const RankProgram *rank = &program->ranks[r];
        uint32_t *newest = line->renewed[r] = arena_array(arena, rank->chunk_count, sizeof *newest);
        if (!newest)
            return false;
        for (uint32_t i = 0; i < rank->instruction_count; i++) {
            const Instruction *instruction = &rank->instructions[i];
            if (instruction->opcode != OP_FORWARD && instruction->opcode != OP_RENEW)
                continue;
            const Chunk *chunk = &rank->chunks[instruction->chunk];
            const Pipe *pipe = &program->pipes[chunk->pipe];
            if (instruction->opcode == OP_RENEW)
                line->weights[chunk->stage].versions = ++newest[instruction->chunk]; /* as many on all copies */
            else
                line->held[(size_t)chunk->stage * program->microbatches + pipe->first + instruction->microbatch].version =
                    pipe->versions ? pipe->versions[instruction->microbatch] : newest[instruction->chunk];
        }
        memset(newest, 0, rank->chunk_count * sizeof *newest);
    }
    for (uint32_t s = 0; s < program->stages; s++) {
        Weights *weights = &line->weights[s];
        weights->slot = arena_array(arena, weights->versions + 1, sizeof *weights->slot);
        weights->uses = arena_array(arena, weights->versions + 1, sizeof *weights->uses);
        weights->free = arena_array(arena, weights->versions + 1, sizeof *weights->free);
        if (!weights->slot || !weights->uses || !weights->free)
            return false;
        weights->slot[0] = (uint16_t)s;
        for (uint32_t m = 0; m < program->microbatches; m++)
            weights->uses[line->held[(size_t)s * program->microbatches + m].version]++;
    }
    return true;
}

static Status asynchronous(const Program *program, Arena *arena, RankProgram *rank, Error *error)
{
    const size_t passes = (size_t)program->stages * program->microbatches;
    Line line = {.program = program,
                 .rank = rank,
                 .held = arena_array(arena, passes, sizeof *line.held),
                 .weights = arena_array(arena, program->stages, sizeof *line.weights),
                 .renewed = arena_array(arena, program->rank_count, sizeof *line.renewed)};
    uint32_t *next = arena_array(arena, program->rank_count, sizeof *next);
    for (int class = 0; class < SLOT_WEIGHTS; class++)
        if (!(line.free[class] = arena_array(arena, 2 * passes, sizeof *line.free[class])))
            return no_memory(error);
    uint64_t instructions = 1;
    for (uint32_t r = 0; r < program->rank_count; r++)
        instructions += program->ranks[r].instruction_count;
    rank->instructions = arena_array(arena, instructions, sizeof *rank->instructions);
    if (!line.held || !line.weights || !line.renewed || !next || !rank->instructions || !find_versions(&line, arena))
        return no_memory(error);
    rank->slots[SLOT_WEIGHTS] = program->stages;
    for (uint32_t ended = 0; ended < program->rank_count;) {
        ended = 0;
        for (uint32_t r = 0; r < program->rank_count; r++) {
            const RankProgram *from = &program->ranks[r];
            while (next[r] + 1 < from->instruction_count && add(&line, r, &from->instructions[next[r]]))
                next[r]++;
            ended += next[r] + 1 == from->instruction_count;
        }
    }
    rank->instructions[rank->instruction_count++] = blank(OP_END, program->ranks[0].instructions[next[0]].line);
    for (int class = 0; class < SLOT_CLASSES; class++)
        if (rank->slots[class] > PROGRAM_SLOTS_MAX)
            return error_set(error, STATUS_BAD_INPUT, "a reference on one rank would need %u %s buffers: there can be %d",
                             rank->slots[class], slot_class_names[class], PROGRAM_SLOTS_MAX);
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
    if (program->pipes[0].versions && !(result->pipes[0].versions = arena_array(arena, program->microbatches, sizeof(uint32_t))))
        return no_memory(error);
    for (uint32_t p = 0; result->pipes[0].versions && p < program->pipe_count; p++)
        memcpy(result->pipes[0].versions + program->pipes[p].first, program->pipes[p].versions,
               program->pipes[p].microbatches * sizeof(uint32_t));
    TRY((program->asynchronous ? asynchronous : synchronous)(program, arena, rank, error));
    *derived = result;
    return program->forward_only ? program_forward_only(result, arena, derived, error) : STATUS_OK;
}
