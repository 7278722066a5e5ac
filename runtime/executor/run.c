/* The interpreter: a table of functions by opcode and a loop over the stream. */
#include "runtime/executor/internal.h"

#include "base/clock.h"
#include "program/operands.h"

#define EXECUTE(name) static Status execute_##name(Executor *executor, const Instruction *instruction, Error *error)

static void *message_block(const Executor *executor, uint16_t slot)
{
    return slot == SLOT_NONE ? NULL : executor->blocks[slot];
}

static void *slot_memory(const Executor *executor, SlotClass class, uint16_t slot)
{
    return slot == SLOT_NONE ? NULL : executor->memory[class] + slot * executor->bytes[class];
}

/* The buffers of a pass. Instruction.y and Instruction.dx are the same field: y in an F, dx in a backward. */
static inline PassSlots slots_of(const Executor *executor, const Instruction *pass, bool is_forward)
{
    const HeldChunk *chunk = &executor->chunks[pass->chunk];
    void *const made = message_block(executor, pass->y);
    return (PassSlots){
        .chunk = pass->chunk,
        .stage = chunk->stage,
        .microbatch = pass->microbatch,
        .number = chunk->first + pass->microbatch,
        .weights = pass->weights,
        .x = message_block(executor, pass->x),
        .y = is_forward ? made : NULL,
        .dx = is_forward ? NULL : made,
        .dy = message_block(executor, pass->dy),
        .context = slot_memory(executor, SLOT_CONTEXT, pass->context),
        .stash = slot_memory(executor, SLOT_STASH, pass->stash),
        .gradient = slot_memory(executor, SLOT_GRADIENT, pass->gradient),
    };
}

/* PassSlots of a W. After an F&B that put weight gradients off, the W computes only those. */
static PassSlots weight_slots(const Executor *executor, const Instruction *pass)
{
    PassSlots slots = slots_of(executor, pass, false);
    slots.put_off = pass->put_off;
    slots.only_put_off = pass->put_off != 0;
    return slots;
}

static Status run_pass(Executor *executor, StagePass pass, const PassSlots *slots, Error *error)
{
    return executor->config.stages->pass(executor->config.host, pass, slots, error);
}

EXECUTE(FORWARD)
{
    const PassSlots slots = slots_of(executor, instruction, true);
    return run_pass(executor, STAGE_FORWARD, &slots, error);
}

EXECUTE(FORWARD_ONLY) { return execute_FORWARD(executor, instruction, error); }

EXECUTE(BACKWARD)
{
    const PassSlots slots = slots_of(executor, instruction, false);
    return run_pass(executor, STAGE_BACKWARD, &slots, error);
}

EXECUTE(BACKWARD_INPUT)
{
    PassSlots slots = slots_of(executor, instruction, false);
    TRY(run_pass(executor, STAGE_BACKWARD_INPUT, &slots, error));
    slots.put_off = instruction->put_off;
    return slots.put_off ? run_pass(executor, STAGE_BACKWARD_WEIGHT, &slots, error) : STATUS_OK;
}

EXECUTE(BACKWARD_WEIGHT)
{
    const PassSlots slots = weight_slots(executor, instruction);
    return run_pass(executor, STAGE_BACKWARD_WEIGHT, &slots, error);
}

/* --- an F&B or F&F --- */

static Status run_half(Executor *executor, const Instruction *half, Execute *execute, Error *error)
{
    const Status status = execute(executor, half, error);
    if (status != STATUS_OK)
        error_prefix(error, "in its %s: ", opcode_table[half->opcode].text);
    return status;
}

/* Runs the first half of an F&B or F&F, then the second, for a host without `overlap`. */
static Status run_in_turn(Executor *executor, const Instruction *pair, Error *error)
{
    TRY(run_half(executor, pair, execute_FORWARD, error));
    *executor->middle = clock_nanoseconds();
    TRY(executor_mark(executor, (size_t)(executor->middle - executor->clock), error));
    TRY(executor_progress(executor, error));
    return run_half(executor, pair->second, executor_execute[pair->second->opcode], error);
}

static PassPair pair_of(const Executor *executor, const Instruction *forward)
{
    return (PassPair){
        .forward = slots_of(executor, forward, true),
        .backward = slots_of(executor, forward->second, opcode_is_forward(forward->second->opcode)),
        .both_forward = forward->opcode == OP_OVERLAP_FORWARD,
        .weights = forward->second->opcode == OP_BACKWARD || forward->second->put_off,
    };
}

static Status run_merged(Executor *executor, const Instruction *forward, Error *error)
{
    PassPair pair = pair_of(executor, forward);
    const int64_t begun = clock_nanoseconds();
    TRY(executor->config.stages->overlap(executor->config.host, &pair, error));
    *executor->middle = pair.forward_time ? begun + pair.forward_time : 0;
    return STATUS_OK;
}

EXECUTE(OVERLAP)
{
    const Status status = executor->config.stages->overlap ? run_merged(executor, instruction, error)
                                                           : run_in_turn(executor, instruction, error);
    executor->middle++;
    return status;
}

EXECUTE(OVERLAP_FORWARD) { return execute_OVERLAP(executor, instruction, error); }

/* --- binding: StageTable.bind prepares each pass before the first step --- */

