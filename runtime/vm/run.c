/* The interpreter: a table of functions by opcode and a loop over the stream. */
#include "runtime/vm/machine.h"

#include "runtime/base/clock.h"
#include "runtime/device/device.h"
#include "runtime/program/operands.h"

#include <math.h>
#include <stdlib.h>
#include <time.h>

static void *message_block(const Rank *rank, uint16_t slot) { return slot == SLOT_NONE ? NULL : rank->blocks[slot]; }

static void *slot_memory(char *first, size_t bytes, uint16_t slot)
{
    return slot == SLOT_NONE ? NULL : first + slot * bytes;
}

static void *gradient_of(const BoundChunk *chunk, uint32_t copy)
{
    return (char *)chunk->weights.gradients + copy * chunk->gradient_bytes;
}

/* The instruction's slots and the chunk's own memory as the passes want them; y and dx are added by who has them. */
static inline PassBuffers pass_buffers(const Rank *rank, const BoundChunk *chunk, const Instruction *instruction)
{
    const uint32_t place = chunk->places ? chunk->places[instruction->microbatch] : PLACE_NONE;
    return (PassBuffers){
        .parameters = instruction->weights == SLOT_NONE ? NULL : rank->weights[instruction->weights],
        .parameter_gradients =
            chunk->copies ? gradient_of(chunk, chunk->copies->of[instruction->microbatch]) : chunk->weights.gradients,
        .x = message_block(rank, instruction->x),
        .context = slot_memory(rank->contexts, rank->context_bytes, instruction->context),
        .stash = slot_memory(rank->stashes, rank->stash_bytes, instruction->stash),
        .dy = message_block(rank, instruction->dy),
        .gradient = slot_memory(rank->gradients, rank->gradient_bytes, instruction->gradient),
        .workspace = rank->workspace,
        .inputs = chunk->inputs ? chunk->inputs + place * chunk->sizes->inputs : NULL,
        .targets = chunk->targets ? chunk->targets + place * chunk->sizes->targets : NULL,
        .outputs = chunk->outputs ? chunk->outputs + place * chunk->sizes->outputs * sizeof(float) : NULL,
        .loss = chunk->losses ? chunk->losses + place : NULL,
    };
}

#define EXECUTE(name) static Status execute_##name(Rank *rank, const Instruction *instruction, Error *error)

static PassBuffers forward_buffers(const Rank *rank, const Instruction *instruction)
{
    PassBuffers buffers = pass_buffers(rank, &rank->chunks[instruction->chunk], instruction);
    buffers.y = message_block(rank, instruction->y);
    return buffers;
}

static PassBuffers backward_buffers(const Rank *rank, const Instruction *instruction)
{
    PassBuffers buffers = pass_buffers(rank, &rank->chunks[instruction->chunk], instruction);
    buffers.dx = message_block(rank, instruction->dx);
    return buffers;
}

EXECUTE(FORWARD)
{
    const PassBuffers buffers = forward_buffers(rank, instruction);
    return rank->passes->forward(rank->chunks[instruction->chunk].stage, &buffers, error);
}

EXECUTE(FORWARD_ONLY) { return execute_FORWARD(rank, instruction, error); }

EXECUTE(BACKWARD)
{
    Stage *stage = rank->chunks[instruction->chunk].stage;
    const PassBuffers buffers = backward_buffers(rank, instruction);
    TRY(rank->passes->backward_input(stage, &buffers, error));
    return rank->passes->backward_weight(stage, &buffers, error);
}

EXECUTE(BACKWARD_INPUT)
{
    const PassBuffers buffers = backward_buffers(rank, instruction);
    return rank->passes->backward_input(rank->chunks[instruction->chunk].stage, &buffers, error);
}

EXECUTE(BACKWARD_WEIGHT)
{
    const BoundChunk *chunk = &rank->chunks[instruction->chunk];
    const PassBuffers buffers = pass_buffers(rank, chunk, instruction);
    return rank->passes->backward_weight(chunk->stage, &buffers, error);
}

