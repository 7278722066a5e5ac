#include "compiler/search/search.h"

#include "compiler/search/pair_search.h"
#include "compiler/search/search_policy.h"
#include "compiler/search/search_seed.h"

enum {
    RUNS = 16000, /* most orders in a unit of effort */
    /* limits the orders of a unit of effort: passes of all of them * most chunks of a rank is at most this */
    RUN_PASSES = 40 * 1000000,
    FEW_RUNS = 2000, /* with fewer orders in a unit of effort than this, the search starts only once */
};

/* List scheduling under a policy makes an order. The search varies the policy. It first replays the orders of published
   schedules, so its result is never worse than these. Then it tries a few policies that suit most placements and random
   policies of the same kind. From the best of them it walks: each step changes the policy of some ranks and chunks. */
typedef struct Searcher {
    const SearchProblem *problem;
    const SearchControl *control;
    SearchList *list;
    SeedMaker *seeds;
    PolicyMaker maker;
    /* the policy tried now; the policy from which the walk takes its next step; the best policy so far */
    SearchPolicy policy, current, best_policy;
    SearchOrder order, best;
    /* cost and idle time of the order that `current` made; of the order that `best_policy` made */
    int64_t current_cost, current_idle, best_policy_cost, best_policy_idle;
    uint32_t seeded; /* number of published orders tried */
    uint32_t tried, planned;
    uint32_t unit; /* orders in a unit of effort */
} Searcher;

static void report(const Searcher *s, SearchProgress *progress)
{
    *progress = (SearchProgress){s->seeded + s->tried, s->seeded + s->planned, (double)s->best.cost / s->problem->ticks,
                                 (double)s->problem->bound / s->problem->ticks, false};
}

static bool goes_on(const Searcher *s)
{
    return s->best.cost == NEVER ||
           (s->tried < s->planned && s->best.cost > s->problem->bound && !(s->control->stop && *s->control->stop));
}

static void keep_if_better(Searcher *s)
{
    if (s->order.cost < s->best.cost || (s->order.cost == s->best.cost && s->order.idle < s->best.idle)) {
        const SearchOrder better = s->order;
        s->order = s->best;
        s->best = better;
    }
}

static void tell(const Searcher *s)
{
    if (s->control->progress) {
        SearchProgress progress;
        report(s, &progress);
        s->control->progress(s->control->context, &progress);
    }
}

static void try_seeds(Searcher *s)
{
    SeedResult result;
    for (uint32_t number = 0; (result = seed_make(s->seeds, number, &s->order)) != SEED_NONE; number++) {
        if (result == SEED_MADE && search_list_replay(s->list, NEVER, &s->order))
            keep_if_better(s);
        s->seeded++;
        tell(s);
    }
}

/* Runs the policy. It becomes the current one if its order is at least as good as the current one's. Accepting equal
   orders lets the search cross plateaus. */
static void try_policy(Searcher *s)
{
    const int64_t beat = s->current_cost == NEVER ? NEVER : s->current_cost + 1;
    bool good;
    if (s->policy.sight == SIGHT_ALL)
        good = search_list_run(s->list, &s->policy, beat, &s->order);
    else
        good = search_list_run(s->list, &s->policy, NEVER, &s->order) && search_list_replay(s->list, beat, &s->order);
    if (good && (s->order.cost != s->current_cost || s->order.idle <= s->current_idle)) {
        s->current_cost = s->order.cost;
        s->current_idle = s->order.idle;
        policy_copy(s->problem, &s->current, &s->policy);
        if (s->order.cost < s->best_policy_cost) {
            s->best_policy_cost = s->order.cost;
            s->best_policy_idle = s->order.idle;
            policy_copy(s->problem, &s->best_policy, &s->policy);
        }
        keep_if_better(s);
    }
    s->tried++;
    tell(s);
}

/* Changes the current policy step by step and keeps each change that makes the order no worse. */
static void walk(Searcher *s, uint32_t end)
{
    while (s->tried < end && goes_on(s)) {
        policy_copy(s->problem, &s->policy, &s->current);
        policy_change(&s->maker, s->best_policy_cost, &s->policy);
        try_policy(s);
    }
}

/* Tries random policies for the first quarter of the orders up to `end`, then walks from the best of them. */
static void start_anew(Searcher *s, uint32_t end)
{
    const uint32_t middle = s->tried + (end > s->tried ? end - s->tried : 0) / 4;
    s->current_cost = s->current_idle = NEVER;
    while (s->tried < middle && goes_on(s)) {
        policy_random(&s->maker, s->best_policy_cost, &s->policy);
        try_policy(s);
    }
    walk(s, end);
}

static void walk_from_best(Searcher *s, uint32_t end)
{
    policy_copy(s->problem, &s->current, &s->best_policy);
    s->current_cost = s->best_policy_cost;
    s->current_idle = s->best_policy_idle;
    walk(s, end);
}

/* The first unit of effort does not depend on how many units there are, so more effort never finds a worse order. */
static void find(Searcher *s)
{
    try_seeds(s);
    for (uint32_t number = 0;
         goes_on(s) && (!number || number < s->unit / 3) && policy_usual(&s->maker, number, &s->policy); number++)
        try_policy(s);
    const uint32_t starts = s->unit < FEW_RUNS ? 1 : 2; /* a second start makes up for a bad first one */
    for (uint32_t i = 1; i <= starts; i++)
        start_anew(s, s->unit / (starts + 1) * i);
    walk_from_best(s, s->unit);
    for (uint32_t end = 2 * s->unit; end <= s->planned; end += s->unit) {
        start_anew(s, end - s->unit / 2);
        walk_from_best(s, end);
    }
}

static void open_searcher(Searcher *s, const SearchProblem *problem, const Schedule *schedule, const SearchTask *task,
                          Arena *arena)
{
    s->list = search_list_new(problem, arena);
    s->maker = policy_maker_new(problem, arena);
    s->seeds = seed_maker_new(problem, schedule, task, arena);
    s->policy = policy_new(problem, arena);
    s->current = policy_new(problem, arena);
    s->best_policy = policy_new(problem, arena);
    s->order = (SearchOrder){.passes = arena_array(arena, problem->passes, sizeof(SearchPass))};
    s->best =
        (SearchOrder){.passes = arena_array(arena, problem->passes, sizeof(SearchPass)), .cost = NEVER, .idle = NEVER};
    s->current_cost = s->current_idle = s->best_policy_cost = s->best_policy_idle = NEVER;
    const uint64_t affordable = 1 + RUN_PASSES / (problem->passes * s->maker.chunks + 1);
    s->unit = affordable < RUNS ? (uint32_t)affordable : RUNS;
    s->planned = s->unit * task->effort;
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
    if (task->overlap) {
        search_pairs(schedule, task, control ? control : &none, span, arena, found);
        return;
    }
    Arena *const scratch = arena_scratch(arena);
    SearchProblem problem;
    search_problem_make(schedule, task, scratch, &problem);
    Searcher searcher = {.problem = &problem, .control = control ? control : &none};
    open_searcher(&searcher, &problem, schedule, task, scratch);
    find(&searcher);
    search_order_write(&problem, &searcher.best, span, arena, schedule);
    if (found)
        report(&searcher, found);
    arena_free(scratch);
}
