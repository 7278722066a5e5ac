#include "compiler/lower/sums.h"

/* To find where each sum of gradients is posted, this file simulates the schedule. A rank waits at a SEND or RECV
   until the other rank has reached the same message. Passes take fixed times (`durations`), not the given costs,
   because the program must not depend on costs. */

enum { POSTED = UINT32_MAX };

static const uint8_t durations[ACTION_KINDS] = {[ACTION_F] = 1, [ACTION_B] = 2, [ACTION_I] = 1, [ACTION_W] = 1};

typedef struct RankRun {
    uint32_t next;       /* position of the next action */
    uint32_t busy_until; /* the time at which the rank's latest pass ends */
    /* [chunks]: the position after the last W or B of the chunk (whichever is later); 0: there is none */
    uint32_t *last;
    uint32_t posted;
} RankRun;

typedef struct Run {
    const Schedule *schedule;
    RankRun *ranks;
    uint32_t time;
    /* [stages]: number of copies that have not begun their last W or B; POSTED: the sum of the stage has been posted */
    uint32_t *missing;
    uint32_t *complete; /* [stages]: the latest end of the copies' last Ws or Bs that have begun */
    SumPost **posts;
} Run;

static void post(Run *run, uint32_t rank, uint32_t position, uint32_t chunk)
{
    RankRun *state = &run->ranks[rank];
    SumPost *posts = run->posts[rank];
    uint32_t i = state->posted++;
    for (; i > 0 && posts[i - 1].position > position; i--)
        posts[i] = posts[i - 1];
    posts[i] = (SumPost){position, (uint8_t)chunk};
}

/* The next action of the rank if the rank is idle; NULL: the rank is in a pass, or its order has ended. */
static const Action *next_action(const Run *run, uint32_t rank)
{
    const RankRun *state = &run->ranks[rank];
    const Order *order = &run->schedule->orders[rank];
    return state->busy_until <= run->time && state->next < order->count ? &order->actions[state->next] : NULL;
}

/* Whether some rank with a copy of the stage waits at a SEND, because the receiver has not reached the message yet.
   */
static bool is_sending(const Run *run, const Copies *copies)
{
    for (uint32_t i = 0; i < copies->count; i++) {
        const Action *action = next_action(run, copies->homes[i].rank);
        if (action && action_is_send(action))
            return true;
    }
    return false;
}

static void post_of_stage(Run *run, uint32_t stage)
{
    const Copies *copies = &run->schedule->copies[stage];
    for (uint32_t i = 0; i < copies->count; i++)
        post(run, copies->homes[i].rank, run->ranks[copies->homes[i].rank].next, copies->homes[i].chunk);
    run->missing[stage] = POSTED;
}

/* Posts the sum of each stage with several copies as soon as the last W or B of every copy has ended and no rank with a
   copy waits at a SEND. */
static void post_complete(Run *run)
{
    for (uint32_t s = 0; s < run->schedule->pipes[0].stages; s++)
        if (!run->missing[s] && run->complete[s] <= run->time && !is_sending(run, &run->schedule->copies[s]))
            post_of_stage(run, s);
}

static bool is_other_end(const Action *action, const Action *other, uint32_t rank)
{
    static const uint8_t ends[ACTION_KINDS] = {[ACTION_SEND_F] = ACTION_RECV_F,
                                               [ACTION_RECV_F] = ACTION_SEND_F,
                                               [ACTION_SEND_B] = ACTION_RECV_B,
                                               [ACTION_RECV_B] = ACTION_SEND_B};
    return other->kind == ends[action->kind] && other->peer == rank;
}

/* If the next action of the rank is a message and the other rank has reached the same message, runs the message.
   False: no message ran. */
static bool exchange(Run *run, uint32_t rank)
{
    const Action *action = next_action(run, rank);
    if (!action || !action_is_message(action))
        return false;
    const Action *other = next_action(run, action->peer);
    if (!other || !is_other_end(action, other, rank))
        return false;
    run->ranks[rank].next++;
    run->ranks[action->peer].next++;
    return true;
}

