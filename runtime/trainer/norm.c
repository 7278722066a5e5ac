/* Norms of gradients and weights, clipping, and the optimizer's steps. */
#include "runtime/trainer/rank.h"

#include <stdlib.h>

/* In a reference run one chunk represents all copies of a stage: adds the gradients of the other copies to that of the
   first one, in the order in which REDUCE adds them. Otherwise does nothing. */
static Status sum_copies(const Rank *rank, const BoundChunk *chunk, Error *error)
{
    const DeviceTable *run = rank->device->run;
    const size_t count = chunk->sizes->parameters;
    for (uint32_t copy = 1; chunk->copies && copy < chunk->copies->count; copy++) {
        TRY(run->accumulate(rank->device, count, gradient_of(chunk, copy), chunk->weights.gradients, error));
        TRY(run->fill(rank->device, MASTER_TYPE, count, 0, gradient_of(chunk, copy), error));
    }
    return STATUS_OK;
}

/* Calls sum_copies, and takes out of the gradient buffer what the W passes have counted there about experts
   (StageTallies). Only one copy of a stage reports these tallies. */
static Status complete_gradient(const Rank *rank, const BoundChunk *chunk, Error *error)
{
    StageTallies reported_elsewhere = {0};
    TRY(sum_copies(rank, chunk, error));
    return stage_take_tallies(chunk->stage, &chunk->weights,
                              chunk->counts ? &rank->records.own->tallies : &reported_elsewhere, error);
}

/* Sum of squares `number` (struct Squares) of a stage, as member `member` has computed it. `home`: the first copy of
   the stage; on `member` the stage is the chunk with the same number. */
static double squares_from(const Rank *rank, const Home *home, int member, size_t number)
{
    const Session *session = rank->session;
    const size_t chunk = (size_t)member * session->most_chunks + home->chunk;
    return rank->squares.all[chunk * square_sums(session) + number];
}

double stage_squares(const Rank *rank, uint32_t stage)
{
    const Session *session = rank->session;
    const Home *home = &session->counting[stage];
    double sum = squares_from(rank, home, home->rank, 0);
    for (int shard = 0; shard < (int)session->loaded->shards; shard++) {
        /* the replica whose member holds the experts of this shard */
        const int holder = expert_members(session) > 1 ? shard : 0;
        sum += squares_from(rank, home, mesh_member(session->mesh, home->rank, holder), 1 + (size_t)shard);
    }
    return sum;
}

/* Adds up the squares of all gradients or, if `of_weights`, of all master weights. A rank computes the sums only of its
   chunks whose flag `counts_experts` is true; every chunk whose flag `counts` is true has that flag, too. Then every
   rank gathers the sums of all ranks and adds them up in the order of the stages, so all ranks get the same result. */
Status sum_squares(Rank *rank, bool of_weights, double *sum, Error *error)
{
    const Session *session = rank->session;
    const DeviceTable *run = rank->device->run;
    const Squares *squares = &rank->squares;
    const size_t each = square_sums(session);
    for (uint32_t c = 0; c < rank->chunk_count; c++) {
        const BoundChunk *chunk = &rank->chunks[c];
        if (chunk->counts_experts)
            TRY(stage_sum_squares(chunk->stage, of_weights ? chunk->weights.master_weights : chunk->weights.gradients,
                                  session->loaded->shards, &squares->own[c * each], error));
    }
    TRY(executor_settle(rank->executor, error)); /* waits until the device has computed everything */
    TRY(run->download(rank->device, rank->chunk_count * each * sizeof(double), squares->own, squares->host, error));
    TRY(rank_gather(rank, squares->host, session->most_chunks * each * sizeof(double), squares->all, error));
    *sum = 0;
    for (uint32_t s = 0; s < session->loaded->program->stages; s++)
        *sum += stage_squares(rank, s);
    return STATUS_OK;
}

