#include "compiler/lower/plan.h"

#include <string.h>

/* What a microbatch of a chunk holds. */
typedef struct Live {
    uint16_t x, y, context, stash, dy, dx, gradient;
} Live;

typedef struct FreeSlots {
    uint16_t *slots; /* a stack: what was freed last is still in the cache */
    uint32_t count;
} FreeSlots;

typedef struct Pending {
    uint16_t slot;
    uint32_t passes; /* that had run when it was sent */
} Pending;

/* The versions of a chunk's weights. Their slots are the chunk's own: the sizes of stages differ. */
typedef struct Versions {
    uint32_t *used;     /* [microbatches]: by which of them */
    uint32_t *uses_end; /* [updates + 1]: the position behind the last backward on it; 0: none */
    uint16_t *slots;    /* [updates + 1] */
    uint32_t newest, updates;
    FreeSlots free;
} Versions;

typedef struct Planner {
    const Schedule *schedule;
    Arena *arena;
    RankPlan *plan;
    uint32_t rank;
    Live **live; /* [chunk][microbatch] */
    FreeSlots free[SLOT_WEIGHTS];
    Versions *versions; /* [chunk]; NULL: one of each */
    Pending *pending;   /* sends that nobody waited for, the oldest first */
    uint32_t first_pending, pending_count;
    bool *receiving; /* [message slot] */
    uint32_t passes, activations;
    const Action *action; /* that it is at */
} Planner;

static Instruction *add_step(Planner *planner, const Action *action)
{
    RankPlan *plan = planner->plan;
    PlannedStep *step = &plan->steps[plan->count++];
    step->action = (uint32_t)(action - planner->schedule->orders[planner->rank].actions);
    step->slots = instruction_blank(OP_END, 0);
    return &step->slots;
}

static void add_wait(Planner *planner, uint16_t slot)
{
    add_step(planner, planner->action)->message = slot;
    planner->plan->steps[planner->plan->count - 1].waits = true;
}

static uint16_t new_slot(Planner *planner, SlotClass class)
{
    const uint32_t slot = planner->plan->slots[class]++;
    planner->plan->slots_at[class] = planner->action;
    return slot < PROGRAM_SLOTS_MAX ? (uint16_t)slot : 0; /* too many: reported at the end */
}

static uint16_t take(Planner *planner, SlotClass class)
{
    FreeSlots *free = &planner->free[class];
    return free->count ? free->slots[--free->count] : new_slot(planner, class);
}

static uint16_t take_message(Planner *planner)
{
    if (planner->free[SLOT_MESSAGE].count || planner->first_pending == planner->pending_count)
        return take(planner, SLOT_MESSAGE);
    const Pending *oldest = &planner->pending[planner->first_pending];
    if (planner->passes - oldest->passes < SEND_SLACK)
        return new_slot(planner, SLOT_MESSAGE);
    planner->first_pending++;
    add_wait(planner, oldest->slot);
    return oldest->slot;
}

static void release(Planner *planner, SlotClass class, uint16_t *slot)
{
    if (*slot != SLOT_NONE)
        planner->free[class].slots[planner->free[class].count++] = *slot;
    *slot = SLOT_NONE;
}

/* The chunk of this rank that holds a neighbouring stage; NULL when it is elsewhere or does not exist. */
static Live *neighbour(Planner *planner, const Action *pass, int direction)
{
    const PlacedPipe *pipe = &planner->schedule->pipes[pass->pipe];
    const uint32_t stage = (uint32_t)(pass->stage + direction);
    if (stage >= pipe->stages)
        return NULL;
    const Home home = stage_home(pipe, stage, pass->microbatch);
    return home.rank == planner->rank ? &planner->live[home.chunk][pass->microbatch] : NULL;
}

static void await_receive(Planner *planner, uint16_t slot)
{
    if (slot == SLOT_NONE || !planner->receiving[slot])
        return;
    planner->receiving[slot] = false;
    add_wait(planner, slot);
}

/* What has to stand before a pass: the waits for what it needs, and room for what it makes. */
static void prepare_pass(Planner *planner, const Action *pass)
{
    Live *live = &planner->live[pass->chunk][pass->microbatch];
    planner->action = pass;
    const PlacedPipe *pipe = &planner->schedule->pipes[pass->pipe];
    if (pass->kind == ACTION_F) {
        await_receive(planner, live->x);
        if (pass->stage + 1u < pipe->stages)
            live->y = take_message(planner);
        live->context = take(planner, SLOT_CONTEXT);
        live->stash = take(planner, SLOT_STASH);
        if (++planner->activations > planner->plan->peak_activations) {
            planner->plan->peak_activations = planner->activations;
            planner->plan->peak_activations_at = pass;
        }
    } else if (pass->kind != ACTION_W) {
        await_receive(planner, live->dy);
        if (pass->stage > 0)
            live->dx = take_message(planner);
        live->gradient = take(planner, SLOT_GRADIENT);
    }
}

