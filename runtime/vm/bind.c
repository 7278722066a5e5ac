/* A rank of a program gets its stages and its memory: all slots of the plan, weights, data of a step and tables. */
#include "runtime/vm/machine.h"

#include "runtime/device/device.h"
#include "runtime/launcher/launched.h"
#include "runtime/launcher/memory.h"

#include <string.h>

enum { ALIGNMENT = 64 };

/* Hands out one block of memory from its beginning on; with `base` NULL it only measures. */
typedef struct Layout {
    char *base;
    size_t used;
} Layout;

static size_t aligned(size_t bytes) { return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT; }

static char *place(Layout *layout, size_t bytes)
{
    char *where = layout->base ? layout->base + layout->used : NULL;
    layout->used += aligned(bytes);
    return where;
}

static void place_weights(const Rank *rank, Layout *layout, BoundChunk *chunk, bool learns)
{
    const size_t *size = rank->device->run->size;
    const size_t masters = chunk->sizes->parameters * size[MASTERS];
    StageWeights *weights = &chunk->weights;
    weights->parameters = weights->masters = place(layout, chunk->sizes->parameters * size[ELEMENTS]);
    if (!learns)
        return;
    if (size[ELEMENTS] != size[MASTERS])
        weights->masters = place(layout, masters);
    chunk->gradient_bytes = aligned(masters);
    weights->gradients = place(layout, (chunk->copies ? chunk->copies->count : 1) * chunk->gradient_bytes);
    weights->moment1 = place(layout, masters);
    weights->moment2 = place(layout, masters);
}

static void place_data(Layout *layout, BoundChunk *chunk, bool outputs)
{
    if (chunk->is_first)
        chunk->inputs = place(layout, chunk->microbatches * chunk->sizes->inputs);
    if (chunk->is_last) {
        chunk->targets = place(layout, chunk->microbatches * chunk->sizes->targets);
        chunk->losses = (double *)(void *)place(layout, chunk->microbatches * sizeof *chunk->losses);
    }
    if (chunk->is_last && outputs)
        chunk->outputs = place(layout, chunk->microbatches * chunk->sizes->outputs * sizeof(float));
}

/* Further versions of weights, each where the first U that fills its slot says whose it is. */
static void place_versions(const Rank *rank, Layout *layout)
{
    const RankProgram *own = &rank->session->loaded->program->ranks[rank->number];
    for (uint32_t w = rank->chunk_count; w < rank->slots[SLOT_WEIGHTS]; w++)
        rank->weights[w] = NULL;
    for (uint32_t i = 0; i < own->instruction_count; i++) {
        const Instruction *instruction = &own->instructions[i];
        if (instruction->opcode == OP_RENEW && instruction->next >= rank->chunk_count &&
            !rank->weights[instruction->next])
            rank->weights[instruction->next] =
                place(layout, rank->chunks[instruction->chunk].sizes->parameters * rank->device->run->size[ELEMENTS]);
    }
}

/* Slots of a class are of one size, that of the rank's largest chunk: the plan counts activations, whichever
   chunk's. */
static void place_everything(Rank *rank, Layout *layout)
{
    const uint32_t *slots = rank->slots;
    const bool learns = !rank->session->loaded->program->forward_only;
    size_t workspace = 0;
    for (uint32_t c = 0; c < rank->chunk_count; c++) {
        const size_t bytes = rank->chunks[c].sizes->workspace * rank->device->run->size[ELEMENTS];
        workspace = bytes > workspace ? bytes : workspace;
    }
    for (uint32_t i = 0; i < slots[SLOT_MESSAGE]; i++)
        rank->blocks[i] = place(layout, rank->message_bytes);
    rank->contexts = place(layout, slots[SLOT_CONTEXT] * rank->context_bytes);
    rank->stashes = place(layout, slots[SLOT_STASH] * rank->stash_bytes);
    rank->gradients = place(layout, slots[SLOT_GRADIENT] * rank->gradient_bytes);
    rank->workspace = place(layout, workspace);
    rank->own_squares = (double *)(void *)place(layout, rank->chunk_count * sizeof *rank->own_squares);
    for (uint32_t c = 0; c < rank->chunk_count; c++) {
        place_weights(rank, layout, &rank->chunks[c], learns);
        place_data(layout, &rank->chunks[c], rank->session->options->outputs != NULL);
        rank->weights[c] = rank->chunks[c].weights.parameters;
    }
    place_versions(rank, layout);
}

