#include "compiler/schedule/bound.h"

#include "program/times/costs_parts.h"

#include <math.h>

/* A chunk of a rank, which holds one stage. least_*: the least time from the start to the end of the pass, alone or as
   half of an F&B, F&I or F&F that the rank can run. */
typedef struct Node {
    uint32_t stage, microbatches;
    /* Times of passes alone. input: the shorter of I and B, after either of which the gradient can be sent; backward:
       the shorter of B and I + W. */
    double forward, input, weight, backward;
    double least_forward, least_input, least_backward;
    /* saved: the most time that an F&B with an F of this chunk saves, or an F&I and the W of that I, compared with
       `forward` + `backward`; saved_input: the most that an F&B or F&I saves, compared with `forward` + `input` */
    double saved, saved_input;
    /* arrives: the earliest time at which the chunk's first F can begin; returns: the earliest time at which its first
       I or B can begin */
    double arrives, returns;
    /* least time from the end of an F until the backwards of the same microbatch, on this stage and on stage 0, have
       ended; in a forward-only schedule, until its F on the last stage has ended */
    double through;
    /* least time from the end of an I or B until the backward of the same microbatch has ended on stage 0; 0 for stage
       0 */
    double rest;
    /* lower bound of (memory that a microbatch takes on this chunk) * (time for which the microbatch takes it) */
    double held;
} Node;

typedef struct Bounder {
    const Schedule *schedule;
    const Costs *costs;
    const MemoryLimits *limits;
    Node **nodes; /* [rank][chunk] */
    /* Of the current rank, [i]: the sum of the i largest values of Node.forward, Node.saved or Node.saved_input over
       its F, for i from 0 to the number of F. */
    double *forward, *saved, *saved_input;
    /* Of the current rank, [i]: the most work that can be left after its last F, if at most i backwards are left. */
    double *after;
} Bounder;

/* --- what passes take --- */

/* Updates the least times and the savings of two chunks for the F&B and the F&I of an F of `forward` and a backward of
   `backward`. put_off: the time, after the F&B, of the weight gradients that its recipe puts off. */
static void add_pair(const Costs *costs, double put_off, Node *forward, Node *backward)
{
    if (forward == backward && forward->microbatches < 2)
        return;
    const double full = costs_pair(costs, forward->stage, backward->stage, COST_B);
    const double input = costs_pair(costs, forward->stage, backward->stage, COST_I);
    const double shorter = fmin(full, input), whole = fmin(full + put_off, input + backward->weight);
    forward->least_forward = fmin(forward->least_forward, shorter);
    backward->least_input = fmin(backward->least_input, shorter);
    backward->least_backward = fmin(backward->least_backward, whole);
    forward->saved = fmax(forward->saved, forward->forward + backward->backward - whole);
    forward->saved_input = fmax(forward->saved_input, forward->forward + backward->input - shorter);
}

static double put_off_time(const Bounder *b, uint32_t rank, uint32_t first, uint32_t second)
{
    return costs_put_off(costs_of_pair(b->costs, first, second), b->schedule->pipes[0].stages,
                         b->nodes[rank][second].stage, recipes_pair_put_off(&b->schedule->recipes, first, second));
}

static void find_times(const Bounder *b, uint32_t rank)
{
    const uint32_t count = b->schedule->chunk_counts[rank];
    for (uint32_t c = 0; c < count; c++) {
        Node *node = &b->nodes[rank][c];
        node->stage = b->schedule->chunks[rank][c].stage;
        node->forward = node->least_forward = costs_pass(b->costs, node->stage, COST_F);
        node->weight = costs_pass(b->costs, node->stage, COST_W);
        const double full = costs_pass(b->costs, node->stage, COST_B);
        const double input = costs_pass(b->costs, node->stage, COST_I);
        node->input = node->least_input = fmin(full, input);
        node->backward = node->least_backward = fmin(full, input + node->weight);
        node->arrives = node->returns = node->through = node->rest = node->held = INFINITY;
    }
    for (uint32_t i = 0; b->schedule->forward_only && i < count * count; i++) {
        Node *node = &b->nodes[rank][i / count];
        const double pair = costs_pair(costs_of_pair(b->costs, i / count, i % count), node->stage,
                                       b->nodes[rank][i % count].stage, COST_F);
        node->least_forward = fmin(node->least_forward, pair);
    }
    for (uint32_t i = 0; !b->schedule->forward_only && i < count * count; i++)
        if (b->nodes[rank][i / count].microbatches && b->nodes[rank][i % count].microbatches)
            add_pair(costs_of_pair(b->costs, i / count, i % count), put_off_time(b, rank, i / count, i % count),
                     &b->nodes[rank][i / count], &b->nodes[rank][i % count]);
}

