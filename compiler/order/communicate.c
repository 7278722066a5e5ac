#include "compiler/order/communicate.h"

#include <stdlib.h>
#include <string.h>

/* Messages are written in the order in which they run in a simulation. Every pass, every pair (F&B or F&F) and every
   message takes one step, a message on both of its ranks. Each rank follows its order. Before a pass the rank requests
   the messages that the pass still needs. A rank that has computed a requested message sends it before its own next
   pass, if both ranks are free. An update takes one step of all ranks that hold the stage. A rank with several requests
   first serves the one with the longest critical path to the end of the run: list scheduling (Graham 1969; Hu 1961). */

enum { NEEDS_MAX = 2, NOBODY = UINT32_MAX }; /* NEEDS_MAX: most messages that a pass or a pair (F&B, F&F) needs */

/* A message that the next pass or pair (F&B, F&F) of a rank needs. Rank r's first need is needs[NEEDS_MAX * r]; the
   second need of a pair is the entry after that. */
typedef struct Need {
    /* the rank that computes the message, and the index of the computing pass in the order of that rank */
    uint32_t producer, position;
    uint32_t pass; /* index of the pass that needs the message, in the order of the receiving rank */
    /* the next need in the list of the same producer (RankState.asked); NOBODY: this is the last one */
    uint32_t next;
    bool missing;
} Need;

typedef struct RankState {
    Order merged;
    uint32_t done;      /* number of passes of the rank that have run */
    uint32_t missing;   /* number of messages that the rank's next pass or pair (F&B, F&F) still needs */
    uint32_t asked;     /* first need in the list of needs for messages from this rank; NOBODY: the list is empty */
    uint32_t free_from; /* the first step in which the rank is free */
    bool passing;       /* true: the rank runs a pass or a pair until free_from; false: it is in a message or idle */
} RankState;

typedef struct Candidate {
    /* length of the critical path, in steps, from the pass that needs the message to the end of the run */
    uint32_t path;
    uint32_t need;
} Candidate;

typedef struct Communicator {
    const Schedule *schedule;
    const PassTable *table;
    /* [rank][position]: length of the critical path, in steps, from the start of the pass to the end of the run */
    uint32_t **path;
    RankState *ranks;
    Need *needs;
    uint32_t step;
    /* active: the ranks that become free in this step; next_active: in the next step */
    uint32_t *active, *next_active;
    uint32_t active_count, next_count;
    Candidate *candidates;
    uint32_t candidate_count;
} Communicator;

/* Finds the pass that needs the output of `pass`: the F of the next stage, or the B or I of the stage before. False:
   there is none. */
static bool consumer(const Communicator *c, const Action *pass, Dependence *needs_it)
{
    const PlacedPipe *pipe = &c->schedule->pipes[pass->pipe];
    uint32_t stage;
    if (pass->kind == ACTION_F && pass->stage + 1u < pipe->stages)
        stage = pass->stage + 1u;
    else if ((pass->kind == ACTION_B || pass->kind == ACTION_I) && pass->stage > 0)
        stage = pass->stage - 1u;
    else
        return false;
    uint32_t *const *positions = pass->kind == ACTION_F ? c->table->forward : c->table->backward;
    needs_it->rank = stage_home(pipe, stage, pass->microbatch).rank;
    needs_it->position = positions[pass->pipe][pass_index(pipe, stage, pass->microbatch)];
    return true;
}

static uint32_t passes_of(const Action *first) { return first->overlap ? 2 : 1; }

/* --- critical paths --- */

/* Computes `path` of a pass or pair (F&B, F&F): the length of the critical path from its start to the end of the run.
   The paths of rank r's passes from position known[r] on are known. False: the path of a later pass, on rank
   `*blocker`, is needed but not known yet. */
static bool measure(const Communicator *c, const uint32_t *known, uint32_t rank, uint32_t position, uint32_t *blocker)
{
    const Order *order = &c->schedule->orders[rank];
    const uint32_t count = passes_of(&order->actions[position]);
    uint32_t sends = 0, receives = 0, longest = 0;
    Dependence other;
    for (uint32_t i = 0; pass_meets(c->schedule, c->table, &order->actions[position], i, &other); i++) {
        const uint32_t next = other.position + 1;
        if (known[other.rank] > next) {
            *blocker = other.rank;
            return false;
        }
        const uint32_t path = next < c->schedule->orders[other.rank].count ? c->path[other.rank][next] : 0;
        longest = path > longest ? path : longest;
    }
    for (uint32_t i = position; i < position + count; i++) {
        if (pass_dependence(c->schedule, c->table, &order->actions[i], &other))
            receives += other.rank != rank;
        if (!consumer(c, &order->actions[i], &other))
            continue;
        if (other.position < known[other.rank]) {
            *blocker = other.rank;
            return false;
        }
        sends += other.rank != rank;
        const uint32_t path = c->path[other.rank][other.position];
        longest = path > longest ? path : longest;
    }
    const uint32_t own = sends + (position + count < order->count ? c->path[rank][position + count] : 0);
    for (uint32_t i = position; i < position + count; i++)
        c->path[rank][i] = receives + 1 + (own > longest ? own : longest);
    return true;
}

