#include "compiler/search/pair_order.h"

#include "program/times/costs_parts.h"

#include <math.h>
#include <string.h>

PairProblem pair_problem_new(const SearchProblem *base, const Schedule *schedule, const Costs *costs, Arena *arena)
{
    const uint32_t ranks = base->rank_count;
    PairProblem problem = {.base = base};
    problem.pair = arena_array(arena, ranks, sizeof *problem.pair);
    problem.put_off = arena_array(arena, ranks, sizeof *problem.put_off);
    for (uint32_t r = 0; r < ranks; r++) {
        const uint32_t chunks = base->ranks[r].node_count;
        problem.pair[r] = arena_array(arena, chunks * chunks, sizeof **problem.pair);
        problem.put_off[r] = arena_array(arena, chunks * chunks, sizeof **problem.put_off);
        for (uint32_t i = 0; i < chunks * chunks; i++) {
            const uint32_t f = i / chunks, b = i % chunks;
            const PlacedChunk *placed = schedule->chunks[r];
            const Costs *own = costs_of_pair(costs, f, b);
            const uint32_t components = recipes_pair_put_off(&schedule->recipes, f, b);
            const uint32_t stages = schedule->pipes[0].stages;
            problem.pair[r][i] = llround(costs_pair(own, placed[f].stage, placed[b].stage, COST_B) * base->ticks);
            problem.put_off[r][i] = llround(costs_put_off(own, stages, placed[b].stage, components) * base->ticks);
        }
    }
    for (uint32_t n = 0; n < base->node_count; n++)
        problem.has_full |= search_full_is_shorter(&base->nodes[n]);
    problem.done = arena_array(arena, base->node_count, sizeof *problem.done);
    problem.forward_end = arena_array(arena, base->cells, sizeof *problem.forward_end);
    problem.input_end = arena_array(arena, base->cells, sizeof *problem.input_end);
    problem.free_at = arena_array(arena, ranks, sizeof *problem.free_at);
    problem.left = arena_array(arena, ranks, sizeof *problem.left);
    problem.position = arena_array(arena, ranks, sizeof *problem.position);
    problem.ready = arena_array(arena, ranks, sizeof *problem.ready);
    problem.waiter = arena_array(arena, ranks, sizeof *problem.waiter);
    problem.filled = pair_order_new(base, arena);
    problem.unfilled = arena_array(arena, ranks, sizeof *problem.unfilled);
    problem.held = arena_array(arena, ranks, sizeof *problem.held);
    problem.next_waiter = arena_array(arena, ranks, sizeof *problem.next_waiter);
    return problem;
}

PairOrder pair_order_new(const SearchProblem *base, Arena *arena)
{
    PairOrder order = {.lines = arena_array(arena, base->rank_count, sizeof *order.lines), .makespan = NEVER};
    for (uint32_t r = 0; r < base->rank_count; r++)
        order.lines[r].passes = arena_array(arena, base->ranks[r].passes, sizeof *order.lines[r].passes);
    return order;
}

static void copy_line(PairLine *to, const PairLine *from)
{
    memcpy(to->passes, from->passes, from->count * sizeof *from->passes);
    to->count = from->count;
    to->work = from->work;
}

void pair_order_copy(const SearchProblem *base, PairOrder *to, const PairOrder *from)
{
    for (uint32_t r = 0; r < base->rank_count; r++)
        copy_line(&to->lines[r], &from->lines[r]);
    to->makespan = from->makespan;
    to->ends = from->ends;
}

/* Whether the pass is the I of a B outside F&Bs. The W of that B is the next pass of the line, and takes no time of its
   own. */
static inline bool is_full(const PairPass *pass) { return pass->kind == ACTION_I && pass->full; }

static inline int64_t time_of(const PairProblem *problem, uint32_t rank, const PairPass *pass)
{
    const SearchRank *of = &problem->base->ranks[rank];
    if (pass->kind == ACTION_B)
        return problem->pair[rank][pass->chunk * of->node_count + pass->backward];
    return problem->base->nodes[of->first_node + pass->chunk].time[is_full(pass) ? ACTION_B : pass->kind];
}

/* How long, after the end of an F&B, the rank is busy with the weight gradients that its recipe puts off; 0 for other
   passes. */
static int64_t put_off_time(const PairProblem *problem, uint32_t rank, const PairPass *pass)
{
    const uint32_t chunks = problem->base->ranks[rank].node_count;
    return pass->kind == ACTION_B ? problem->put_off[rank][pass->chunk * chunks + pass->backward] : 0;
}

/* --- a rank alone --- */