static Status run_half(Rank *rank, const Instruction *half, Execute *execute, Error *error)
{
    const Status status = execute(rank, half, error);
    if (status != STATUS_OK)
        error_prefix(error, "in its %s: ", opcode_table[half->opcode].text);
    return status;
}

/* The F of the F&B ends here. */
static Status mark_middle(Rank *rank, Error *error)
{
    const DeviceAsync *queues = rank->device->run->async;
    *rank->middle = clock_nanoseconds();
    return queues ? queues->mark(rank->device, (size_t)(rank->middle - rank->clock), error) : STATUS_OK;
}

/* One half after the other, where neither a recipe nor the device says more. */
static Status run_in_turn(Rank *rank, const Instruction *pair, Error *error)
{
    TRY(run_half(rank, pair, execute_FORWARD, error));
    TRY(mark_middle(rank, error));
    if (rank->pipeline->run->progress)
        TRY(rank->pipeline->run->progress(rank->pipeline, error));
    return run_half(rank, pair->second, execute_computing[pair->second->opcode], error);
}

static StagePair pair_of(const Rank *rank, const Instruction *forward)
{
    const Instruction *backward = forward->second;
    return (StagePair){
        .forward = rank->chunks[forward->chunk].stage,
        .backward = rank->chunks[backward->chunk].stage,
        .forward_buffers = forward_buffers(rank, forward),
        .backward_buffers = backward_buffers(rank, backward),
        .weights = backward->opcode == OP_BACKWARD,
    };
}

static Status run_merged(Rank *rank, const Instruction *forward, const Recipe *recipe, Error *error)
{
    StagePair pair = pair_of(rank, forward);
    int64_t forward_time = 0;
    if (!rank->device->run->async)
        pair.forward_time = &forward_time;
    const int64_t begun = clock_nanoseconds();
    TRY(rank->passes->overlap(&pair, recipe, error));
    *rank->middle = forward_time ? begun + forward_time : 0;
    return STATUS_OK;
}

EXECUTE(OVERLAP)
{
    const Recipe *recipe = rank_recipe(rank);
    const Status status = recipe ? run_merged(rank, instruction, recipe, error) : run_in_turn(rank, instruction, error);
    rank->middle++;
    return status;
}

static Status bind_pass(const Rank *rank, const Instruction *pass, BoundPass *bound[2], Error *error)
{
    const Stage *stage = rank->chunks[pass->chunk].stage;
    const bool forward = opcode_is_forward(pass->opcode);
    const PassBuffers buffers = forward ? forward_buffers(rank, pass) : backward_buffers(rank, pass);
    const RecipePass first = forward ? RECIPE_F : pass->opcode == OP_BACKWARD_WEIGHT ? RECIPE_W : RECIPE_B;
    TRY(rank->passes->bind(stage, first, &buffers, &bound[0], error));
    if (pass->opcode == OP_BACKWARD && bound[0])
        TRY(rank->passes->bind(stage, RECIPE_W, &buffers, &bound[1], error));
    if (pass->opcode == OP_BACKWARD && !bound[1])
        bound[0] = NULL; /* both or none */
    return STATUS_OK;
}

Status rank_bind_passes(const Rank *rank, const Program *program, BoundPass **bound, Error *error)
{
    const Instruction *instructions = program->ranks[rank->number].instructions;
    const Recipe *recipe = rank_recipe(rank);
    BoundPass *ignored;
    for (size_t i = 0; instructions[i].opcode != OP_END; i++)
        if (instructions[i].second && recipe) {
            const StagePair pair = pair_of(rank, &instructions[i]);
            TRY(rank->passes->bind_overlap(&pair, recipe, bound ? &bound[2 * i] : &ignored, error));
        } else if (bound && !instructions[i].second && opcode_is_pass(instructions[i].opcode)) {
            TRY(bind_pass(rank, &instructions[i], &bound[2 * i], error));
        }
    return STATUS_OK;
}

static Message *message_to_post(const Rank *rank, const Instruction *instruction, bool is_send)
{
    Message *message = &rank->messages[instruction->message];
    message->peer = instruction->peer;
    message->is_send = is_send;
    return message;
}

