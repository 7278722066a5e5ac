#include "compiler/search.h"

#include "compiler/search_list.h"

#include <string.h>

enum {
    RUNS = 8000,                /* a unit of effort: so many orders, */
    RUN_PASSES = 40 * 1000000,  /* but not more than so many passes in them, times the chunks of a rank */
    OPENING = 12,               /* courses that are always tried */
};

static const uint32_t UNLIMITED = UINT32_MAX;
static const int64_t WHATEVER_IT_TAKES = NEVER / 4; /* sums of times stay below it */

/* A schedule is found by list scheduling under some policy. What is searched is the policy: first among a few that suit most
   placements and random ones of their kind, then around the best of them, one change for some ranks and chunks at a time. */
typedef struct Searcher {
    const SearchProblem *problem;
    SearchList *list;
    SearchPolicy current, policy;
    int64_t current_cost, current_idle;
    SearchOrder best, order;
    int64_t *end_path;  /* [pipes]: when the I of a lone microbatch would begin */
    int64_t period;     /* longest of a rank */
    uint32_t chunks;    /* most of a rank */
    uint32_t most_held; /* F that a rank's memory holds */
    bool has_latency;
    uint64_t random;
    uint32_t tried, planned;
    const SearchControl *control;
} Searcher;

/* 0 .. limit-1, the same on every machine */
static uint32_t below(Searcher *s, uint32_t limit)
{
    s->random = s->random * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((s->random >> 33) % limit);
}

static int64_t scaled(int64_t time, int64_t thousandths) { return time / 1000 * thousandths + time % 1000 * thousandths / 1000; }

/* --- policies --- */

static SearchPolicy policy_new(const SearchProblem *problem, Arena *arena)
{
    return (SearchPolicy){.forward = arena_array(arena, problem->node_count, sizeof(int64_t)),
                          .input = arena_array(arena, problem->node_count, sizeof(int64_t)),
                          .held = arena_array(arena, problem->node_count, sizeof(uint32_t)),
                          .allowance = arena_array(arena, problem->rank_count, sizeof(int64_t)),
                          .waiting = arena_array(arena, problem->rank_count, sizeof(uint32_t))};
}

static void policy_copy(const SearchProblem *problem, SearchPolicy *to, const SearchPolicy *from)
{
    memcpy(to->forward, from->forward, problem->node_count * sizeof *to->forward);
    memcpy(to->input, from->input, problem->node_count * sizeof *to->input);
    memcpy(to->held, from->held, problem->node_count * sizeof *to->held);
    memcpy(to->allowance, from->allowance, problem->rank_count * sizeof *to->allowance);
    memcpy(to->waiting, from->waiting, problem->rank_count * sizeof *to->waiting);
    to->patient_for_better = from->patient_for_better;
    to->patient_before_weight = from->patient_before_weight;
    to->sees_latency = from->sees_latency;
}

/* Policies whose priorities follow a microbatch on its way through the stages, as if it went `down` thousandths of the time that the
   passes take, turned `back` thousandths after that, and came up at `up` thousandths of `back`. More than 1000 leaves
   room for others: more microbatches are on their way at once. */
typedef struct Course {
    int64_t down, back, up;
} Course;

static void follow(Searcher *s, const Course *course, bool for_better, bool before_weight)
{
    const SearchProblem *problem = s->problem;
    SearchPolicy *policy = &s->policy;
    for (uint32_t n = 0; n < problem->node_count; n++) {
        const SearchNode *node = &problem->nodes[n];
        const int64_t end = s->end_path[node->pipe];
        policy->forward[n] = scaled(node->forward_path, course->down);
        policy->input[n] = scaled(end, course->back) + scaled(scaled(node->backward_path - end, course->back), course->up);
        policy->held[n] = UNLIMITED;
    }
    for (uint32_t r = 0; r < problem->rank_count; r++) {
        policy->allowance[r] = WHATEVER_IT_TAKES;
        policy->waiting[r] = UNLIMITED;
    }
    policy->patient_for_better = for_better;
    policy->patient_before_weight = before_weight;
    policy->sees_latency = true;
}

/* How long ranks may wait, as a random share of what they are idle in the best order. */
static void allow(Searcher *s, uint32_t first, uint32_t end)
{
    const int64_t share = below(s, 1001);
    for (uint32_t r = first; r < end; r++)
        s->policy.allowance[r] = scaled(scaled(s->best.cost - s->problem->ranks[r].work, share), share);
}

/* Adds to the priorities of a chunk, or with `chunk` at the most of all, on some ranks. */
static void shift(const SearchProblem *problem, int64_t *priorities, uint32_t first, uint32_t end, uint32_t chunk, uint32_t chunks,
                  int64_t by)
{
    for (uint32_t r = first; r < end; r++)
        for (uint32_t c = 0; c < problem->ranks[r].node_count; c++)
            if (chunk == chunks || c == chunk)
                priorities[problem->ranks[r].first_node + c] += by;
}