/* --- the path of a microbatch through the stages --- */

static Node *node_at(const Bounder *b, const PlacedPipe *pipe, uint32_t stage, uint32_t microbatch, uint32_t *rank)
{
    const Home home = stage_home(pipe, stage, microbatch);
    *rank = home.rank;
    return &b->nodes[home.rank][home.chunk];
}

/* Notes the times of one microbatch of a forward-only schedule. arrives[stage]: when the microbatch reaches the stage;
   end: when it leaves the last stage. */
static void note_forward(const Bounder *b, const PlacedPipe *pipe, uint32_t microbatch, const double *arrives,
                         double end)
{
    uint32_t rank;
    for (uint32_t s = 0; s < pipe->stages; s++) {
        Node *node = node_at(b, pipe, s, microbatch, &rank);
        node->arrives = fmin(node->arrives, arrives[s]);
        node->through = fmin(node->through, end - arrives[s] - node->least_forward);
    }
}

/* Follows one microbatch, as if it ran alone, forward to the last stage and, unless the schedule is forward-only,
   backward to stage 0. `arrives` and `returns` are scratch arrays: [stages]. */
static void follow(const Bounder *b, const PlacedPipe *pipe, uint32_t microbatch, double *arrives, double *returns)
{
    const double input = b->limits->input, weight = b->limits->weight;
    double time = 0, rest = 0;
    uint32_t from = 0, rank;
    for (uint32_t s = 0; s < pipe->stages; s++, from = rank) {
        const Node *node = node_at(b, pipe, s, microbatch, &rank);
        arrives[s] = time += s ? costs_message(b->costs, from, rank) : 0;
        time += node->least_forward;
    }
    if (b->schedule->forward_only) {
        note_forward(b, pipe, microbatch, arrives, time);
        return;
    }
    for (uint32_t s = pipe->stages; s-- > 0; from = rank) {
        const Node *node = node_at(b, pipe, s, microbatch, &rank);
        returns[s] = time += s + 1 < pipe->stages ? costs_message(b->costs, from, rank) : 0;
        time += node->least_input;
    }
    /* least time from the start of the backward on the stage of the previous iteration to the end of the backward on
       stage 0 */
    double before = 0;
    for (uint32_t s = 0; s < pipe->stages; s++, from = rank) {
        Node *node = node_at(b, pipe, s, microbatch, &rank);
        const double away = returns[s] - arrives[s] - node->least_forward;
        rest = s ? costs_message(b->costs, rank, from) + before : 0;
        before = s ? node->least_input + rest : node->least_backward;
        node->arrives = fmin(node->arrives, arrives[s]);
        node->returns = fmin(node->returns, returns[s]);
        node->rest = fmin(node->rest, rest);
        node->through = fmin(node->through, away + fmax(node->least_backward, before));
        node->held = fmin(node->held, (input + weight) * (node->least_forward + away) + input * node->least_input +
                                          weight * node->least_backward);
    }
}

static void follow_all(const Bounder *b, Arena *arena)
{
    for (uint32_t p = 0; p < b->schedule->pipe_count; p++) {
        const PlacedPipe *pipe = &b->schedule->pipes[p];
        const uint32_t ways = pipe->replicated || !pipe->microbatches ? pipe->microbatches : 1;
        double *arrives = arena_array(arena, pipe->stages, sizeof *arrives);
        double *returns = arena_array(arena, pipe->stages, sizeof *returns);
        for (uint32_t m = 0; m < ways; m++)
            follow(b, pipe, m, arrives, returns);
    }
}

static void count_microbatches(const Bounder *b)
{
    uint32_t rank;
    for (uint32_t p = 0; p < b->schedule->pipe_count; p++) {
        const PlacedPipe *pipe = &b->schedule->pipes[p];
        for (uint32_t s = 0; s < pipe->stages; s++)
            for (uint32_t m = 0; m < pipe->microbatches; m += pipe->replicated ? 1 : pipe->microbatches)
                node_at(b, pipe, s, m, &rank)->microbatches += pipe->replicated ? 1 : pipe->microbatches;
    }
}

/* --- a rank --- */