static StagePass kind_of(const Instruction *pass)
{
    return pass->second                        ? STAGE_OVERLAP
           : opcode_is_forward(pass->opcode)   ? STAGE_FORWARD
           : pass->opcode == OP_BACKWARD       ? STAGE_BACKWARD
           : pass->opcode == OP_BACKWARD_INPUT ? STAGE_BACKWARD_INPUT
                                               : STAGE_BACKWARD_WEIGHT;
}

static PassPair work_of(const Executor *executor, const Instruction *pass)
{
    if (pass->second)
        return pair_of(executor, pass);
    if (opcode_is_forward(pass->opcode))
        return (PassPair){.forward = slots_of(executor, pass, true)};
    return (PassPair){.backward = pass->opcode == OP_BACKWARD_WEIGHT ? weight_slots(executor, pass)
                                                                     : slots_of(executor, pass, false)};
}

static Status bind_stream(const Executor *executor, const Program *program, void *(*bound)[2], Error *error)
{
    const ExecutorConfig *config = &executor->config;
    const Instruction *instructions = program->ranks[config->rank].instructions;
    void *ignored[2];
    for (size_t i = 0; instructions[i].opcode != OP_END; i++) {
        const Instruction *pass = &instructions[i];
        if (!opcode_is_pass(pass->opcode) || (!bound && !pass->second))
            continue;
        const PassPair work = work_of(executor, pass);
        TRY(config->stages->bind(config->host, kind_of(pass), &work, bound ? bound[i] : ignored, error));
    }
    return STATUS_OK;
}

/* Asks the host, once, for the weight gradients that are summed: their memory never moves. */
static void find_gradients(Executor *executor)
{
    const ExecutorConfig *config = &executor->config;
    const uint32_t chunks = config->loaded->program->ranks[config->rank].chunk_count;
    for (uint32_t c = 0; c < chunks; c++)
        if (executor->exchange.sums[c].among || executor->exchange.sums[c].sharded)
            executor->exchange.sums[c].buffer = config->stages->weight_gradient(config->host, c);
}

Status executor_bind(Executor *executor, Error *error)
{
    const LoadedProgram *loaded = executor->config.loaded;
    TRY(executor_take_memory(executor, error));
    find_gradients(executor);
    if (!executor->config.stages->bind)
        return STATUS_OK;
    TRY(bind_stream(executor, loaded->program, executor->bound[0], error));
    return executor->bound[1] ? bind_stream(executor, loaded->forward, executor->bound[1], error) : STATUS_OK;
}

/* --- messages and sums of gradients --- */

#define EXECUTE_EXCHANGE(name) \
    EXECUTE(name) { return exchange_run(&executor->exchange, instruction, error); }

EXECUTE_EXCHANGE(SEND_FORWARD)
EXECUTE_EXCHANGE(RECEIVE_FORWARD)
EXECUTE_EXCHANGE(SEND_BACKWARD)
EXECUTE_EXCHANGE(RECEIVE_BACKWARD)
EXECUTE_EXCHANGE(REDUCE)
EXECUTE_EXCHANGE(WAIT_REDUCE)

EXECUTE(WAIT)
{
    const ExecutorConfig *config = &executor->config;
    const Message *message = &executor->exchange.messages[instruction->message];
    TRY(exchange_run(&executor->exchange, instruction, error));
    return message->is_send || !config->stages->received
               ? STATUS_OK
               : config->stages->received(config->host, message->peer, *message->block, error);
}

/* --- updates --- */

EXECUTE(NORM)
{
    (void)instruction;
    return executor->config.stages->norm ? executor->config.stages->norm(executor->config.host, error) : STATUS_OK;
}

EXECUTE(UPDATE)
{
    const StageTable *stages = executor->config.stages;
    return stages->update ? stages->update(executor->config.host, instruction->chunk, error) : STATUS_OK;
}

EXECUTE(ASYNC_UPDATE)
{
    const StageTable *stages = executor->config.stages;
    return stages->update_async
               ? stages->update_async(executor->config.host, instruction->chunk, instruction->microbatch,
                                      instruction->newest, instruction->next, error)
               : STATUS_OK;
}

EXECUTE(END)
{
    (void)executor, (void)instruction, (void)error;
    return STATUS_OK;
}

Execute *const executor_execute[OPCODE_COUNT] = {
#define OPCODE(name, text, operands, what) [OP_##name] = execute_##name,
#include "program/opcodes.def"
};

/* --- the loop --- */

static Status run_stream(Executor *executor, Error *error)
{
    Walk *const walk = &executor->walk;
    int64_t *clock = executor->clock;
    *clock = clock_nanoseconds();
    do {
        const Instruction *next = walk_next(walk);
        Status status = executor_execute[next->opcode](executor, next, error);
        *++clock = clock_nanoseconds();
        if (status == STATUS_OK && next->opcode != OP_END)
            status = executor_progress(executor, error);
        if (status != STATUS_OK)
            return walk_failed(walk, walk->place, status, error);
    } while (walk_done(walk));
    return STATUS_OK;
}

Status executor_run(Executor *executor, bool evaluating, uint64_t step, Error *error)
{
    const ExecutorConfig *config = &executor->config;
    const Program *program = evaluating ? config->loaded->forward : config->loaded->program;
    const bool enqueues = config->device && config->device->run->async;
    atomic_store_explicit(&config->progress->evaluating, evaluating, memory_order_relaxed);
    walk_begin(&executor->walk, program, &program->ranks[config->rank], step);
    executor->middle = executor->clock + executor_middles(executor);
    return enqueues ? executor_enqueue(executor, error) : run_stream(executor, error);
}