static void *table(Rank *rank, size_t count, size_t bytes)
{
    rank->table_bytes += count * bytes;
    return arena_array(&rank->tables, count, bytes);
}

static Status no_tables(const Rank *rank, Error *error)
{
    return error_set(error, STATUS_RUN_FAILED, "rank %d: no memory for its tables, %zu MiB", rank->number,
                     rank->table_bytes >> 20);
}

/* Which microbatches pass the chunk: those whose F it runs. False when there is no memory. */
static bool find_microbatches(Rank *rank, uint32_t number, BoundChunk *chunk, uint32_t of_pipe)
{
    const RankProgram *own = &rank->session->loaded->program->ranks[rank->number];
    if (!chunk->is_first && !chunk->is_last)
        return true; /* it has no memory of its own for each */
    chunk->places = table(rank, of_pipe, sizeof *chunk->places);
    if (!chunk->places)
        return false;
    memset(chunk->places, 0xff, of_pipe * sizeof *chunk->places); /* PLACE_NONE */
    for (uint32_t i = 0; i < own->instruction_count; i++)
        if (opcode_is_forward(own->instructions[i].opcode) && own->instructions[i].chunk == number)
            chunk->places[own->instructions[i].microbatch] = 0;
    for (uint32_t m = 0; m < of_pipe; m++)
        if (chunk->places[m] != PLACE_NONE)
            chunk->places[m] = chunk->microbatches++;
    return true;
}

/* Nothing is computed: chunks without weights or data, messages of a few bytes. */
static void bind_simulated(Rank *rank)
{
    static const StageSizes nothing;
    const RankProgram *own = &rank->session->loaded->program->ranks[rank->number];
    for (uint32_t c = 0; c < rank->chunk_count; c++)
        rank->chunks[c] = (BoundChunk){.sizes = &nothing, .pipe = own->chunks[c].pipe, .number = own->chunks[c].stage};
    rank->message_bytes = simulated_message_bytes;
    simulate_begin();
}

static Status open_stages(Rank *rank, Error *error)
{
    const Session *session = rank->session;
    const Program *program = session->loaded->program;
    const RankProgram *own = &program->ranks[rank->number];
    double *losses = rank->record->losses;
    for (uint32_t c = 0; c < rank->chunk_count; c++) {
        BoundChunk *chunk = &rank->chunks[c];
        const Pipe *pipe = &program->pipes[own->chunks[c].pipe];
        const Home *counting = &session->counting[own->chunks[c].stage];
        *chunk = (BoundChunk){
            .pipe = own->chunks[c].pipe,
            .number = own->chunks[c].stage,
            .first = pipe->first,
            .is_first = own->chunks[c].stage == 0,
            .is_last = own->chunks[c].stage + 1u == program->stages,
            .counts = counting->rank == rank->number && counting->chunk == c,
            .copies = program->copies && program->copies[own->chunks[c].stage].count
                          ? &program->copies[own->chunks[c].stage]
                          : NULL,
        };
        if (!find_microbatches(rank, c, chunk, pipe->microbatches))
            return no_tables(rank, error);
        if (chunk->is_last) {
            chunk->host_losses = losses;
            losses += chunk->microbatches;
        }
        const uint32_t together = program->asynchronous ? 1 : program->microbatches; /* U makes its own mean */
        Status status =
            stage_open(&session->model, rank->device, chunk->number, program->stages, together, &chunk->stage, error);
        if (status != STATUS_OK) {
            error_prefix(error, "rank %d, stage %u: ", rank->number, chunk->number);
            return status;
        }
        const StageSizes *sizes = chunk->sizes = stage_sizes(chunk->stage);
        const size_t element = rank->device->run->size[ELEMENTS];
        const size_t context = aligned(sizes->context * element);
        const size_t stash = aligned(sizes->stash * element);
        const size_t gradient = aligned(sizes->gradient * element);
        rank->message_bytes = sizes->message * element;
        rank->context_bytes = context > rank->context_bytes ? context : rank->context_bytes;
        rank->stash_bytes = stash > rank->stash_bytes ? stash : rank->stash_bytes;
        rank->gradient_bytes = gradient > rank->gradient_bytes ? gradient : rank->gradient_bytes;
        rank->record->parameters += chunk->counts ? sizes->parameters : 0;
    }
    return STATUS_OK;
}

