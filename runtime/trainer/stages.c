/* A rank's stages: their weights, where these are in memory, and the data and losses of a step. */
#include "runtime/trainer/rank.h"

#include <string.h>

enum { ALIGNMENT = 64 };

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
    const size_t master_bytes = chunk->sizes->parameters * size[MASTER_TYPE];
    StageWeights *weights = &chunk->weights;
    weights->parameters = weights->master_weights = place(layout, chunk->sizes->parameters * size[COMPUTE_TYPE]);
    if (!learns)
        return;
    if (size[COMPUTE_TYPE] != size[MASTER_TYPE])
        weights->master_weights = place(layout, master_bytes);
    chunk->gradient_bytes = aligned(master_bytes);
    weights->gradients = place(layout, (chunk->copies ? chunk->copies->count : 1) * chunk->gradient_bytes);
    weights->moment1 = place(layout, master_bytes);
    weights->moment2 = place(layout, master_bytes);
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

static uint32_t version_slots(const Rank *rank)
{
    const LoadedProgram *loaded = rank->session->loaded;
    const uint32_t program = loaded->program->ranks[rank->number].slots[SLOT_WEIGHTS],
                   forward = loaded->forward->ranks[rank->number].slots[SLOT_WEIGHTS];
    return program > forward ? program : forward;
}

/* Assigns memory to further versions of weights. The first U that fills a slot decides to which chunk the slot
   belongs. */
static void place_versions(const Rank *rank, Layout *layout)
{
    const RankProgram *own = &rank->session->loaded->program->ranks[rank->number];
    for (uint32_t w = rank->chunk_count; w < version_slots(rank); w++)
        rank->weights[w] = NULL;
    for (uint32_t i = 0; i < own->instruction_count; i++) {
        const Instruction *instruction = &own->instructions[i];
        if (instruction->opcode == OP_ASYNC_UPDATE && instruction->next >= rank->chunk_count &&
            !rank->weights[instruction->next])
            rank->weights[instruction->next] = place(layout, rank->chunks[instruction->chunk].sizes->parameters *
                                                                 rank->device->run->size[COMPUTE_TYPE]);
    }
}

void stages_place(Rank *rank, Layout *layout)
{
    const bool learns = !rank->session->loaded->program->forward_only;
    size_t workspace = 0;
    if (!rank->chunk_count)
        return; /* simulated */
    for (uint32_t c = 0; c < rank->chunk_count; c++) {
        const size_t bytes = rank->chunks[c].sizes->workspace * rank->device->run->size[COMPUTE_TYPE];
        workspace = bytes > workspace ? bytes : workspace;
    }
    rank->workspace = place(layout, workspace);
    rank->squares.own =
        (double *)(void *)place(layout, rank->chunk_count * square_sums(rank->session) * sizeof *rank->squares.own);
    for (uint32_t c = 0; c < rank->chunk_count; c++) {
        place_weights(rank, layout, &rank->chunks[c], learns);
        place_data(layout, &rank->chunks[c], rank->session->options->outputs != NULL);
        rank->weights[c] = rank->chunks[c].weights.parameters;
    }
    place_versions(rank, layout);
}

/* Numbers the microbatches whose F the chunk runs, in ascending order (chunk->places). Only first and last stages need
   these numbers. `of_pipe`: the number of microbatches of the pipe. False: no memory. */
static bool find_microbatches(Rank *rank, uint32_t number, BoundChunk *chunk, uint32_t of_pipe)
{
    const RankProgram *own = &rank->session->loaded->program->ranks[rank->number];
    if (!chunk->is_first && !chunk->is_last)
        return true;
    chunk->places = rank_table(rank, of_pipe, sizeof *chunk->places);
    if (!chunk->places)
        return false;
    memset(chunk->places, 0xff, of_pipe * sizeof *chunk->places); /* PLACE_NONE */
    for (uint32_t i = 0; i < own->instruction_count; i++)
        for (const Instruction *half = &own->instructions[i]; half; half = half->second)
            if (opcode_is_forward(half->opcode) && half->chunk == number)
                chunk->places[half->microbatch] = 0;
    for (uint32_t m = 0; m < of_pipe; m++)
        if (chunk->places[m] != PLACE_NONE)
            chunk->places[m] = chunk->microbatches++;
    return true;
}

static void describe(const Rank *rank, uint32_t index, BoundChunk *chunk)
{
    const Session *session = rank->session;
    const Program *program = session->loaded->program;
    const Chunk *own = &program->ranks[rank->number].chunks[index];
    const Home *counting = &session->counting[own->stage];
    *chunk = (BoundChunk){
        .pipe = own->pipe,
        .number = own->stage,
        .first = (uint32_t)rank->replica * program->microbatches + program->pipes[own->pipe].first,
        .is_first = own->stage == 0,
        .is_last = own->stage + 1u == program->stages,
        .counts = counting->rank == rank->member && counting->chunk == index,
        .counts_experts =
            counting->rank == rank->number && counting->chunk == index && rank->replica < expert_members(rank->session),
        .copies = program->copies && program->copies[own->stage].count ? &program->copies[own->stage] : NULL,
    };
}

/* Opens a stage. *losses: where in the rank's record the next losses are stored. If this chunk is a last stage, its
   losses are stored there, and *losses advances past them. */
