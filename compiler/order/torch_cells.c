#include "compiler/order/torch_cells.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

static const char *const names[TORCH_KINDS] = {"WAIT_SEND_F", "WAIT_SEND_B", "UNSHARD",
                                               "RESHARD",     "REDUCE_GRAD", "WAIT_REDUCE_GRAD"};

static uint32_t number(const char *begin)
{
    const unsigned long value = strtoul(begin, NULL, 10);
    return value < UINT32_MAX ? (uint32_t)value : UINT32_MAX;
}

bool torch_cell_read(const char *begin, const char *end, TorchCell *cell)
{
    const char *name = begin, *last = end;
    while (name < last && isdigit((unsigned char)*name))
        name++;
    while (last > name && isdigit((unsigned char)last[-1]))
        last--;
    const size_t length = (size_t)(last - name);
    for (TorchKind kind = 0; kind < TORCH_KINDS && name > begin; kind++)
        if (strlen(names[kind]) == length && !memcmp(name, names[kind], length)) {
            const bool microbatch = last < end;
            *cell = (TorchCell){.kind = kind, .stage = number(begin), .microbatch = microbatch ? number(last) : 0};
            return microbatch == (kind <= TORCH_WAIT_SEND_B);
        }
    return false;
}

/* What a rank has done at a place of its row. */
typedef struct Walk {
    const Schedule *schedule;
    Diagnostics *diagnostics;
    uint32_t rank;
    bool gathers, waits_for_sums; /* this rank has an UNSHARD or RESHARD, a WAIT_REDUCE_GRAD */
    uint32_t *last_backward;      /* [stage]: 1 + the position of the last B, I or W; 0: there is none */
    bool *gathered, *summed;      /* [stage] */
    uint32_t gathered_count, most;
    const TorchCell *pending; /* a REDUCE_GRAD; NULL: none is pending */
    /* [2 * (stage * microbatches + microbatch) + gradient]: 1 + the position of a SEND that is not waited for; 0: none
       is */
    uint32_t *sent;
    SendWaits *waits;       /* NULL: no rank has a WAIT_SEND */
    uint32_t waited, since; /* the SENDs that are waited for so far, and before the last pass */
} Walk;

static bool wrong(const Walk *walk, Span span, const char *text)
{
    diag_error(walk->diagnostics, span, "rank %u: %s", walk->rank, text);
    return false;
}

static uint32_t *sent_at(const Walk *walk, uint32_t stage, uint32_t microbatch, bool gradient)
{
    const PlacedPipe *pipe = &walk->schedule->pipes[0];
    if (!walk->sent || stage >= pipe->stages || microbatch >= pipe->microbatches)
        return NULL;
    return &walk->sent[2 * ((size_t)stage * pipe->microbatches + microbatch) + gradient];
}

/* NULL: the action is no SEND. */
static uint32_t *sent_by(const Walk *walk, const Action *action)
{
    return action_is_message(action) && action_is_send(action)
               ? sent_at(walk, action->stage, action->microbatch, action_is_gradient(action))
               : NULL;
}

static bool take_cell(Walk *walk, const TorchCell *cell)
{
    const uint32_t stage = cell->stage;
    uint32_t *const sent = sent_at(walk, stage, cell->microbatch, cell->kind == TORCH_WAIT_SEND_B);
    if (cell->kind <= TORCH_WAIT_SEND_B) {
        if (!sent || !*sent)
            return wrong(walk, cell->span, "no SEND comes before it that it could wait for");
        walk->waits->sends[walk->waited++] = *sent - 1;
        *sent = 0;
        return true;
    }
    if (stage >= walk->schedule->pipes[0].stages || stage_home(&walk->schedule->pipes[0], stage, 0).rank != walk->rank)
        return wrong(walk, cell->span, "this rank does not have this stage");
    switch (cell->kind) {
    case TORCH_UNSHARD:
        if (walk->gathered[stage])
            return wrong(walk, cell->span, "the stage is unsharded already");
        walk->gathered[stage] = true;
        if (++walk->gathered_count > walk->most)
            walk->most = walk->gathered_count;
        return true;
    case TORCH_RESHARD:
        if (!walk->gathered[stage])
            return wrong(walk, cell->span, "the stage is not unsharded here");
        walk->gathered[stage] = false;
        walk->gathered_count--;
        return true;
    case TORCH_REDUCE_GRAD:
        if (walk->last_backward[stage] > cell->position) {
            wrong(walk, cell->span, "a backward of the stage comes after the sum of its gradients");
            diag_note(walk->diagnostics,
                      walk->schedule->orders[walk->rank].actions[walk->last_backward[stage] - 1].span, "it is here");
            return false;
        }
        if (walk->summed[stage])
            return wrong(walk, cell->span, "the gradients of the stage are summed already");
        walk->summed[stage] = true;
        if (walk->pending) {
            wrong(walk, cell->span, "another sum is pending: PyTorch keeps one at a time");
            diag_note(walk->diagnostics, walk->pending->span, "it begins here, and no WAIT_REDUCE_GRAD ends it before");
            return false;
        }
        walk->pending = walk->waits_for_sums ? cell : NULL;
        return true;
    default:
        if (!walk->pending || walk->pending->stage != stage)
            return wrong(walk, cell->span, "no sum of this stage is pending");
        walk->pending = NULL;
        return true;
    }
}