/* All tables of the rank; false when there is no memory. */
static bool make_tables(Rank *rank)
{
    const Session *session = rank->session;
    const Program *program = session->loaded->program;
    const RankProgram *own = &program->ranks[rank->number];
    const size_t ranks = program->rank_count;
    const RankProgram *forward = &session->loaded->forward->ranks[rank->number];
    for (uint32_t class = 0; class < SLOT_CLASSES; class ++)
        rank->slots[class] = own->slots[class] > forward->slots[class] ? own->slots[class] : forward->slots[class];
    rank->chunk_count = own->chunk_count;
    rank->chunks = table(rank, own->chunk_count, sizeof *rank->chunks);
    rank->blocks = table(rank, rank->slots[SLOT_MESSAGE], sizeof *rank->blocks);
    rank->weights = table(rank, rank->slots[SLOT_WEIGHTS], sizeof *rank->weights);
    rank->messages = table(rank, rank->slots[SLOT_MESSAGE], sizeof *rank->messages);
    rank->squares = table(rank, ranks * session->most_chunks, sizeof *rank->squares);
    rank->host_squares = table(rank, session->most_chunks, sizeof *rank->host_squares);
    rank->clocks = table(rank, session->kept_steps + 1, session->clocks_of_step * sizeof *rank->clocks);
    rank->clock = rank->clocks;
    rank->record = table(rank, 1, session->record_bytes);
    rank->records = table(rank, ranks, session->record_bytes);
    rank->losses = table(rank, program->microbatches, sizeof *rank->losses);
    rank->busy = table(rank, ranks, sizeof *rank->busy);
    if (session->piece_bytes) {
        rank->piece = table(rank, 1, session->piece_bytes);
        rank->pieces = table(rank, ranks, session->piece_bytes);
    }
    return rank->chunks && rank->blocks && rank->weights && rank->messages && rank->squares && rank->host_squares &&
           rank->clocks && rank->record && rank->records && rank->losses && rank->busy &&
           (!session->piece_bytes || (rank->piece && rank->pieces));
}

static int gpu_of(const Rank *rank)
{
    const Transport *transport = rank->session->options->transport;
    return !transport->gpu_each ? 0 : transport->processes ? launched_place_on_machine() : rank->number;
}

static Status connect(Rank *rank, CommunicatorConfig *config, Communicator **made, Error *error)
{
    config->device = rank->device->run->async ? rank->device : NULL;
    TRY(rank->world->connect(rank->world, config, made, error));
    rank->table_bytes += (*made)->bytes;
    return STATUS_OK;
}

/* All ranks, for the messages of the program. */
static Status connect_pipeline(Rank *rank, Error *error)
{
    const Program *program = rank->session->loaded->program;
    const Transport *transport = rank->session->options->transport;
    CommunicatorConfig config = {.count = (int)program->rank_count, .messages_in_flight = 1};
    if (rank->device->run->async && !transport->gpu_memory)
        return error_set(error, STATUS_RUN_FAILED, "transport %s moves no memory of device %s", transport->name,
                         rank->device->run->name);
    int *members = table(rank, program->rank_count, sizeof *members);
    if (!members)
        return no_tables(rank, error);
    config.members = members;
    for (uint32_t r = 0; r < program->rank_count; r++) { /* each message is in a slot */
        members[r] = (int)r;
        if ((int)program->ranks[r].slots[SLOT_MESSAGE] > config.messages_in_flight)
            config.messages_in_flight = (int)program->ranks[r].slots[SLOT_MESSAGE];
    }
    return connect(rank, &config, &rank->pipeline, error);
}