typedef struct Check {
    const SearchProblem *base;
    /* [chunk]: number of F and of backwards so far, and of I whose W is still to come */
    uint32_t forwards[UINT8_MAX], backwards[UINT8_MAX], weights[UINT8_MAX];
    int64_t held, limit;
} Check;

static bool take_forward(Check *check, uint8_t chunk)
{
    check->forwards[chunk]++;
    check->held += check->base->memory[ACTION_F];
    return check->held <= check->limit;
}

static bool take_backward(Check *check, uint8_t chunk) { return check->backwards[chunk]++ < check->forwards[chunk]; }

static bool take(Check *check, const PairPass *pass)
{
    switch (pass->kind) {
    case ACTION_F: return take_forward(check, pass->chunk);
    case ACTION_I:
        check->held += check->base->memory[ACTION_I];
        check->weights[pass->chunk]++;
        return take_backward(check, pass->chunk);
    case ACTION_W: check->held += check->base->memory[ACTION_W]; return check->weights[pass->chunk]-- > 0;
    default:
        if (!take_backward(check, pass->backward) || !take_forward(check, pass->chunk))
            return false;
        check->held -= check->base->memory[ACTION_F];
        return true;
    }
}

/* Whether the pass after the I at `at` is its W. False also if an earlier microbatch of the chunk still needs its W. */
static bool weight_is_next(const Check *check, const PairLine *line, uint32_t at)
{
    const PairPass *pass = &line->passes[at], *next = pass + 1;
    return at + 1 < line->count && next->kind == ACTION_W && next->chunk == pass->chunk && !check->weights[pass->chunk];
}

bool pair_line_check(const PairProblem *problem, uint32_t rank, PairLine *line)
{
    const SearchRank *of = &problem->base->ranks[rank];
    Check check = {.base = problem->base, .limit = problem->fills ? NEVER : of->limit};
    line->work = 0;
    for (uint32_t i = 0; i < line->count; i++) {
        PairPass *pass = &line->passes[i];
        if (is_full(pass))
            pass->full = weight_is_next(&check, line, i);
        if (!take(&check, pass))
            return false;
        line->work += time_of(problem, rank, pass) + put_off_time(problem, rank, pass);
        if (is_full(pass) && !take(&check, &line->passes[++i]))
            return false;
    }
    for (uint32_t c = 0; c < of->node_count; c++) {
        const uint32_t microbatches = problem->base->nodes[of->first_node + c].microbatches;
        if (check.forwards[c] != microbatches || check.backwards[c] != microbatches || check.weights[c])
            return false;
    }
    return true;
}

/* --- all ranks --- */

/* When the input of the next F or backward of node n arrives. NEVER: not known yet, because rank `*blocker` has not
   computed it. */
static inline int64_t arrival(const PairProblem *problem, uint32_t n, uint8_t kind, uint32_t *blocker)
{
    const SearchProblem *base = problem->base;
    const SearchNode *node = &base->nodes[n];
    const bool forward = kind == ACTION_F;
    const uint32_t other = forward ? node->before : node->after, m = problem->done[n][kind];
    if (other == NO_NODE)
        return 0;
    if (problem->done[other][kind] <= m) {
        *blocker = base->nodes[other].rank;
        return NEVER;
    }
    return forward ? problem->forward_end[base->nodes[other].first + m] + node->from_before
                   : problem->input_end[base->nodes[other].first + m] + node->from_after;
}

static void end_pass(const PairProblem *problem, uint32_t n, uint8_t kind, int64_t end)
{
    const size_t cell = problem->base->nodes[n].first + problem->done[n][kind]++;
    if (kind == ACTION_F)
        problem->forward_end[cell] = end;
    else
        problem->input_end[cell] = end;
}

/* Whether the W of an I before index `end` has not run yet. Moves problem->unfilled[rank] to the first such I. */
static bool waits_for_weight(const PairProblem *problem, const PairLine *line, uint32_t rank, uint32_t end)
{
    uint32_t *at = &problem->unfilled[rank];
    while (*at < end && line->passes[*at].kind != ACTION_I)
        ++*at;
    return *at < end;
}

/* Whether the memory of a further F would exceed the rank's limit. */
static bool lacks_memory(const PairProblem *problem, uint32_t rank)
{
    return problem->held[rank] + problem->base->memory[ACTION_F] > problem->base->ranks[rank].limit;
}

static void add_filled(const PairProblem *problem, uint32_t rank, PairPass pass)
{
    PairLine *line = &problem->filled.lines[rank];
    line->passes[line->count++] = pass;
}

/* Runs deferred W from the time `free_at` on, the oldest first; their I come before index `end` of the line. Runs the W
   that end by `start`. If `forward`, the next pass has an F, and more W run while the rank lacks memory for this F.
   Returns the time at which the rank is free again. */