/* Sums and extremes over the chunks of a rank. */
typedef struct Rank {
    const Node *nodes;
    uint32_t count; /* nodes */
    /* forwards: the number of F; kept: most microbatches whose activations fit in the memory of the rank */
    uint32_t forwards, kept;
    /* most W that can be deferred at once: as many as fill the memory with their saved activations */
    uint32_t weights;
    /* whole: time of all passes of the rank, none of them in an F&B; input: time of all its passes without the W, none
       of them in an F&B */
    double whole, input;
    double arrives, returns, through, rest; /* the least */
    double backward, weight;                /* the longest */
} Rank;

/* How many items that take `unit` of memory each fit in `memory`, but at most `all`. */
static uint32_t that_fit(double memory, double unit, uint32_t all)
{
    const double fit = unit > 0 ? floor(memory / unit + 1e-9) : INFINITY;
    return fit >= all ? all : fit > 0 ? (uint32_t)fit : 0;
}

static Rank rank_of(const Bounder *b, uint32_t r)
{
    Rank rank = {.nodes = b->nodes[r], .count = b->schedule->chunk_counts[r]};
    rank.arrives = rank.returns = rank.through = rank.rest = INFINITY;
    for (uint32_t c = 0; c < rank.count; c++) {
        const Node *node = &rank.nodes[c];
        if (!node->microbatches)
            continue;
        rank.forwards += node->microbatches;
        rank.whole += node->microbatches * (node->forward + node->backward);
        rank.input += node->microbatches * (node->forward + node->input);
        rank.arrives = fmin(rank.arrives, node->arrives);
        rank.returns = fmin(rank.returns, node->returns);
        rank.through = fmin(rank.through, node->through);
        rank.rest = fmin(rank.rest, node->rest);
        rank.backward = fmax(rank.backward, node->backward);
        rank.weight = fmax(rank.weight, node->weight);
    }
    const double most = b->limits->most[r];
    rank.kept = that_fit(most, b->limits->input + b->limits->weight, rank.forwards);
    rank.kept = rank.kept || !rank.forwards ? rank.kept : 1;
    rank.weights = that_fit(most, b->limits->weight, rank.forwards);
    return rank;
}

static double forward_of(const Node *node) { return node->forward; }
static double saved_of(const Node *node) { return node->saved; }
static double saved_input_of(const Node *node) { return node->saved_input; }

/* Fills in sums[i]: the sum of the i largest values over the F of the rank. The value of an F is that of its node. */
static void sum_largest(const Rank *rank, double (*value)(const Node *), double *sums)
{
    bool taken[UINT8_MAX + 1] = {false};
    uint32_t done = 0;
    sums[0] = 0;
    while (done < rank->forwards) {
        uint32_t most = UINT32_MAX;
        for (uint32_t c = 0; c < rank->count; c++)
            if (!taken[c] && rank->nodes[c].microbatches &&
                (most == UINT32_MAX || value(&rank->nodes[c]) > value(&rank->nodes[most])))
                most = c;
        taken[most] = true;
        for (uint32_t i = 0; i < rank->nodes[most].microbatches; i++, done++)
            sums[done + 1] = sums[done] + value(&rank->nodes[most]);
    }
}

/* after[i]: the most work that can be left after the last F of the rank, if at most i backwards are left. If j <= i
   backwards are left, W of other microbatches may be left too: as many as fit in memory beside the activations of these
   j. */
static void find_after(const Bounder *b, const Rank *rank, double most, double *after)
{
    const double input = b->limits->input, weight = b->limits->weight;
    after[0] = 0;
    for (uint32_t j = 0; j <= rank->forwards; j++) {
        after[j] = j ? after[j - 1] : 0;
        if (j > rank->kept)
            continue;
        const uint32_t alone = that_fit(most - j * (input + weight), weight, rank->forwards - j);
        after[j] = fmax(after[j], j * rank->backward + alone * rank->weight);
    }
}

/* A lower bound of the time that a rank of a forward-only schedule needs for all its F. If F&Fs save time, as many F as
   possible run in F&Fs. */
static double forward_work(const Bounder *b, const Rank *rank)
{
    double work = 0, saved = 0;
    for (uint32_t i = 0; i < rank->count; i++) {
        const Node *one = &rank->nodes[i];
        work += one->microbatches * one->forward;
        for (uint32_t k = 0; k < rank->count; k++) {
            const Node *other = &rank->nodes[k];
            const Costs *pair = costs_of_pair(b->costs, i, k);
            saved = fmax(saved, one->forward + other->forward - costs_pair(pair, one->stage, other->stage, COST_F));
        }
    }
    return work - rank->forwards / 2 * saved;
}