/* Begins a pass, or both halves of an F&B. */
static void begin_pass(Run *run, uint32_t rank, const Action *pass)
{
    RankRun *state = &run->ranks[rank];
    const Action *last = pass + pass->overlap;
    state->busy_until = run->time;
    for (const Action *half = pass; half <= last; half++)
        state->busy_until += durations[half->kind];
    state->next += 1 + pass->overlap;
    if (state->next != state->last[last->chunk] || run->missing[last->stage] == POSTED)
        return;
    run->missing[last->stage]--;
    if (run->complete[last->stage] < state->busy_until)
        run->complete[last->stage] = state->busy_until;
}

/* Runs all messages that both of their ranks have reached, until there are no more. */
static void exchange_all(Run *run)
{
    for (bool more = true; more;) {
        more = false;
        for (uint32_t r = 0; r < run->schedule->ranks; r++)
            while (exchange(run, r))
                more = true;
    }
}

/* Begins a pass on each idle rank whose next action is a pass. Returns the earliest time at which a running pass
   ends; UINT32_MAX: no pass runs. */
static uint32_t begin_passes(Run *run)
{
    uint32_t next = UINT32_MAX;
    for (uint32_t r = 0; r < run->schedule->ranks; r++) {
        const RankRun *state = &run->ranks[r];
        const Action *action = next_action(run, r);
        if (action && !action_is_message(action))
            begin_pass(run, r, action);
        if (state->busy_until > run->time && state->busy_until < next)
            next = state->busy_until;
    }
    return next;
}

/* Simulates all ranks. The messages of a .csv may deadlock; the proof of the program reports that later. Sums
   that the simulation has not posted are posted at the ends of the orders. */
static void run_schedule(Run *run)
{
    while (run->time < UINT32_MAX) {
        exchange_all(run);
        post_complete(run);
        run->time = begin_passes(run);
    }
    for (uint32_t r = 0; r < run->schedule->ranks; r++)
        run->ranks[r].next = run->schedule->orders[r].count;
    for (uint32_t s = 0; s < run->schedule->pipes[0].stages; s++)
        if (run->missing[s] != POSTED)
            post_of_stage(run, s);
}

static bool is_weight_pass(const Action *action, uint32_t chunk)
{
    return action->chunk == chunk && (action->kind == ACTION_B || action->kind == ACTION_W);
}

/* The position after the last W or B of the chunk (whichever is later) in the order of its rank; 0: there is none. */
static uint32_t find_last(const Order *order, uint32_t chunk)
{
    uint32_t i = order->count;
    while (i > 0 && !is_weight_pass(&order->actions[i - 1], chunk))
        i--;
    return i;
}

/* Posts the sum of a stage with a single copy: after its last W or B and the sends that directly follow. */
static void post_alone(Run *run, uint32_t rank, uint32_t chunk)
{
    const Order *order = &run->schedule->orders[rank];
    uint32_t position = run->ranks[rank].last[chunk];
    while (position < order->count && action_is_send(&order->actions[position]))
        position++;
    post(run, rank, position, chunk);
}

SumPost **sums_place(const Schedule *schedule, Arena *arena)
{
    const uint32_t stages = schedule->pipes[0].stages;
    Run run = {
        .schedule = schedule,
        .ranks = arena_array(arena, schedule->ranks, sizeof *run.ranks),
        .missing = arena_array(arena, stages, sizeof *run.missing),
        .complete = arena_array(arena, stages, sizeof *run.complete),
        .posts = arena_array(arena, schedule->ranks, sizeof *run.posts),
    };
    bool several = false;
    for (uint32_t s = 0; s < stages; s++) {
        const uint32_t copies = schedule->copies[s].count;
        run.missing[s] = copies > 1 ? copies : POSTED;
        several |= copies > 1;
    }
    for (uint32_t r = 0; r < schedule->ranks; r++) {
        const uint32_t chunks = schedule->chunk_counts[r];
        run.posts[r] = arena_array(arena, chunks, sizeof **run.posts);
        run.ranks[r].last = arena_array(arena, chunks, sizeof *run.ranks[r].last);
        for (uint32_t c = 0; c < chunks; c++) {
            run.ranks[r].last[c] = find_last(&schedule->orders[r], c);
            if (run.missing[schedule->chunks[r][c].stage] == POSTED)
                post_alone(&run, r, c);
        }
    }
    if (several)
        run_schedule(&run);
    return run.posts;
}