/* Adds thousandths of the paths down and up to all priorities. */
static void stretch(Searcher *s, int64_t down, int64_t up)
{
    for (uint32_t n = 0; n < s->problem->node_count; n++) {
        const SearchNode *node = &s->problem->nodes[n];
        const int64_t end = s->end_path[node->pipe];
        s->policy.forward[n] += scaled(node->forward_path, down);
        s->policy.input[n] += scaled(end, down) + scaled(node->backward_path - end, up);
    }
}

static void random_policy(Searcher *s)
{
    const SearchProblem *problem = s->problem;
    const Course course = {below(s, 4001), below(s, 4001), below(s, 3) ? 1000 : (int64_t)below(s, 2001) - 1000};
    const uint32_t flags = below(s, 8);
    follow(s, &course, flags & 1, flags & 2);
    s->policy.sees_latency = flags & 4 || !s->has_latency;
    allow(s, 0, problem->rank_count);
    for (uint32_t c = 0; c < s->chunks && s->chunks > 1; c++)
        if (below(s, 2))
            shift(problem, s->policy.forward, 0, problem->rank_count, c, s->chunks,
                  scaled(s->period, (int64_t)below(s, 2001) - 1000));
}

/* One change to some ranks, often to one alone, and to one chunk or all. */
static void change(Searcher *s)
{
    const SearchProblem *problem = s->problem;
    SearchPolicy *policy = &s->policy;
    const bool everywhere = !below(s, 4);
    const uint32_t first = everywhere ? 0 : below(s, problem->rank_count), rest = problem->rank_count - first;
    const uint32_t end = everywhere ? rest : first + 1 + below(s, below(s, 2) ? 1 : rest), chunk = below(s, s->chunks + 1);
    const bool is_free = below(s, 2);
    int64_t by = scaled(s->period, (int64_t)below(s, 2001) - 1000);
    if (below(s, 2))
        by /= 10;
    switch (below(s, s->chunks > 1 ? 7 : 6)) {
    case 0:
        shift(problem, policy->input, first, end, chunk, s->chunks, 4 * by);
        break;
    case 1:
        shift(problem, policy->input, first, end, chunk, s->chunks, by);
        break;
    case 2:
        shift(problem, policy->forward, first, end, chunk, s->chunks, by);
        break;
    case 3:
        allow(s, first, end);
        break;
    case 4: {
        const uint32_t waiting = is_free ? UNLIMITED : below(s, s->most_held);
        for (uint32_t r = first; r < end; r++)
            policy->waiting[r] = waiting;
        break;
    }
    case 5: {
        const uint32_t held = is_free ? UNLIMITED : 1 + below(s, s->most_held);
        for (uint32_t n = problem->ranks[first].first_node; n < problem->ranks[end - 1].first_node + problem->ranks[end - 1].node_count; n++)
            if (chunk == s->chunks || n - problem->ranks[problem->nodes[n].rank].first_node == chunk)
                policy->held[n] = held;
        break;
    }
    default:
        stretch(s, (int64_t)below(s, 401) - 200, (int64_t)below(s, 401) - 200);
        break;
    }
    if (!below(s, 20))
        policy->patient_for_better = !policy->patient_for_better;
    if (!below(s, 20))
        policy->patient_before_weight = !policy->patient_before_weight;
}

/* --- the search --- */

static void report(const Searcher *s, SearchProgress *progress)
{
    *progress = (SearchProgress){s->tried, s->planned, (double)s->best.cost / s->problem->ticks,
                                 (double)s->problem->bound / s->problem->ticks};
}

static bool goes_on(const Searcher *s)
{
    return s->best.cost == NEVER ||
           (s->tried < s->planned && s->best.cost > s->problem->bound && !(s->control->stop && *s->control->stop));
}

/* Runs the policy. It becomes the current one when its order is as good as the current one's: so the search walks on over
   plateaus. */
static void try_policy(Searcher *s)
{
    const int64_t beat = s->current_cost == NEVER ? NEVER : s->current_cost + 1;
    bool good;
    if (s->policy.sees_latency)
        good = search_list_run(s->list, &s->policy, beat, &s->order);
    else
        good = search_list_run(s->list, &s->policy, NEVER, &s->order) && search_list_replay(s->list, beat, &s->order);
    s->tried++;
    if (good && (s->order.cost != s->current_cost || s->order.idle <= s->current_idle)) {
        s->current_cost = s->order.cost;
        s->current_idle = s->order.idle;
        policy_copy(s->problem, &s->current, &s->policy);
        if (s->order.cost < s->best.cost) {
            const SearchOrder better = s->order;
            s->order = s->best;
            s->best = better;
        }
    }
    if (s->control->progress) {
        SearchProgress progress;
        report(s, &progress);
        s->control->progress(s->control->context, &progress);
    }
}

