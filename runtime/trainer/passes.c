/* The model's passes as functions of the executor. They find the buffers of a pass (PassBuffers) from the slots of the
   pass and from the weights and data of the rank. */
#include "runtime/trainer/rank.h"

void *gradient_of(const BoundChunk *chunk, uint32_t copy)
{
    return (char *)chunk->weights.gradients + copy * chunk->gradient_bytes;
}

static inline PassBuffers buffers_of(const Rank *rank, const PassSlots *slots)
{
    const BoundChunk *chunk = &rank->chunks[slots->chunk];
    const uint32_t place = chunk->places ? chunk->places[slots->microbatch] : PLACE_NONE;
    const uint32_t copy = chunk->copies ? chunk->copies->of[slots->microbatch] : 0;
    return (PassBuffers){
        .parameters = slots->weights == SLOT_NONE ? NULL : rank->weights[slots->weights],
        .parameter_gradients = gradient_of(chunk, copy),
        .expert_gradients = gradient_of(chunk, chunk->copies ? chunk->copies->sharded_of[slots->microbatch] : 0),
        .x = slots->x,
        .y = slots->y,
        .dx = slots->dx,
        .dy = slots->dy,
        .context = slots->context,
        .stash = slots->stash,
        .gradient = slots->gradient,
        .workspace = rank->workspace,
        .inputs = chunk->inputs ? chunk->inputs + place * chunk->sizes->inputs : NULL,
        .targets = chunk->targets ? chunk->targets + place * chunk->sizes->targets : NULL,
        .outputs = chunk->outputs ? chunk->outputs + place * chunk->sizes->outputs * sizeof(float) : NULL,
        .loss = chunk->losses ? chunk->losses + place : NULL,
        .left_out = slots->only_put_off ? ~slots->put_off : slots->put_off,
    };
}

static Stage *stage_of(const Rank *rank, const PassSlots *slots) { return rank->chunks[slots->chunk].stage; }

static const Passes *passes_of(const Rank *rank) { return rank->session->hooks.passes; }

static Status run_pass(void *host, StagePass pass, const PassSlots *slots, Error *error)
{
    const Rank *rank = host;
    const Passes *passes = passes_of(rank);
    const PassBuffers buffers = buffers_of(rank, slots);
    Stage *stage = stage_of(rank, slots);
    if (pass == STAGE_FORWARD)
        return passes->forward(stage, &buffers, error);
    if (pass != STAGE_BACKWARD_WEIGHT)
        TRY(passes->backward_input(stage, &buffers, error));
    return pass == STAGE_BACKWARD_INPUT ? STATUS_OK : passes->backward_weight(stage, &buffers, error);
}

static StagePair pair_of(const Rank *rank, const PassPair *pair)
{
    return (StagePair){
        .forward = stage_of(rank, &pair->forward),
        .backward = stage_of(rank, &pair->backward),
        .forward_buffers = buffers_of(rank, &pair->forward),
        .backward_buffers = buffers_of(rank, &pair->backward),
        .both_forward = pair->both_forward,
        .weights = pair->weights,
    };
}

static const Recipes *recipes_of(const Rank *rank) { return &rank->session->loaded->program->recipes; }

static const Recipe *recipe_of(const Rank *rank, const PassPair *work)
{
    /* for F&Bs and F&Fs without a recipe: the merged list has the first half and then the second half, and the device
       overlaps what it can */
    static const Recipe unsaid;
    const Recipe *recipe = recipes_of_pair(recipes_of(rank), work->forward.chunk, work->backward.chunk);
    return recipe ? recipe : &unsaid;
}

static Status overlap(void *host, PassPair *work, Error *error)
{
    const Rank *rank = host;
    StagePair pair = pair_of(rank, work);
    if (!rank->device->run->async)
        pair.forward_time = &work->forward_time;
    return passes_of(rank)->overlap(&pair, recipe_of(rank, work), error);
}

/* Whether the halves of F&Bs and F&Fs run together, as their recipes say. A device that overlaps operations by itself
   (DeviceFusion) needs no recipe. */
static bool overlaps(const Rank *rank)
{
    return passes_of(rank)->overlap && !rank->session->options->in_turn &&
           (recipes_any(recipes_of(rank)) || rank->device->run->fusion);
}

/* --- binding to addresses before the first step --- */

/* Binds a pass to its buffers. A B becomes two bound lists, I and W; any other pass one, bound[0]. NULL: not bound. */
static Status bind_pass(const Rank *rank, StagePass pass, const PassPair *work, void *bound[2], Error *error)
{
    const PassSlots *slots = pass == STAGE_FORWARD ? &work->forward : &work->backward;
    const RecipePass first = pass == STAGE_FORWARD ? RECIPE_F : pass == STAGE_BACKWARD_WEIGHT ? RECIPE_W : RECIPE_B;
    const PassBuffers buffers = buffers_of(rank, slots);
    const Stage *stage = stage_of(rank, slots);
    BoundPass *lists[2] = {NULL, NULL};
    if (slots->put_off) /* a bound list runs a whole pass, so this pass is not bound */
        return STATUS_OK;
    TRY(passes_of(rank)->bind(stage, first, &buffers, &lists[0], error));
    if (pass == STAGE_BACKWARD && lists[0])
        TRY(passes_of(rank)->bind(stage, RECIPE_W, &buffers, &lists[1], error));
    const bool whole = pass != STAGE_BACKWARD || lists[1]; /* of a B, either I and W are both bound, or neither is */
    bound[0] = whole ? lists[0] : NULL;
    bound[1] = lists[1];
    return STATUS_OK;
}

static Status bind(void *host, StagePass pass, const PassPair *work, void *bound[2], Error *error)
{
    const Rank *rank = host;
    BoundPass *list = NULL;
    if (pass != STAGE_OVERLAP)
        return bind_pass(rank, pass, work, bound, error);
    if (overlaps(rank)) {
        const StagePair pair = pair_of(rank, work);
        TRY(passes_of(rank)->bind_overlap(&pair, recipe_of(rank, work), &list, error));
    }
    bound[0] = list;
    return STATUS_OK;
}

static Status run_bound(void *host, void *bound, Error *error)
{
    const Rank *rank = host;
    return passes_of(rank)->run(bound, error);
}

static void *weight_gradient(void *host, uint32_t chunk)
{
    const Rank *rank = host;
    return rank->chunks[chunk].weights.gradients;
}

StageTable rank_stages(const Rank *rank)
{
    const bool binds = passes_of(rank)->bind && !rank->session->options->in_turn;
    return (StageTable){
        .pass = run_pass,
        .overlap = overlaps(rank) ? overlap : NULL,
        .bind = binds ? bind : NULL,
        .run_bound = run_bound,
        .weight_gradient = weight_gradient,
        .norm = norm_of_gradients,
        .update = update_weights,
        .update_async = update_weights_async,
    };
}
