/* Placement of experts on GPUs. */

#include "library/internal.h"

#include "balance/balance.h"

#include <string.h>

typedef struct Request {
    const dps_experts *experts;
    const dps_placement *placement;
} Request;

static BalanceShape shape_of(const dps_experts *experts, FrontEnd front_end)
{
    return (BalanceShape){.experts = experts->experts,
                          .replicas = experts->replicas,
                          .gpus = experts->gpus,
                          .groups = experts->groups ? experts->groups : 1,
                          .nodes = experts->nodes ? experts->nodes : 1,
                          .front_end = front_end};
}

static Status check_loads(const dps_experts *experts, Error *error)
{
    for (size_t i = 0; i < (size_t)experts->layers * experts->experts; i++)
        if (!(experts->loads[i] >= 0 && experts->loads[i] <= BALANCE_LOAD_MAX))
            return error_set(error, STATUS_BAD_INPUT,
                             "layer %zu: the load of expert %zu is %g; it must be from 0 to %g", i / experts->experts,
                             i % experts->experts, experts->loads[i], BALANCE_LOAD_MAX);
    return STATUS_OK;
}

static Status check_current(const dps_experts *experts, const BalanceShape *shape, Arena *arena, Error *error)
{
    uint32_t slot;
    for (uint32_t l = 0; experts->current && l < experts->layers; l++)
        if (balance_check_placement(shape, experts->current + (size_t)l * shape->replicas, &slot, arena, error)) {
            error_prefix(error, "layer %u of `current`: ", l);
            return STATUS_BAD_INPUT;
        }
    return STATUS_OK;
}

/* Places the experts of one layer. */
static Status place(const BalanceShape *given, const dps_experts *experts, const dps_placement *placed, uint32_t layer,
                    Arena *arena, Error *error)
{
    const BalanceShape shape = *given;
    const double *loads = experts->loads + (size_t)layer * shape.experts;
    const size_t first = (size_t)layer * shape.replicas;
    const BalanceRequest request = {.distinct = experts->distinct,
                                    .from = experts->current ? experts->current + first : NULL,
                                    .moves = experts->limit_moves ? experts->most_moves : UINT32_MAX,
                                    .threshold = experts->threshold};
    uint32_t *const before = arena_array(arena, shape.replicas, sizeof *before);
    uint32_t *const after = arena_array(arena, shape.replicas, sizeof *after);
    LayerBalance found;
    TRY(balance_layer(&shape, &request, experts->eplb, loads, before, after, &found, arena, error));
    if (placed->placement)
        memcpy(placed->placement + first, after, shape.replicas * sizeof *after);
    if (placed->before)
        placed->before[layer] = found.before;
    if (placed->after)
        placed->after[layer] = found.after;
    if (placed->bound)
        placed->bound[layer] = found.bound;
    if (placed->moves)
        placed->moves[layer] = found.moves;
    return STATUS_OK;
}

static Status balance_body(dps *d, void *arguments)
{
    const Request *request = arguments;
    dps_experts experts = {0};
    dps_placement placed = {0};
    if (!STRUCT_IN(&experts, request->experts))
        return error_set(&d->error, STATUS_BAD_USAGE, STRUCT_REFUSED, "dps_experts");
    if (!STRUCT_IN(&placed, request->placement))
        return error_set(&d->error, STATUS_BAD_USAGE, STRUCT_REFUSED, "dps_placement");
    const BalanceShape shape = shape_of(&experts, d->front_end);
    if (!experts.loads)
        return error_set(&d->error, STATUS_BAD_USAGE, "dps_experts.loads is NULL");
    if (experts.eplb && (experts.current || experts.distinct))
        return error_set(&d->error, STATUS_BAD_USAGE,
                         "dps_experts: `eplb` cannot be combined with `current` or `distinct`");
    if (!(experts.threshold >= 0 && experts.threshold <= 1))
        return error_set(&d->error, STATUS_BAD_USAGE, "dps_experts.threshold is %g; it must be from 0 to 1",
                         experts.threshold);
    TRY(balance_check(&shape, experts.eplb, &d->error));
    TRY(check_loads(&experts, &d->error));
    TRY(check_current(&experts, &shape, &d->working, &d->error));
    for (uint32_t l = 0; l < experts.layers; l++) {
        Arena *const scratch = arena_scratch(&d->working);
        const Status status = place(&shape, &experts, &placed, l, scratch, &d->error);
        if (status == STATUS_BAD_INPUT)
            error_prefix(&d->error, "layer %u: ", l);
        TRY(status);
        arena_free(scratch);
    }
    return STATUS_OK;
}

dps_status dps_balance(dps *d, const dps_experts *experts, const dps_placement *placement)
{
    Request request = {experts, placement};
    return CALL(d, balance_body, &request, NEEDED(experts), NEEDED(placement));
}