static bool take_action(Walk *walk, uint32_t position)
{
    const Action *action = &walk->schedule->orders[walk->rank].actions[position];
    if (walk->gathers && action->kind <= ACTION_W && !walk->gathered[action->stage]) {
        wrong(walk, action->span, "the stage is not unsharded here");
        diag_help(walk->diagnostics, "put %uUNSHARD before it, and %uRESHARD after its last pass", action->stage,
                  action->stage);
        return false;
    }
    uint32_t *const sent = sent_by(walk, action);
    if (sent)
        *sent = position + 1;
    if (walk->waits) {
        walk->waits->from[position] = walk->since;
        walk->waits->to[position] = walk->waited;
    }
    if (!action_is_message(action))
        walk->since = walk->waited;
    return true;
}

static bool end_row(const Walk *walk)
{
    const Order *order = &walk->schedule->orders[walk->rank];
    if (walk->pending)
        return wrong(walk, walk->pending->span, "no WAIT_REDUCE_GRAD follows it");
    for (uint32_t i = 0; i < order->count; i++) {
        const Action *action = &order->actions[i];
        const uint32_t *sent = sent_by(walk, action);
        if (!sent || *sent != i + 1)
            continue;
        wrong(walk, action->span, "no WAIT_SEND follows this SEND, but others have one");
        diag_help(walk->diagnostics, "put %uWAIT_%s%u after it: PyTorch keeps what it sent until then", action->stage,
                  action_names[action->kind], action->microbatch);
        return false;
    }
    return true;
}

static bool check_row(Walk *walk, const TorchCells *row)
{
    const Order *order = &walk->schedule->orders[walk->rank];
    for (uint32_t i = 0; i < row->count; i++) {
        walk->gathers = walk->gathers || row->cells[i].kind == TORCH_UNSHARD || row->cells[i].kind == TORCH_RESHARD;
        walk->waits_for_sums = walk->waits_for_sums || row->cells[i].kind == TORCH_WAIT_REDUCE_GRAD;
    }
    for (uint32_t i = 0; i < order->count; i++)
        if (order->actions[i].kind > ACTION_F && order->actions[i].kind <= ACTION_W)
            walk->last_backward[order->actions[i].stage] = i + 1;
    uint32_t next = 0;
    for (uint32_t i = 0; i <= order->count; i++) {
        for (; next < row->count && row->cells[next].position == i; next++)
            if (!take_cell(walk, &row->cells[next]))
                return false;
        if (i < order->count && !take_action(walk, i))
            return false;
    }
    return end_row(walk);
}

bool torch_cells_check(const TorchCells *ranks, Arena *arena, Diagnostics *diagnostics, Schedule *schedule)
{
    const PlacedPipe *pipe = &schedule->pipes[0];
    const TorchCell *first = NULL;
    bool waits = false, good = true;
    for (uint32_t r = 0; r < schedule->ranks; r++)
        for (uint32_t i = 0; i < ranks[r].count; i++) {
            first = first ? first : &ranks[r].cells[i];
            waits = waits || ranks[r].cells[i].kind <= TORCH_WAIT_SEND_B;
        }
    if (!first)
        return true;
    if (schedule->pipe_count > 1 || pipe->replicated) {
        diag_error(diagnostics, first->span, "PyTorch has one copy of each stage, but this order has several");
        return false;
    }
    const size_t count = (size_t)pipe->stages * pipe->microbatches * 2;
    uint32_t *const sent = waits ? arena_array(arena, count, sizeof *sent) : NULL;
    schedule->send_waits = waits ? arena_array(arena, schedule->ranks, sizeof *schedule->send_waits) : NULL;
    for (uint32_t r = 0; r < schedule->ranks && !diag_full(diagnostics); r++) {
        Walk walk = {.schedule = schedule,
                     .diagnostics = diagnostics,
                     .rank = r,
                     .last_backward = arena_array(arena, pipe->stages, sizeof *walk.last_backward),
                     .gathered = arena_array(arena, pipe->stages, sizeof *walk.gathered),
                     .summed = arena_array(arena, pipe->stages, sizeof *walk.summed),
                     .sent = sent,
                     .waits = waits ? &schedule->send_waits[r] : NULL};
        const uint32_t actions = schedule->orders[r].count;
        if (waits)
            *walk.waits = (SendWaits){arena_array(arena, ranks[r].count, sizeof *walk.sent),
                                      arena_array(arena, actions, sizeof *walk.sent),
                                      arena_array(arena, actions, sizeof *walk.sent)};
        good = check_row(&walk, &ranks[r]) && good;
        schedule->resident = walk.most > schedule->resident ? walk.most : schedule->resident;
    }
    return good;
}