static int64_t fill_gap(const PairProblem *problem, const PairLine *line, uint32_t rank, uint32_t end, bool forward,
                        int64_t start, int64_t free_at)
{
    const SearchRank *of = &problem->base->ranks[rank];
    const int64_t *memory = problem->base->memory;
    while (waits_for_weight(problem, line, rank, end)) {
        const uint8_t chunk = line->passes[problem->unfilled[rank]].chunk;
        const int64_t time = problem->base->nodes[of->first_node + chunk].time[ACTION_W];
        if (time > start - free_at && !(forward && lacks_memory(problem, rank)))
            break;
        problem->unfilled[rank]++;
        add_filled(problem, rank, (PairPass){ACTION_W, chunk, {0}});
        problem->held[rank] += memory[ACTION_W];
        problem->left[rank] -= time;
        free_at += time;
    }
    return free_at;
}

/* Runs a rank until it has to wait or ends. True: it waits for rank `*blocker`. It waits for itself, and so forever, in
   two cases: its next pass needs a later pass of the same rank; or, with `fills`, its next pass has an F for which the
   memory does not suffice. */
static bool run_rank(const PairProblem *problem, const PairLine *line, uint32_t rank, uint32_t *blocker)
{
    const uint32_t first = problem->base->ranks[rank].first_node;
    const int64_t *memory = problem->base->memory;
    int64_t free_at = problem->free_at[rank];
    uint32_t i = problem->position[rank];
    bool waits = false;
    for (; i < line->count; i++) {
        const PairPass *pass = &line->passes[i];
        const bool pair = pass->kind == ACTION_B, forward = pair || pass->kind == ACTION_F;
        if (problem->fills && pass->kind == ACTION_W)
            continue;
        const uint32_t backward = first + (pair ? pass->backward : pass->chunk);
        const int64_t time = time_of(problem, rank, pass), put_off = put_off_time(problem, rank, pass);
        int64_t start = free_at, at = 0;
        if (forward)
            at = arrival(problem, first + pass->chunk, ACTION_F, blocker);
        start = at > start ? at : start;
        if (start != NEVER && (pass->kind == ACTION_I || pair))
            at = arrival(problem, backward, ACTION_I, blocker);
        start = at > start ? at : start;
        if (start != NEVER && problem->fills) {
            free_at = fill_gap(problem, line, rank, i, forward, start, free_at);
            start = free_at > start ? free_at : start;
            if (forward && lacks_memory(problem, rank)) {
                start = NEVER;
                *blocker = rank;
            }
        }
        waits = start == NEVER;
        if (waits)
            break;
        if (problem->fills) {
            add_filled(problem, rank, *pass);
            problem->held[rank] += pair ? 0 : memory[pass->kind];
        }
        free_at = start + time;
        problem->left[rank] -= time + put_off;
        if (forward)
            end_pass(problem, first + pass->chunk, ACTION_F, free_at);
        if (pass->kind == ACTION_I || pair)
            end_pass(problem, backward, ACTION_I, free_at);
        i += is_full(pass);
        free_at += put_off;
    }
    if (problem->fills && !waits)
        free_at = fill_gap(problem, line, rank, i, false, NEVER, free_at);
    problem->position[rank] = i;
    problem->free_at[rank] = free_at;
    return waits;
}

bool pair_run(const PairProblem *problem, PairOrder *order, int64_t most)
{
    const SearchProblem *base = problem->base;
    uint32_t ready = base->rank_count, waiting = 0;
    memset(problem->done, 0, base->node_count * sizeof *problem->done);
    memset(problem->free_at, 0, base->rank_count * sizeof *problem->free_at);
    memset(problem->position, 0, base->rank_count * sizeof *problem->position);
    memset(problem->waiter, 0, base->rank_count * sizeof *problem->waiter);
    memset(problem->unfilled, 0, base->rank_count * sizeof *problem->unfilled);
    memset(problem->held, 0, base->rank_count * sizeof *problem->held);
    order->makespan = order->ends = 0;
    for (uint32_t r = 0; r < ready; r++) {
        problem->left[r] = order->lines[r].work;
        problem->filled.lines[r].count = 0;
        problem->ready[r] = ready - 1 - r;
    }
    while (ready) {
        const uint32_t rank = problem->ready[--ready], before = problem->position[rank];
        uint32_t blocker = 0;
        if (run_rank(problem, &order->lines[rank], rank, &blocker)) {
            if (blocker == rank)
                return false;
            problem->next_waiter[rank] = problem->waiter[blocker];
            problem->waiter[blocker] = rank + 1;
            waiting++;
        }
        if (problem->free_at[rank] + problem->left[rank] > most)
            return false;
        if (problem->position[rank] == before)
            continue;
        for (uint32_t w = problem->waiter[rank]; w; w = problem->next_waiter[w - 1], waiting--)
            problem->ready[ready++] = w - 1;
        problem->waiter[rank] = 0;
    }
    for (uint32_t r = 0; r < base->rank_count; r++) {
        order->ends += problem->free_at[r];
        order->makespan = problem->free_at[r] > order->makespan ? problem->free_at[r] : order->makespan;
    }
    return !waiting;
}