EXECUTE(SEND_FORWARD)
{
    return rank->pipeline->run->send(rank->pipeline, message_to_post(rank, instruction, true), error);
}

EXECUTE(RECEIVE_FORWARD)
{
    return rank->pipeline->run->receive(rank->pipeline, message_to_post(rank, instruction, false), error);
}

EXECUTE(SEND_BACKWARD) { return execute_SEND_FORWARD(rank, instruction, error); }

EXECUTE(RECEIVE_BACKWARD) { return execute_RECEIVE_FORWARD(rank, instruction, error); }

EXECUTE(WAIT) { return rank->pipeline->run->wait(rank->pipeline, &rank->messages[instruction->message], error); }

Status rank_reduce(Rank *rank, const Instruction *reduce, void *buffer, size_t elements, Error *error)
{
    Communicator *sums = rank->chunks[reduce->chunk].sums;
    TRY(sums->run->sum_post(sums, buffer, elements, rank->device->run->size[MASTERS], error));
    return sums->run->sum_wait(sums, error);
}

EXECUTE(REDUCE)
{
    const BoundChunk *chunk = &rank->chunks[instruction->chunk];
    return rank_reduce(rank, instruction, chunk->weights.gradients, chunk->sizes->parameters, error);
}

/* What REDUCE makes of the copies of a stage, where one chunk stands for all of them. */
static Status sum_copies(Rank *rank, const BoundChunk *chunk, Error *error)
{
    const DeviceTable *run = rank->device->run;
    const size_t count = chunk->sizes->parameters;
    for (uint32_t copy = 1; chunk->copies && copy < chunk->copies->count; copy++) {
        TRY(run->accumulate(rank->device, count, gradient_of(chunk, copy), chunk->weights.gradients, error));
        TRY(run->fill(rank->device, MASTERS, count, 0, gradient_of(chunk, copy), error));
    }
    return STATUS_OK;
}

double stage_squares(const Rank *rank, uint32_t stage)
{
    const Home *home = &rank->session->counting[stage];
    return rank->squares[home->rank * rank->session->most_chunks + home->chunk];
}

/* Each rank gives the squares of the stages whose copy counts; everybody adds them up in the order of the stages. */
Status rank_sum_squares(Rank *rank, bool of_weights, double *sum, Error *error)
{
    const Session *session = rank->session;
    const DeviceTable *run = rank->device->run;
    for (uint32_t c = 0; c < rank->chunk_count; c++) {
        const BoundChunk *chunk = &rank->chunks[c];
        if (chunk->counts)
            TRY(run->sum_of_squares(rank->device, chunk->sizes->parameters,
                                    of_weights ? chunk->weights.masters : chunk->weights.gradients,
                                    &rank->own_squares[c], error));
    }
    TRY(rank_settle(rank, error)); /* the host waits for the device here */
    TRY(run->download(rank->device, rank->chunk_count * sizeof(double), rank->own_squares, rank->host_squares, error));
    TRY(rank->world->run->gather(rank->world, rank->host_squares, session->most_chunks * sizeof(double), rank->squares,
                                 error));
    *sum = 0;
    for (uint32_t s = 0; s < session->loaded->program->stages; s++)
        *sum += stage_squares(rank, s);
    return STATUS_OK;
}

/* The sum decides what the updates do; where it is not finite all ranks leave theirs out. */
EXECUTE(NORM)
{
    (void)instruction;
    double sum;
    for (uint32_t c = 0; c < rank->chunk_count; c++)
        TRY(sum_copies(rank, &rank->chunks[c], error));
    TRY(rank_sum_squares(rank, false, &sum, error));
    rank->norm = sqrt(sum);
    rank->diverged = !isfinite(rank->norm);
    const double limit = rank->session->model.clip_norm;
    rank->clip = limit > 0 && rank->norm > limit ? limit / rank->norm : 1;
    return STATUS_OK;
}

