#include "compiler/search/policy_search.h"

#include "compiler/search/search_policy.h"
#include "compiler/search/search_seed.h"

enum {
    RUNS = 16000, /* most orders tried in a unit of effort */
    /* limits the orders tried in a unit of effort: (their number) * (passes of an order) * (most chunks of a rank) is
       about this at most */
    RUN_PASSES = 40 * 1000000,
    /* with fewer orders than this in a unit of effort, the first unit starts from random policies only once, not
       twice */
    FEW_RUNS = 2000,
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
    /* policy: the one tried now; current: the one from which the walk takes its next step; best_policy: the best so
       far */
    SearchPolicy policy, current, best_policy;
    SearchOrder order, best;
    /* cost and idle time of the order that `current` made, and of the order that `best_policy` made */
    int64_t current_cost, current_idle, best_policy_cost, best_policy_idle;
    uint32_t seeded; /* number of published orders tried */
    uint32_t tried, planned;
    uint32_t unit; /* number of orders tried in a unit of effort */
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

/* Makes an order with `policy`. If the order is at least as good as that of `current`, `policy` becomes the current
   one: accepting equal orders lets the search cross plateaus. */
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

/* Changes the current policy again and again, until `end` orders have been tried, and keeps each change that makes the
   order no worse. */
static void walk(Searcher *s, uint32_t end)
{
    while (s->tried < end && goes_on(s)) {
        policy_copy(s->problem, &s->policy, &s->current);
        policy_change(&s->maker, s->best_policy_cost, &s->policy);
        try_policy(s);
    }
}

/* Forgets the current policy. Tries random policies for a quarter of the orders that are left up to `end`, then walks
   from the best of them. */
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
    /* a second start from random policies makes up for a bad first one */
    const uint32_t starts = s->unit < FEW_RUNS ? 1 : 2;
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

void search_policies(Schedule *schedule, const SearchTask *task, const SearchControl *control, Span span, Arena *arena,
                     SearchProgress *found)
{
    Arena *const scratch = arena_scratch(arena);
    SearchProblem problem;
    search_problem_make(schedule, task, scratch, &problem);
    Searcher searcher = {.problem = &problem, .control = control};
    open_searcher(&searcher, &problem, schedule, task, scratch);
    find(&searcher);
    search_order_write(&problem, &searcher.best, span, arena, schedule);
    if (found)
        report(&searcher, found);
    arena_free(scratch);
}