/* The copies of each stage, for the sums of their gradients. */
static Status connect_copies(Rank *rank, Error *error)
{
    const Program *program = rank->session->loaded->program;
    int *members = table(rank, program->rank_count, sizeof *members);
    if (!members)
        return no_tables(rank, error);
    for (uint32_t g = 0; g < program->group_count && !program->forward_only; g++) {
        const Group *group = &program->groups[g];
        BoundChunk *chunk = NULL;
        for (int i = 0; i < group->member_count; i++) {
            members[i] = group->members[i].rank;
            if (members[i] == rank->number)
                chunk = &rank->chunks[group->members[i].chunk];
        }
        if (!chunk)
            continue;
        CommunicatorConfig config = {
            .members = members,
            .count = group->member_count,
            .number = 1 + (int)g,
            .sum_elements = chunk->sizes->parameters ? chunk->sizes->parameters : 1, /* simulated: a number */
            .sum_size = rank->device->run->size[MASTERS],
        };
        TRY(connect(rank, &config, &chunk->sums, error));
    }
    return STATUS_OK;
}

/* All ranks of a machine take its memory together, and find out before the first of them does: otherwise the kernel
   ends one of them, without words, when it touches what is not there. A meeting of all ranks. */
static Status check_memory(Rank *rank, Error *error)
{
    const uint32_t ranks = rank->session->loaded->program->rank_count;
    MemoryNeed *needs = table(rank, ranks + 1, sizeof *needs), *own = needs + ranks;
    uint64_t together = 0;
    if (!needs)
        return no_tables(rank, error);
    const MemoryPools pools = memory_pools("");
    *own = memory_need(&pools, rank->memory_bytes + rank->table_bytes);
    TRY(rank->world->run->gather(rank->world, own, sizeof *own, needs, error));
    const MemoryPool *pool = memory_shortage(&pools, needs, ranks, &together);
    if (!pool || rank->session->options->overcommit)
        return STATUS_OK;
    const double gibibyte = 1 << 30;
    return error_set(error, STATUS_RUN_FAILED,
                     "the plan needs %.1f GiB %s%s%s, of which %.1f are free: a smaller model, fewer microbatches or a "
                     "schedule with a lower peak need less; --overcommit tries it all the same",
                     (double)together / gibibyte,
                     *pool->name ? "within the limit of control group " : "on this machine", pool->name,
                     *pool->name ? " (of a container or a job)" : "", (double)pool->free / gibibyte);
}

const Recipe *rank_recipe(const Rank *rank)
{
    static const Recipe unsaid; /* F, then B: the device finds what can run at once */
    const Recipe *recipe = rank->session->loaded->program->recipe;
    if (!rank->passes->overlap || rank->session->options->in_turn)
        return NULL;
    return recipe ? recipe : rank->device->run->fusion ? &unsaid : NULL;
}

/* Message blocks never move where the device only enqueues (Transport.attach). */
static Status bind_passes(Rank *rank, Error *error)
{
    const LoadedProgram *loaded = rank->session->loaded;
    const RunOptions *options = rank->session->options;
    if (!rank->passes->bind || options->simulated || options->in_turn)
        return STATUS_OK;
    if (!rank->device->run->async)
        return rank_bind_passes(rank, loaded->program, NULL, error);
    rank->bound = table(rank, loaded->program->ranks[rank->number].instruction_count, 2 * sizeof *rank->bound);
    rank->forward_bound = table(rank, loaded->forward->ranks[rank->number].instruction_count, 2 * sizeof *rank->bound);
    if (!rank->bound || !rank->forward_bound)
        return no_tables(rank, error);
    TRY(rank_bind_passes(rank, loaded->program, rank->bound, error));
    return rank_bind_passes(rank, loaded->forward, rank->forward_bound, error);
}