/* NORM: computes the norm of all gradients, and from it the factor by which the updates clip them. If the norm is not
   finite, all ranks skip their updates. */
Status norm_of_gradients(void *host, Error *error)
{
    Rank *rank = host;
    const double limit = rank->session->model.clip_norm;
    double sum;
    for (uint32_t c = 0; c < rank->chunk_count; c++)
        TRY(complete_gradient(rank, &rank->chunks[c], error));
    TRY(sum_squares(rank, false, &sum, error));
    const double norm = rank->squares.norm = sqrt(sum);
    rank->diverged = !isfinite(norm);
    rank->squares.clip = limit > 0 && norm > limit ? limit / norm : 1;
    return STATUS_OK;
}

static Status show_gradient(const Rank *rank, uint32_t index, Error *error)
{
    const Observer *observer = &rank->session->hooks.observer;
    const BoundChunk *chunk = &rank->chunks[index];
    const size_t count = chunk->sizes->parameters;
    if (!observer->gradient)
        return STATUS_OK;
    float *values = malloc(count * sizeof *values + 1);
    if (!values)
        return error_set(error, STATUS_RUN_FAILED, "no memory for a copy of the gradient of stage %u",
                         (unsigned)chunk->number);
    const Status status =
        rank->device->run->store_floats(rank->device, MASTER_TYPE, count, chunk->weights.gradients, values, error);
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

Status update_weights(void *host, uint32_t index, Error *error)
{
    const Rank *rank = host;
    const BoundChunk *chunk = &rank->chunks[index];
    TRY(show_gradient(rank, index, error));
    return rank->diverged ? STATUS_OK
                          : stage_update(chunk->stage, &chunk->weights, rank->step, rank->squares.clip, error);
}

/* Computes `scale` times the norm of the chunk's gradient, which is a sum over microbatches. Waits for the device. */
static Status norm_of_chunk(const Rank *rank, const BoundChunk *chunk, double scale, double *norm, Error *error)
{
    double squares;
    TRY(stage_gradient_norm(chunk->stage, &chunk->weights, rank->squares.own, error));
    TRY(executor_settle(rank->executor, error));
    TRY(rank->device->run->download(rank->device, sizeof squares, rank->squares.own, &squares, error));
    *norm = scale * sqrt(squares);
    return STATUS_OK;
}

/* U: an optimizer step within the step. The gradient of the stage is clipped by its own norm, not by that of all
   stages, so no stage waits for others. If the norm is not finite, the next version of the weights is a copy of the
   newest one. */
Status update_weights_async(void *host, uint32_t index, uint32_t microbatches, uint16_t newest_slot, uint16_t next_slot,
                            Error *error)
{
    Rank *rank = host;
    BoundChunk *chunk = &rank->chunks[index];
    const DeviceTable *run = rank->device->run;
    const size_t bytes = chunk->sizes->parameters * run->size[COMPUTE_TYPE];
    char *const newest = rank->weights[newest_slot], *const next = rank->weights[next_slot];
    const double limit = rank->session->model.clip_norm, scale = 1.0 / (microbatches * rank->session->loaded->replicas);
    double norm;
    TRY(complete_gradient(rank, chunk, error));
    TRY(show_gradient(rank, index, error));
    TRY(norm_of_chunk(rank, chunk, scale, &norm, error));
    const bool finite = isfinite(norm), in_place = chunk->weights.master_weights == chunk->weights.parameters;
    rank->squares.norm = larger_norm(rank->squares.norm, norm);
    if (next != newest && (in_place || !finite))
        TRY(run->copy(rank->device, bytes, newest, next, error));
    if (!finite)
        return STATUS_OK;
    StageWeights weights = chunk->weights;
    if (in_place)
        weights.master_weights = next;
    weights.parameters = next;
    return stage_update(chunk->stage, &weights, ++chunk->updates,
                        limit > 0 && norm > limit ? scale * limit / norm : scale, error);
}