/* --- from and to other forms --- */

void pair_order_take(const SearchProblem *base, const SearchOrder *from, PairOrder *to)
{
    for (uint32_t r = 0; r < base->rank_count; r++) {
        to->lines[r].count = base->ranks[r].passes;
        for (uint32_t i = 0; i < base->ranks[r].passes; i++) {
            const SearchPass pass = from->passes[base->ranks[r].first + i];
            to->lines[r].passes[i] = (PairPass){pass.kind, pass.chunk, {0}};
        }
    }
}

void pair_order_fill(const SearchProblem *base, bool full, PairOrder *order)
{
    for (uint32_t r = 0; r < base->rank_count; r++)
        for (uint32_t i = 0; i + 1 < order->lines[r].count; i++) {
            PairPass *pass = &order->lines[r].passes[i];
            if (pass->kind == ACTION_I)
                pass->full = full && pass[1].kind == ACTION_W && pass[1].chunk == pass->chunk;
        }
}

void pair_order_read(const Schedule *schedule, PairOrder *to)
{
    for (uint32_t r = 0; r < schedule->ranks; r++) {
        to->lines[r].count = schedule->orders[r].count;
        for (uint32_t i = 0; i < schedule->orders[r].count; i++)
            to->lines[r].passes[i] =
                (PairPass){schedule->orders[r].actions[i].kind, schedule->orders[r].actions[i].chunk, {0}};
    }
}

/* The deferred W of a chunk: microbatches[first] to microbatches[count - 1] have run their I but not their W, the
   oldest first. */
typedef struct Weights {
    uint32_t *microbatches, first, count;
} Weights;

typedef struct Writer {
    const Schedule *schedule;
    Order *order;
    uint32_t rank;
    uint32_t (*done)[2]; /* [chunk]: number of F and of backwards written so far */
    Weights *weights;    /* [chunk] */
    Span span;
} Writer;

static void write_pass(Writer *w, uint8_t kind, uint8_t chunk, bool overlap)
{
    const PlacedChunk *placed = &w->schedule->chunks[w->rank][chunk];
    Weights *weights = &w->weights[chunk];
    const uint32_t microbatch =
        kind == ACTION_W ? weights->microbatches[weights->first++] : w->done[chunk][kind != ACTION_F]++;
    if (kind == ACTION_I)
        weights->microbatches[weights->count++] = microbatch;
    w->order->actions[w->order->count++] = (Action){.kind = kind,
                                                    .chunk = chunk,
                                                    .overlap = overlap,
                                                    .pipe = placed->pipe,
                                                    .stage = placed->stage,
                                                    .microbatch = microbatch,
                                                    .span = w->span};
}

void pair_order_write(const SearchProblem *base, const PairOrder *order, Span span, Arena *arena, Schedule *schedule)
{
    for (uint32_t r = 0; r < base->rank_count; r++) {
        const SearchRank *rank = &base->ranks[r];
        Order *to = &schedule->orders[r];
        Writer w = {.schedule = schedule, .order = to, .rank = r, .span = span};
        *to = (Order){.actions = arena_array(arena, rank->passes, sizeof *to->actions), .capacity = rank->passes};
        w.done = arena_array(arena, rank->node_count, sizeof *w.done);
        w.weights = arena_array(arena, rank->node_count, sizeof *w.weights);
        for (uint32_t c = 0; c < rank->node_count; c++)
            w.weights[c].microbatches =
                arena_array(arena, base->nodes[rank->first_node + c].microbatches, sizeof(uint32_t));
        for (uint32_t i = 0; i < order->lines[r].count; i++) {
            const PairPass *pass = &order->lines[r].passes[i];
            const bool pair = pass->kind == ACTION_B, full = is_full(pass);
            write_pass(&w, pair ? ACTION_F : full ? ACTION_B : pass->kind, pass->chunk, pair);
            if (pair)
                write_pass(&w, ACTION_B, pass->backward, false);
            i += full; /* the W of the B */
        }
    }
}