/* Computes the length of the critical path of each pass (`path`), on each rank from the last pass to the first. Works
   like timeline_run, but backwards in time. */
static void measure_paths(Communicator *c, Arena *arena)
{
    const uint32_t ranks = c->schedule->ranks;
    uint32_t *known = arena_array(arena, ranks, sizeof *known);
    uint32_t *ready = arena_array(arena, ranks, sizeof *ready);
    /* [rank]: 1 + the first rank that waits until the path of a pass of this rank is known; 0: no rank waits */
    uint32_t *waiter = arena_array(arena, ranks, sizeof *waiter);
    uint32_t *next_waiter = arena_array(arena, ranks, sizeof *next_waiter);
    uint32_t ready_count = ranks;
    for (uint32_t r = 0; r < ranks; r++) {
        known[r] = c->schedule->orders[r].count;
        c->path[r] = arena_array(arena, known[r], sizeof **c->path);
        ready[r] = r;
    }
    while (ready_count) {
        const uint32_t rank = ready[--ready_count];
        const Order *order = &c->schedule->orders[rank];
        while (known[rank] > 0) {
            uint32_t position = known[rank] - 1, blocker;
            if (position > 0 && order->actions[position - 1].overlap)
                position--;
            if (!measure(c, known, rank, position, &blocker)) {
                next_waiter[rank] = waiter[blocker];
                waiter[blocker] = rank + 1;
                break;
            }
            known[rank] = position;
            for (uint32_t w = waiter[rank]; w; w = next_waiter[w - 1])
                ready[ready_count++] = w - 1;
            waiter[rank] = 0;
        }
    }
}

/* --- the run --- */

static bool can_be_met(const Communicator *c, uint32_t need)
{
    const Need *asked = &c->needs[need];
    const RankState *receiver = &c->ranks[need / NEEDS_MAX], *sender = &c->ranks[asked->producer];
    return asked->missing && receiver->free_from <= c->step && sender->free_from <= c->step &&
           sender->done > asked->position;
}

static void propose(Communicator *c, uint32_t need)
{
    if (can_be_met(c, need))
        c->candidates[c->candidate_count++] = (Candidate){c->path[need / NEEDS_MAX][c->needs[need].pass], need};
}

/* Enters into `needs` the messages from other ranks that the rank's next pass or pair (F&B, F&F) needs. Adds each to
   the list of the rank that sends it (RankState.asked). */
static void ask(Communicator *c, uint32_t rank)
{
    const Order *order = &c->schedule->orders[rank];
    RankState *state = &c->ranks[rank];
    if (state->done == order->count)
        return;
    const uint32_t end = state->done + passes_of(&order->actions[state->done]);
    for (uint32_t i = state->done; i < end; i++) {
        Dependence needed;
        if (!pass_dependence(c->schedule, c->table, &order->actions[i], &needed) || needed.rank == rank)
            continue;
        const uint32_t need = NEEDS_MAX * rank + state->missing++;
        c->needs[need] = (Need){needed.rank, needed.position, i, c->ranks[needed.rank].asked, true};
        c->ranks[needed.rank].asked = need;
    }
}

static void occupy(Communicator *c, uint32_t rank, bool passing)
{
    c->ranks[rank].passing = passing;
    c->ranks[rank].free_from = c->step + 1;
    c->next_active[c->next_count++] = rank;
}

static void append_message(Order *order, const Action *pass, uint8_t kind, uint32_t peer)
{
    Action *message = &order->actions[order->count++];
    *message = *pass;
    message->kind = kind;
    message->overlap = false;
    message->peer = (uint16_t)peer;
}

static void transfer(Communicator *c, uint32_t need)
{
    Need *met = &c->needs[need];
    const uint32_t receiver = need / NEEDS_MAX, sender = met->producer;
    const Action *made = &c->schedule->orders[sender].actions[met->position];
    const Action *needing = &c->schedule->orders[receiver].actions[met->pass];
    append_message(&c->ranks[sender].merged, made, made->kind == ACTION_F ? ACTION_SEND_F : ACTION_SEND_B, receiver);
    append_message(&c->ranks[receiver].merged, needing, needing->kind == ACTION_F ? ACTION_RECV_F : ACTION_RECV_B,
                   sender);
    uint32_t *link = &c->ranks[sender].asked;
    while (*link != need)
        link = &c->needs[*link].next;
    *link = met->next;
    met->missing = false;
    c->ranks[receiver].missing--;
    occupy(c, sender, false);
    occupy(c, receiver, false);
}