static void run_pass(Planner *planner, const Action *pass)
{
    Live *live = &planner->live[pass->chunk][pass->microbatch];
    Instruction *step = add_step(planner, pass);
    planner->passes++;
    if (pass->kind != ACTION_W) {
        const Versions *versions = planner->versions ? &planner->versions[pass->chunk] : NULL;
        step->weights = versions ? versions->slots[versions->used[pass->microbatch]] : pass->chunk;
    }
    step->x = live->x;
    step->stash = live->stash;
    if (pass->kind == ACTION_F) {
        step->y = live->y;
        step->context = live->context;
        Live *next = neighbour(planner, pass, 1);
        if (next) {
            next->x = live->y;
            live->y = SLOT_NONE;
        }
        return;
    }
    step->dy = live->dy;
    step->gradient = live->gradient;
    if (pass->kind != ACTION_W) {
        step->dx = live->dx;
        step->context = live->context;
        Live *previous = neighbour(planner, pass, -1);
        if (previous) {
            previous->dy = live->dx;
            live->dx = SLOT_NONE;
        }
    }
}

/* --- versions of weights --- */

static void open_versions(Planner *planner, uint32_t chunks)
{
    const Order *order = &planner->schedule->orders[planner->rank];
    planner->versions = arena_array(planner->arena, chunks, sizeof *planner->versions);
    for (uint32_t i = 0; i < order->count; i++)
        planner->versions[order->actions[i].chunk].updates += order->actions[i].kind == ACTION_U;
    for (uint32_t c = 0; c < chunks; c++) {
        Versions *versions = &planner->versions[c];
        const PlacedPipe *pipe = &planner->schedule->pipes[planner->schedule->chunks[planner->rank][c].pipe];
        versions->used = arena_array(planner->arena, pipe->microbatches, sizeof *versions->used);
        versions->uses_end = arena_array(planner->arena, versions->updates + 1, sizeof *versions->uses_end);
        versions->slots = arena_array(planner->arena, versions->updates + 1, sizeof *versions->slots);
        versions->free.slots = arena_array(planner->arena, versions->updates + 1, sizeof *versions->free.slots);
        versions->slots[0] = (uint16_t)c;
    }
    for (uint32_t i = 0; i < order->count; i++) {
        const Action *action = &order->actions[i];
        const PlacedPipe *pipe = &planner->schedule->pipes[action->pipe];
        Versions *versions = &planner->versions[action->chunk];
        if (action->kind == ACTION_F)
            versions->used[action->microbatch] = pipe->versions ? pipe->versions[action->microbatch] : versions->newest;
        if (action->kind == ACTION_B || action->kind == ACTION_I)
            versions->uses_end[versions->used[action->microbatch]] = i + 1;
        versions->newest += action->kind == ACTION_U;
    }
    for (uint32_t c = 0; c < chunks; c++)
        planner->versions[c].newest = 0;
}

static void release_version(Planner *planner, const Action *backward)
{
    if (!planner->versions)
        return;
    Versions *versions = &planner->versions[backward->chunk];
    const uint32_t version = versions->used[backward->microbatch];
    const Action *end = planner->schedule->orders[planner->rank].actions + versions->uses_end[version];
    if (backward + 1 == end && version != versions->newest)
        versions->free.slots[versions->free.count++] = versions->slots[version];
}

/* In place where nobody needs the version before any more. The last goes where the step found the first: no microbatch
   is on its way by then, so that slot is free. */
static void plan_update(Planner *planner, const Action *update)
{
    planner->action = update;
    Versions *versions = &planner->versions[update->chunk];
    Instruction *step = add_step(planner, update);
    const uint32_t before = versions->newest++;
    const uint32_t position = planner->plan->steps[planner->plan->count - 1].action;
    uint16_t slot = versions->slots[before];
    if (versions->newest == versions->updates)
        slot = update->chunk;
    else if (versions->uses_end[before] > position)
        slot = versions->free.count ? versions->free.slots[--versions->free.count] : new_slot(planner, SLOT_WEIGHTS);
    versions->slots[versions->newest] = slot;
    step->newest = versions->slots[before];
    step->next = slot;
}