Status rank_bind(Rank *rank, Error *error)
{
    if (!make_tables(rank))
        return no_tables(rank, error);
    TRY(device_open(rank->session->device, gpu_of(rank), &rank->device, error));
    TRY(connect_pipeline(rank, error));
    if (rank->device->run->async)
        TRY(rank->device->run->async->make_marks(rank->device, rank->session->clocks_of_step + 1, error));
    if (rank->session->options->simulated)
        bind_simulated(rank);
    else
        TRY(open_stages(rank, error));
    TRY(connect_copies(rank, error));
    size_t data = 0;
    for (uint32_t c = 0; c < rank->chunk_count; c++) {
        const size_t bytes = rank->chunks[c].sizes->inputs + rank->chunks[c].sizes->targets;
        data = bytes > data ? bytes : data;
    }
    rank->data = table(rank, 1, data);
    if (!rank->data)
        return error_set(error, STATUS_RUN_FAILED, "rank %d: no memory for its data", rank->number);
    Layout layout = {0};
    place_everything(rank, &layout);
    rank->memory_bytes = layout.used;
    if (!rank->device->run->async)
        TRY(check_memory(rank, error));
    Status status = rank->device->run->allocate(rank->device, layout.used, &rank->memory, error);
    if (status != STATUS_OK) {
        error_prefix(error, "rank %d, the %zu MiB of its plan: ", rank->number, layout.used >> 20);
        return status;
    }
    layout = (Layout){.base = rank->memory};
    place_everything(rank, &layout);
    for (uint32_t i = 0; i < rank->slots[SLOT_MESSAGE]; i++)
        rank->messages[i] = (Message){.block = &rank->blocks[i], .bytes = rank->message_bytes};
    for (uint32_t c = 0; c < rank->chunk_count && rank->chunks[c].stage; c++)
        TRY(stage_initialize(rank->chunks[c].stage, &rank->chunks[c].weights, error));
    TRY(bind_passes(rank, error));
    rank->record->planned_bytes = rank->memory_bytes + rank->table_bytes + rank->device->bound_bytes;
    return STATUS_OK;
}

void rank_release(Rank *rank)
{
    for (uint32_t c = 0; rank->chunks && c < rank->chunk_count; c++)
        if (rank->chunks[c].sums)
            rank->chunks[c].sums->run->close(rank->chunks[c].sums);
    if (rank->pipeline)
        rank->pipeline->run->close(rank->pipeline);
    for (uint32_t c = 0; rank->chunks && c < rank->chunk_count; c++)
        if (rank->chunks[c].stage)
            stage_close(rank->chunks[c].stage);
    if (rank->device)
        rank->device->run->deallocate(rank->device, rank->memory);
    device_close(rank->device);
    arena_free(&rank->tables);
}

/* A microbatch's inputs, then its targets. */
static void draw(const Session *session, uint64_t step, uint32_t number, bool held_out, void *inputs, void *targets)
{
    if (held_out)
        dataset_held_out(session->dataset,
                         held_out_windows(session->held_out, session->model.microbatch_size,
                                          step * session->loaded->program->microbatches + number),
                         inputs, targets);
    else
        dataset_microbatch(session->dataset, step, number, inputs, targets);
}

Status rank_fill(Rank *rank, uint64_t step, bool held_out, Error *error)
{
    const DeviceTable *run = rank->device->run;
    for (uint32_t c = 0; c < rank->chunk_count; c++) {
        const BoundChunk *chunk = &rank->chunks[c];
        const uint32_t of_pipe = rank->session->loaded->program->pipes[chunk->pipe].microbatches;
        const size_t inputs = chunk->sizes->inputs, targets = chunk->sizes->targets;
        for (uint32_t m = 0; chunk->places && m < of_pipe; m++) {
            const uint32_t place = chunk->places[m];
            if (place == PLACE_NONE)
                continue;
            draw(rank->session, step, chunk->first + m, held_out, chunk->inputs ? rank->data : NULL,
                 chunk->targets ? rank->data + inputs : NULL);
            if (chunk->inputs)
                TRY(run->upload(rank->device, inputs, rank->data, chunk->inputs + place * inputs, error));
            if (chunk->targets)
                TRY(run->upload(rank->device, targets, rank->data + inputs, chunk->targets + place * targets, error));
        }
    }
    return STATUS_OK;
}

Status rank_read_losses(Rank *rank, Error *error)
{
    for (uint32_t c = 0; c < rank->chunk_count; c++) {
        const BoundChunk *chunk = &rank->chunks[c];
        if (chunk->is_last)
            TRY(rank->device->run->download(rank->device, chunk->microbatches * sizeof *chunk->losses, chunk->losses,
                                            chunk->host_losses, error));
    }
    return STATUS_OK;
}