static Status open_stage(Rank *rank, uint32_t index, double **losses, Error *error)
{
    const Session *session = rank->session;
    const Program *program = session->loaded->program;
    BoundChunk *chunk = &rank->chunks[index];
    describe(rank, index, chunk);
    if (!find_microbatches(rank, index, chunk, program->pipes[chunk->pipe].microbatches))
        return rank_no_tables(rank, error);
    if (chunk->is_last) {
        chunk->host_losses = *losses;
        *losses += chunk->microbatches;
    }
    /* the gradient of the loss is divided by this number; in an asynchronous program update_weights_async divides */
    const uint32_t together = program->asynchronous ? 1 : session->microbatches;
    const Status status =
        stage_open(&rank->model, rank->device, chunk->number, program->stages, together, &chunk->stage, error);
    if (status != STATUS_OK) {
        error_prefix(error, "%s, stage %u: ", rank_name(rank).text, chunk->number);
        return status;
    }
    chunk->sizes = stage_sizes(chunk->stage);
    rank->records.own->parameters += chunk->counts ? chunk->sizes->saved : 0;
    return STATUS_OK;
}

static Status post_pieces(void *context, AllToAll *pieces, Error *error)
{
    Communicator *shards = ((Rank *)context)->communicators.shards;
    return shards->run->all_to_all_post(shards, pieces, error);
}

static Status await_pieces(void *context, AllToAll *pieces, Error *error)
{
    Communicator *shards = ((Rank *)context)->communicators.shards;
    return shards->run->all_to_all_wait(shards, pieces, error);
}

static Status progress(void *context, Error *error)
{
    Communicator *shards = ((Rank *)context)->communicators.shards;
    return shards->run->progress(shards, error);
}

/* Makes the expert group of the rank: the consecutive replicas that together hold the experts of its stages. */
static void divide_experts(Rank *rank)
{
    const int members = expert_members(rank->session);
    const RunOptions *options = rank->session->options;
    rank->model = rank->session->model;
    rank->model.expert_rows = options->expert_rows;
    rank->experts = (ExpertGroup){.members = members,
                                  .self = rank->replica % members,
                                  .replicas = options->expert_replicas,
                                  .moves = options->rebalance > 0,
                                  .context = rank,
                                  .post = post_pieces,
                                  .wait = await_pieces,
                                  .progress = options->transport->processes ? progress : NULL};
    if (members > 1)
        rank->model.expert_group = &rank->experts;
}

Status stages_open(Rank *rank, Error *error)
{
    divide_experts(rank);
    const uint32_t count = rank->session->loaded->program->ranks[rank->number].chunk_count;
    double *losses = rank->records.own->losses;
    size_t data = 0;
    rank->chunks = rank_table(rank, count, sizeof *rank->chunks);
    rank->weights = rank_table(rank, version_slots(rank), sizeof *rank->weights);
    if (!rank->chunks || !rank->weights)
        return rank_no_tables(rank, error);
    while (rank->chunk_count < count) {
        TRY(open_stage(rank, rank->chunk_count, &losses, error));
        const StageSizes *sizes = rank->chunks[rank->chunk_count++].sizes;
        data = sizes->inputs + sizes->targets > data ? sizes->inputs + sizes->targets : data;
    }
    rank->data = rank_table(rank, 1, data);
    return rank->data ? STATUS_OK : rank_no_tables(rank, error);
}

ChunkPlan stages_plan(const Rank *rank, uint32_t chunk)
{
    const StageSizes *sizes = rank->chunks[chunk].sizes;
    const size_t element = rank->device->run->size[COMPUTE_TYPE];
    return (ChunkPlan){
        .message = sizes->message * element,
        .context = sizes->context * element,
        .stash = sizes->stash * element,
        .gradient = sizes->gradient * element,
        .weight_gradient = sizes->parameters,
        .sharded = rank->model.expert_group ? sizes->experts : 0,
        .element = rank->device->run->size[MASTER_TYPE],
    };
}

Status stages_initialize(Rank *rank, Error *error)
{
    for (uint32_t c = 0; c < rank->chunk_count; c++)
        TRY(stage_initialize(rank->chunks[c].stage, &rank->chunks[c].weights, error));
    return STATUS_OK;
}

void stages_close(Rank *rank)
{
    for (uint32_t c = 0; c < rank->chunk_count; c++)
        stage_close(rank->chunks[c].stage);
}

/* Writes the inputs and targets of a microbatch; either pointer may be NULL. The data are training data of step `step`
   or, if `held_out`, held-out data of round `step`. */
static void draw(const Session *session, uint64_t step, uint32_t number, bool held_out, void *inputs, void *targets)
{
    if (held_out)
        dataset_held_out(
            session->dataset,
            held_out_windows(session->held_out, session->model.microbatch_size, step * session->microbatches + number),
            inputs, targets);
    else
        dataset_microbatch(session->dataset, step, number, inputs, targets);
}

Status stages_fill(Rank *rank, uint64_t step, bool held_out, Error *error)
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

Status stages_read_losses(Rank *rank, Error *error)
{
    for (uint32_t c = 0; c < rank->chunk_count; c++) {
        const BoundChunk *chunk = &rank->chunks[c];
        if (chunk->is_last)
            TRY(rank->device->run->download(rank->device, chunk->microbatches * sizeof *chunk->losses, chunk->losses,
                                            chunk->host_losses, error));
    }
    return STATUS_OK;
}