static double rank_bound(const Bounder *b, uint32_t r)
{
    const Rank rank = rank_of(b, r);
    const uint32_t n = rank.forwards;
    if (!n)
        return 0;
    if (b->schedule->forward_only)
        return rank.arrives + forward_work(b, &rank) + rank.through;
    sum_largest(&rank, forward_of, b->forward);
    sum_largest(&rank, saved_of, b->saved);
    sum_largest(&rank, saved_input_of, b->saved_input);
    find_after(b, &rank, b->limits->most[r], b->after);
    const double away = rank.returns - rank.arrives, late = fmax(0, rank.rest - rank.weights * rank.weight);
    double whole = INFINITY, input = INFINITY;
    for (uint32_t u = 1; u <= n; u++) {
        /* if some F comes after the first backward, at most this many F come before it */
        const uint32_t first = u < n - 1 ? u : n - 1;
        const double wait = fmax(0, away - b->forward[first < rank.kept ? first : rank.kept]);
        const double end = fmax(late, rank.through - b->after[u]);
        whole = fmin(whole, rank.whole - b->saved[n - u] + wait + end);
        input = fmin(input, rank.input - b->saved_input[n - u] + wait + rank.rest);
    }
    if (rank.kept == n) { /* memory holds all microbatches, so all F may come before all backwards */
        const double wait = fmax(0, away - b->forward[n]);
        whole = fmin(whole, rank.whole + fmax(wait, fmax(late, rank.through - b->after[n])));
        input = fmin(input, rank.input + wait + rank.rest);
    }
    double held = 0;
    for (uint32_t c = 0; c < rank.count; c++)
        held += rank.nodes[c].microbatches ? rank.nodes[c].microbatches * rank.nodes[c].held : 0;
    return rank.arrives + fmax(fmax(whole, input), b->limits->most[r] > 0 ? held / b->limits->most[r] : 0);
}

MemoryLimits limits_of_orders(const Schedule *schedule, Arena *arena)
{
    double *most = arena_array(arena, schedule->ranks, sizeof *most);
    for (uint32_t r = 0; r < schedule->ranks; r++) {
        uint32_t held = 0, peak = 0;
        for (uint32_t i = 0; i < schedule->orders[r].count; i++) {
            const uint8_t kind = schedule->orders[r].actions[i].kind;
            held += kind == ACTION_F;
            peak = held > peak ? held : peak;
            held -= kind == ACTION_B || kind == ACTION_W;
        }
        most[r] = peak;
    }
    return (MemoryLimits){.input = 0, .weight = 1, .most = most};
}

double makespan_bound(const Schedule *schedule, const Costs *costs, const MemoryLimits *limits, Arena *arena)
{
    Arena *const scratch = arena_scratch(arena);
    Bounder b = {.schedule = schedule, .costs = costs, .limits = limits};
    double bound = 0;
    uint64_t most = 1;
    b.nodes = arena_array(scratch, schedule->ranks, sizeof *b.nodes);
    for (uint32_t r = 0; r < schedule->ranks; r++)
        b.nodes[r] = arena_array(scratch, schedule->chunk_counts[r], sizeof **b.nodes);
    count_microbatches(&b);
    for (uint32_t r = 0; r < schedule->ranks; r++) {
        uint64_t forwards = 1;
        for (uint32_t c = 0; c < schedule->chunk_counts[r]; c++)
            forwards += b.nodes[r][c].microbatches;
        most = forwards > most ? forwards : most;
        find_times(&b, r);
    }
    follow_all(&b, scratch);
    b.forward = arena_array(scratch, most, sizeof *b.forward);
    b.saved = arena_array(scratch, most, sizeof *b.saved);
    b.saved_input = arena_array(scratch, most, sizeof *b.saved_input);
    b.after = arena_array(scratch, most, sizeof *b.after);
    for (uint32_t r = 0; r < schedule->ranks; r++)
        bound = fmax(bound, rank_bound(&b, r));
    arena_free(scratch);
    return bound;
}

Gap gap_to(double makespan, double bound)
{
    const bool optimal = makespan - bound <= 1e-9 * makespan;
    return optimal ? (Gap){makespan, 0} : (Gap){bound, bound > 0 ? makespan / bound - 1 : INFINITY};
}

const char *gap_note(const Gap *gap, Arena *arena)
{
    if (gap->bound <= 0)
        return "";
    return gap->gap > 0 ? arena_format(arena, " (bound %g, gap %.1f %%)", gap->bound, 100 * gap->gap) : " (optimal)";
}