static void find(Searcher *s)
{
    /* one chunk a rank: from I always before F to F always before I; V: where memory is just as much as 1F1B's */
    static const Course courses[OPENING] = {{1000, 0, 1000},    {1000, 500, 1000},  {1000, 750, 1000},  {1000, 1000, 1000},
                                            {1000, 1250, 1000}, {1000, 1500, 1000}, {1000, 2000, 1000}, {1000, 3000, 1000},
                                            {1000, 100000, 1000}, {2300, 2300, 1000}, {3000, 3400, 1000}, {2500, 3700, 1000}};
    for (uint32_t i = 0; i < 4 * OPENING && goes_on(s); i++) {
        follow(s, &courses[i / 4], i & 1, i & 2);
        try_policy(s);
    }
    /* random ones, then around the best of them; and where there is time for it
       again from others, so that one bad start does not decide */
    const uint32_t rounds = s->planned < RUNS ? 1 : 2;
    for (uint32_t i = 0; i < rounds; i++) {
        const uint32_t end = s->planned / rounds * (i + 1), middle = end - s->planned / rounds / 2;
        if (i)
            s->current_cost = s->current_idle = NEVER;
        while (s->tried < middle && goes_on(s)) {
            random_policy(s);
            try_policy(s);
        }
        while (s->tried < end && goes_on(s)) {
            policy_copy(s->problem, &s->policy, &s->current);
            for (uint32_t changes = 1 + below(s, 3); changes; changes--)
                change(s);
            try_policy(s);
        }
    }
}

static void write_orders(const Searcher *s, Schedule *schedule, Span span, Arena *arena)
{
    const SearchProblem *problem = s->problem;
    uint32_t(*next)[ACTION_W + 1] = arena_array(arena, s->chunks, sizeof *next);
    for (uint32_t r = 0; r < problem->rank_count; r++) {
        const SearchRank *rank = &problem->ranks[r];
        Order *order = &schedule->orders[r];
        order->actions = arena_array(arena, rank->passes, sizeof *order->actions);
        order->count = order->capacity = rank->passes;
        memset(next, 0, s->chunks * sizeof *next);
        for (uint32_t i = 0; i < rank->passes; i++) {
            const SearchPass pass = s->best.passes[rank->first + i];
            const PlacedChunk *placed = &schedule->chunks[r][pass.chunk];
            order->actions[i] = (Action){.kind = pass.kind, .chunk = pass.chunk, .pipe = placed->pipe, .stage = placed->stage,
                                         .microbatch = next[pass.chunk][pass.kind]++, .span = span};
        }
    }
}

static void open_searcher(Searcher *s, const SearchProblem *problem, uint32_t effort, Arena *arena)
{
    s->list = search_list_new(problem, arena);
    s->policy = policy_new(problem, arena);
    s->current = policy_new(problem, arena);
    s->current_cost = s->current_idle = NEVER;
    s->best = (SearchOrder){.passes = arena_array(arena, problem->passes, sizeof(SearchPass)), .cost = NEVER, .idle = NEVER};
    s->order = (SearchOrder){.passes = arena_array(arena, problem->passes, sizeof(SearchPass))};
    s->end_path = arena_array(arena, problem->pipe_count, sizeof *s->end_path);
    s->most_held = 1;
    for (uint32_t n = 0; n < problem->node_count; n++) {
        if (problem->nodes[n].after == NO_NODE)
            s->end_path[problem->nodes[n].pipe] = problem->nodes[n].backward_path;
        s->has_latency = s->has_latency || problem->nodes[n].from_before || problem->nodes[n].from_after;
    }
    for (uint32_t r = 0; r < problem->rank_count; r++) {
        const SearchRank *rank = &problem->ranks[r];
        s->chunks = rank->node_count > s->chunks ? rank->node_count : s->chunks;
        s->period = rank->period > s->period ? rank->period : s->period;
        const int64_t room = rank->limit / problem->memory[ACTION_F];
        const uint32_t held = room < rank->passes / 3 ? (uint32_t)room : rank->passes / 3;
        s->most_held = held > s->most_held ? held : s->most_held;
    }
    const uint64_t affordable = 1 + (uint64_t)effort * RUN_PASSES / (problem->passes * s->chunks + 1);
    const uint64_t wanted = (uint64_t)effort * RUNS;
    s->planned = (uint32_t)(wanted < affordable ? wanted : affordable);
}

int64_t search_least_memory(const Schedule *schedule, uint32_t rank, int64_t forward)
{
    uint32_t most = 0;
    for (uint32_t p = 0; p < schedule->pipe_count; p++) {
        uint32_t stages = 0;
        for (uint32_t c = 0; c < schedule->chunk_counts[rank]; c++)
            stages += schedule->chunks[rank][c].pipe == p;
        most = stages > most ? stages : most;
    }
    return forward * most;
}

void search_order(Schedule *schedule, const SearchTask *task, const SearchControl *control, Span span, Arena *arena,
                  SearchProgress *found)
{
    static const SearchControl none = {.stop = NULL};
    Arena scratch = {.exhausted = arena->exhausted};
    SearchProblem problem;
    search_problem_make(schedule, task, &scratch, &problem);
    Searcher searcher = {.problem = &problem, .control = control ? control : &none};
    open_searcher(&searcher, &problem, task->effort, &scratch);
    find(&searcher);
    write_orders(&searcher, schedule, span, arena);
    if (found)
        report(&searcher, found);
    arena_free(&scratch);
}