/* Frees what the pass was the last to need. The halves of an F&B run at once: both are freed behind both. */
static void release_after(Planner *planner, const Action *pass)
{
    Live *live = &planner->live[pass->chunk][pass->microbatch];
    if (pass->kind == ACTION_B || pass->kind == ACTION_I) {
        release(planner, SLOT_CONTEXT, &live->context);
        release_version(planner, pass);
    }
    if (pass->kind == ACTION_B || pass->kind == ACTION_W) {
        release(planner, SLOT_MESSAGE, &live->x);
        release(planner, SLOT_MESSAGE, &live->dy);
        release(planner, SLOT_STASH, &live->stash);
        release(planner, SLOT_GRADIENT, &live->gradient);
        planner->activations--;
    }
}

static void plan_message(Planner *planner, const Action *message)
{
    planner->action = message;
    Live *live = &planner->live[message->chunk][message->microbatch];
    uint16_t *slot = message->kind == ACTION_SEND_F   ? &live->y
                     : message->kind == ACTION_SEND_B ? &live->dx
                     : message->kind == ACTION_RECV_F ? &live->x
                                                      : &live->dy;
    if (message->kind == ACTION_RECV_F || message->kind == ACTION_RECV_B) {
        *slot = take_message(planner);
        planner->receiving[*slot] = true;
    }
    add_step(planner, message)->message = *slot;
    if (message->kind == ACTION_SEND_F || message->kind == ACTION_SEND_B) {
        planner->pending[planner->pending_count++] = (Pending){*slot, planner->passes};
        *slot = SLOT_NONE;
    }
}

bool plan_rank(const Schedule *schedule, uint32_t rank, Arena *arena, Diagnostics *diagnostics, RankPlan *plan)
{
    const Order *order = &schedule->orders[rank];
    Planner planner = {.schedule = schedule, .arena = arena, .plan = plan, .rank = rank};
    *plan = (RankPlan){0};
    planner.live = arena_array(arena, schedule->chunk_counts[rank], sizeof *planner.live);
    for (uint32_t c = 0; c < schedule->chunk_counts[rank]; c++) {
        const size_t size = schedule->pipes[schedule->chunks[rank][c].pipe].microbatches * sizeof **planner.live;
        planner.live[c] = arena_allocate(arena, size);
        memset(planner.live[c], 0xff, size); /* SLOT_NONE */
    }
    plan->slots[SLOT_WEIGHTS] = schedule->chunk_counts[rank];
    uint32_t messages = 0;
    for (uint32_t i = 0; i < order->count; i++)
        messages += action_is_message(&order->actions[i]);
    /* each is waited for once */
    plan->steps = arena_array(arena, (size_t)order->count + messages, sizeof *plan->steps);
    planner.pending = arena_array(arena, messages, sizeof *planner.pending);
    planner.receiving = arena_array(arena, order->count, sizeof *planner.receiving);
    if (schedule->asynchronous)
        open_versions(&planner, schedule->chunk_counts[rank]);
    for (int class = 0; class < SLOT_WEIGHTS; class ++)
        /* an action takes one of a class at most */
        planner.free[class].slots = arena_array(arena, order->count, sizeof(uint16_t));

    for (uint32_t i = 0; i < order->count; i++) {
        const Action *action = &order->actions[i];
        if (action_is_message(action)) {
            plan_message(&planner, action);
            continue;
        }
        if (action->kind == ACTION_U) {
            plan_update(&planner, action);
            continue;
        }
        const Action *second = action->overlap ? &order->actions[++i] : NULL;
        prepare_pass(&planner, action);
        if (second)
            prepare_pass(&planner, second);
        run_pass(&planner, action);
        if (second)
            run_pass(&planner, second);
        release_after(&planner, action);
        if (second)
            release_after(&planner, second);
    }
    while (planner.first_pending < planner.pending_count)
        add_wait(&planner, planner.pending[planner.first_pending++].slot);
    const Span end = order->count ? order->actions[order->count - 1].span : (Span){0, 0};
    for (int class = 0; class < SLOT_CLASSES; class ++)
        if (plan->slots[class] > PROGRAM_SLOTS_MAX) {
            diag_error(diagnostics, end, "rank %u holds %u buffers at once; at most %d fit into a program", rank,
                       plan->slots[class], PROGRAM_SLOTS_MAX);
            diag_help(diagnostics, "use fewer microbatches, or an order that runs backwards earlier");
            return false;
        }
    return true;
}