static int longest_path_first(const void *left, const void *right)
{
    const Candidate *a = left, *b = right;
    if (a->path != b->path)
        return a->path > b->path ? -1 : 1;
    return (a->need > b->need) - (a->need < b->need);
}

/* Runs the requested messages that can run in this step, the one with the longest path first. Looks only at messages
   from or to ranks that become free in this step: no others can have become possible. */
static void answer(Communicator *c)
{
    c->candidate_count = 0;
    for (uint32_t i = 0; i < c->active_count; i++) {
        const uint32_t rank = c->active[i];
        for (uint32_t need = c->ranks[rank].asked; need != NOBODY; need = c->needs[need].next)
            propose(c, need);
        for (uint32_t need = NEEDS_MAX * rank; c->ranks[rank].missing && need < NEEDS_MAX * (rank + 1); need++)
            propose(c, need);
    }
    if (c->candidate_count > 1)
        qsort(c->candidates, c->candidate_count, sizeof *c->candidates, longest_path_first);
    for (uint32_t i = 0; i < c->candidate_count; i++)
        if (can_be_met(c, c->candidates[i].need))
            transfer(c, c->candidates[i].need);
}

static void begin(Communicator *c, uint32_t rank)
{
    RankState *state = &c->ranks[rank];
    const Action *first = &c->schedule->orders[rank].actions[state->done];
    const uint32_t count = passes_of(first);
    memcpy(&state->merged.actions[state->merged.count], first, count * sizeof *first);
    state->merged.count += count;
    occupy(c, rank, true);
}

static void run_next(Communicator *c, uint32_t rank)
{
    const Order *order = &c->schedule->orders[rank];
    RankState *state = &c->ranks[rank];
    if (state->free_from > c->step || state->missing || state->done == order->count)
        return;
    const Action *first = &order->actions[state->done];
    Dependence there;
    for (uint32_t i = 0; pass_meets(c->schedule, c->table, first, i, &there); i++) {
        const RankState *other = &c->ranks[there.rank];
        if (other->done != there.position || other->free_from > c->step)
            /* some rank with a copy has not reached this update yet; the last one to reach it begins the update on
               all of them */
            return;
    }
    if (first->kind != ACTION_U)
        begin(c, rank);
    for (uint32_t i = 0; pass_meets(c->schedule, c->table, first, i, &there); i++)
        begin(c, there.rank);
}

static void run(Communicator *c)
{
    for (c->step = 0; c->active_count; c->step++) {
        for (uint32_t i = 0; i < c->active_count; i++) {
            const uint32_t rank = c->active[i];
            RankState *state = &c->ranks[rank];
            if (state->passing)
                state->done += passes_of(&c->schedule->orders[rank].actions[state->done]);
            if (state->passing || c->step == 0)
                ask(c, rank);
            state->passing = false;
        }
        answer(c);
        for (uint32_t i = 0; i < c->active_count; i++)
            run_next(c, c->active[i]);
        uint32_t *active = c->active;
        c->active = c->next_active;
        c->active_count = c->next_count;
        c->next_active = active;
        c->next_count = 0;
    }
}

static uint32_t messages_of(const Communicator *c, uint32_t rank)
{
    const Order *order = &c->schedule->orders[rank];
    uint32_t count = 0;
    for (uint32_t i = 0; i < order->count; i++) {
        Dependence other;
        if (pass_dependence(c->schedule, c->table, &order->actions[i], &other))
            count += other.rank != rank;
        if (consumer(c, &order->actions[i], &other))
            count += other.rank != rank;
    }
    return count;
}

void communicate(Schedule *schedule, PassTable *table, Arena *arena)
{
    const uint32_t ranks = schedule->ranks;
    Communicator c = {
        .schedule = schedule,
        .table = table,
        .path = arena_array(arena, ranks, sizeof *c.path),
        .ranks = arena_array(arena, ranks, sizeof *c.ranks),
        .needs = arena_array(arena, (size_t)NEEDS_MAX * ranks, sizeof *c.needs),
        .active = arena_array(arena, ranks, sizeof *c.active),
        .next_active = arena_array(arena, ranks, sizeof *c.next_active),
        .active_count = ranks,
        /* a message can be proposed twice: by its sender and by its receiver */
        .candidates = arena_array(arena, (size_t)2 * NEEDS_MAX * ranks, sizeof *c.candidates),
    };
    measure_paths(&c, arena);
    for (uint32_t r = 0; r < ranks; r++) {
        Order *merged = &c.ranks[r].merged;
        merged->capacity = schedule->orders[r].count + messages_of(&c, r);
        merged->actions = arena_array(arena, merged->capacity, sizeof *merged->actions);
        c.ranks[r].asked = NOBODY;
        c.active[r] = r;
    }
    run(&c);
    Order *merged = arena_array(arena, ranks, sizeof *merged);
    for (uint32_t r = 0; r < ranks; r++)
        merged[r] = c.ranks[r].merged;
    schedule->orders = merged;
    passes_index(schedule, table);
}