static Status show_gradient(Rank *rank, uint32_t index, Error *error)
{
    const Observer *observer = &rank->session->hooks.observer;
    const BoundChunk *chunk = &rank->chunks[index];
    const size_t count = chunk->sizes->parameters;
    if (!observer->gradient)
        return STATUS_OK;
    float *values = malloc(count * sizeof *values + 1);
    if (!values)
        return error_set(error, STATUS_RUN_FAILED, "no memory for a gradient to be shown");
    const Status status =
        rank->device->run->store_floats(rank->device, MASTERS, count, chunk->weights.gradients, values, error);
    if (status == STATUS_OK)
        observer->gradient(observer->context, &(GradientView){
                                                  .step = rank->step,
                                                  .rank = rank->number,
                                                  .chunk = index,
                                                  .pipe = chunk->pipe,
                                                  .stage = chunk->number,
                                                  .values = values,
                                                  .count = count,
                                              });
    free(values);
    return status;
}

EXECUTE(UPDATE)
{
    const BoundChunk *chunk = &rank->chunks[instruction->chunk];
    TRY(show_gradient(rank, instruction->chunk, error));
    return rank->diverged ? STATUS_OK : stage_update(chunk->stage, &chunk->weights, rank->step, rank->clip, error);
}

/* The gradient is a sum over the microbatches. It is clipped by its own norm: nobody waits for the other stages'. Where
   that is not finite the next version is the newest once more. */
EXECUTE(RENEW)
{
    BoundChunk *chunk = &rank->chunks[instruction->chunk];
    const DeviceTable *run = rank->device->run;
    const size_t bytes = chunk->sizes->parameters * run->size[ELEMENTS];
    char *const newest = rank->weights[instruction->newest], *const next = rank->weights[instruction->next];
    const double limit = rank->session->model.clip_norm, scale = 1.0 / instruction->microbatch;
    double squares;
    TRY(sum_copies(rank, chunk, error));
    TRY(show_gradient(rank, instruction->chunk, error));
    TRY(stage_gradient_norm(chunk->stage, &chunk->weights, rank->own_squares, error));
    TRY(rank_settle(rank, error));
    TRY(run->download(rank->device, sizeof squares, rank->own_squares, &squares, error));
    const double norm = scale * sqrt(squares);
    const bool finite = isfinite(norm), in_place = chunk->weights.masters == chunk->weights.parameters;
    rank->norm = larger_norm(rank->norm, norm);
    if (next != newest && (in_place || !finite))
        TRY(run->copy(rank->device, bytes, newest, next, error));
    if (!finite)
        return STATUS_OK;
    StageWeights weights = chunk->weights;
    if (in_place)
        weights.masters = next;
    weights.parameters = next;
    return stage_update(chunk->stage, &weights, ++chunk->updates,
                        limit > 0 && norm > limit ? scale * limit / norm : scale, error);
}

EXECUTE(END)
{
    (void)rank, (void)instruction, (void)error;
    return STATUS_OK;
}

Execute *const execute_computing[OPCODE_COUNT] = {
#define OPCODE(name, text, operands, what) [OP_##name] = execute_##name,
#include "runtime/program/opcodes.def"
};

/* "instruction I (TEXT, FILE.dps:LINE)" */
static void instruction_place(const Program *program, uint32_t rank, uint32_t instruction, char *text, size_t size)
{
    char words[160], line[16] = "";
    const RankProgram *own = &program->ranks[rank];
    const Instruction *place = &own->instructions[instruction];
    program_instruction_text(program, rank, place, words, sizeof words);
    if (place->line)
        snprintf(line, sizeof line, ":%u", place->line);
    const uint32_t number = own->numbers ? own->numbers[instruction] : instruction;
    snprintf(text, size, "instruction %u (%s, %s%s)", number, words, program->source, line);
}

static Status failure(const Rank *rank, const Program *program, size_t instruction, Status status, Error *error)
{
    char text[256];
    instruction_place(program, (uint32_t)rank->number, (uint32_t)instruction, text, sizeof text);
    error_prefix(error, "rank %d, %s: ", rank->number, text);
    return status;
}

/* Whose message the WAIT at `place` waits for: the other end of the last one that was posted in its slot. -1: it is no
   WAIT. */
static int awaited_rank(const Instruction *instructions, size_t place)
{
    const uint16_t slot = instructions[place].message;
    if (instructions[place].opcode != OP_WAIT)
        return -1;
    for (size_t i = place; i-- > 0;)
        if (opcode_is_post(instructions[i].opcode) && instructions[i].message == slot)
            return instructions[i].peer;
    return -1;
}

static const Program *program_of(const LoadedProgram *loaded, const Progress *progress)
{
    return atomic_load_explicit(&progress->evaluating, memory_order_relaxed) ? loaded->forward : loaded->program;
}

static void place_words(const void *loaded, const Progress *progress, char *text, size_t size)
{
    const uint64_t place = atomic_load_explicit(&progress->place, memory_order_relaxed);
    *text = '\0';
    if (place != PROGRESS_IDLE)
        instruction_place(program_of(loaded, progress), (uint32_t)atomic_load(&progress->rank), (uint32_t)place, text,
                          size);
}

static int awaited(const void *loaded, const Progress *progress)
{
    const uint64_t place = atomic_load_explicit(&progress->place, memory_order_relaxed);
    const Program *program = program_of(loaded, progress);
    return place == PROGRESS_IDLE
               ? -1
               : awaited_rank(program->ranks[atomic_load(&progress->rank)].instructions, (uint32_t)place);
}

ProgressWords progress_words(const LoadedProgram *loaded)
{
    return (ProgressWords){.program = loaded, .place = place_words, .awaited = awaited};
}

/* Until the device has got to a mark; meanwhile the transport may look after its messages. `peer`: the rank whose
   message stands before the mark, or -1. */
static Status await_mark(Rank *rank, size_t mark, int peer, Error *error)
{
    enum { LOOKS = 200, SLEEP = 20000 }; /* then it is worth sleeping, for so many nanoseconds */
    const double deadline = rank->session->options->deadline;
    const int64_t begun = clock_nanoseconds();
    for (int look = 0;; look++) {
        bool reached = false;
        TRY(rank->device->run->async->reached(rank->device, mark, &reached, error));
        if (reached)
            return STATUS_OK;
        if (rank->pipeline->run->progress)
            TRY(rank->pipeline->run->progress(rank->pipeline, error));
        if (deadline > 0 && (double)(clock_nanoseconds() - begun) > deadline * 1e9)
            return peer < 0 ? error_set(error, STATUS_RUN_FAILED,
                                        "the device has not come to its end within %g s (--deadline)", deadline)
                            : error_set(error, STATUS_RUN_FAILED, "no answer from rank %d within %g s (--deadline)",
                                        peer, deadline);
        if (look >= LOOKS)
            nanosleep(&(struct timespec){.tv_nsec = SLEEP}, NULL);
    }
}

Status rank_settle(Rank *rank, Error *error)
{
    const DeviceAsync *queues = rank->device->run->async;
    if (!queues)
        return STATUS_OK;
    const size_t spare = rank->session->clocks_of_step; /* a mark after those that have a clock */
    TRY(queues->mark(rank->device, spare, error));
    return await_mark(rank, spare, -1, error);
}

/* The device gets to the end of instruction `number`. */
static Status follow(Rank *rank, const Program *program, size_t number, Error *error)
{
    atomic_store_explicit(&rank->progress->place, rank->step << 32 | number, memory_order_relaxed);
    const int peer = awaited_rank(program->ranks[rank->number].instructions, number);
    const Status status = await_mark(rank, number + 1, peer, error);
    return status == STATUS_OK ? STATUS_OK : failure(rank, program, number, status, error);
}

/* Instructions that settle: who waits before them for a peer shall be found there, not here. */
static bool stands_behind_all(uint8_t opcode) { return opcode == OP_NORM || opcode == OP_RENEW; }

/* The clocks of the `count` instructions that were enqueued from `begun` on, and of the middles of their F&Bs. */
static Status read_marks(Rank *rank, size_t count, int64_t begun, Error *error)
{
    const size_t middles = rank->session->longest_stream + 1u, end = (size_t)(rank->middle - rank->clock);
    rank->clock[0] = begun;
    for (size_t i = 1; i < end; i = i == count ? middles : i + 1) {
        int64_t time = 0;
        if (i >= middles && !rank->clock[i])
            continue;
        TRY(rank->device->run->async->mark_time(rank->device, i, &time, error));
        rank->clock[i] = begun + time;
    }
    return STATUS_OK;
}

/* By what is bound to the instruction, if anything is. */
static Status run_instruction(Rank *rank, const Instruction *instruction, BoundPass *const bound[2], Error *error)
{
    if (!bound || !bound[0])
        return rank->execute[instruction->opcode](rank, instruction, error);
    if (instruction->second)
        *rank->middle++ = 0; /* both halves run at once */
    TRY(rank->passes->run(bound[0], error));
    return bound[1] ? rank->passes->run(bound[1], error) : STATUS_OK;
}

/* Enqueues the stream and stays a little ahead of the device: so that its place is known, and what goes wrong there is
   noticed while the host can still act. Mark n is the time that rank->clock[n] shows. */
static Status enqueue(Rank *rank, const Program *program, Error *error)
{
    enum { AHEAD = 32 }; /* instructions of a few launches each; a thousand launches block the caller */
    const Instruction *instructions = program->ranks[rank->number].instructions;
    BoundPass *const *const bound = program == rank->session->loaded->program ? rank->bound : rank->forward_bound;
    const DeviceAsync *queues = rank->device->run->async;
    Status (*const progress)(Communicator *, Error *) = rank->pipeline->run->progress;
    size_t done = 0, count = 0;
    const int64_t begun = clock_nanoseconds();
    TRY(queues->mark(rank->device, 0, error));
    do {
        const size_t ahead = stands_behind_all(instructions[count].opcode) ? 0 : AHEAD - 1;
        while (count > done + ahead)
            TRY(follow(rank, program, done++, error));
        atomic_store_explicit(&rank->progress->place, rank->step << 32 | count, memory_order_relaxed);
        Status status = run_instruction(rank, &instructions[count], bound ? &bound[2 * count] : NULL, error);
        if (status == STATUS_OK)
            status = queues->mark(rank->device, count + 1, error);
        /* posts side by side belong together: the transport is left alone between them */
        if (status == STATUS_OK && progress && instructions[count].opcode != OP_END &&
            !opcode_is_post(instructions[count + 1].opcode))
            status = progress(rank->pipeline, error);
        if (status != STATUS_OK)
            return failure(rank, program, count, status, error);
    } while (instructions[count++].opcode != OP_END);
    while (done < count)
        TRY(follow(rank, program, done++, error));
    TRY(read_marks(rank, count, begun, error));
    atomic_store_explicit(&rank->progress->place, PROGRESS_IDLE, memory_order_relaxed);
    return STATUS_OK;
}

Status rank_execute(Rank *rank, const Program *program, Error *error)
{
    rank->middle = rank->clock + rank->session->longest_stream + 1;
    if (rank->device->run->async)
        return enqueue(rank, program, error);
    const Instruction *instructions = program->ranks[rank->number].instructions;
    const uint64_t step = rank->step << 32;
    Status (*const progress)(Communicator *, Error *) = rank->pipeline->run->progress;
    _Atomic uint64_t *const place = &rank->progress->place;
    int64_t *clock = rank->clock;
    *clock = clock_nanoseconds();
    for (const Instruction *next = instructions;; next++) {
        atomic_store_explicit(place, step | (uint64_t)(next - instructions), memory_order_relaxed);
        Status status = rank->execute[next->opcode](rank, next, error);
        *++clock = clock_nanoseconds();
        if (status == STATUS_OK && next->opcode == OP_END) {
            atomic_store_explicit(place, PROGRESS_IDLE, memory_order_relaxed);
            return STATUS_OK;
        }
        if (status == STATUS_OK && progress)
            status = progress(rank->pipeline, error);
        if (status != STATUS_OK)
            return failure(rank, program, (size_t)(next - instructions), status, error);
    }
}
