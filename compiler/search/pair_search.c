#include "compiler/search/pair_search.h"

#include "compiler/schedule/bound.h"
#include "compiler/search/pair_move.h"
#include "compiler/search/pair_seed.h"
#include "compiler/search/policy_search.h"
#include "compiler/search/search_seed.h"

/* A unit of SearchTask.effort is SMALL_STEPS steps for a schedule of at most SMALL passes, and one step for a larger
   one. One step tries at most ORDERS orders, and simulates or checks at most VISITS passes in all. */
enum {
    VISITS = 30 * 1000000,
    ORDERS = 200 * 1000,
    SMALL = 400,
    /* most passes of a schedule for which anneal_filled_rounds runs; its rounds did not help 4 ranks with 8
       microbatches */
    TINY = 128,
    SMALL_STEPS = 8,
    FILLED_ROUNDS = 32, /* number of rounds of anneal_filled_rounds; each takes half a step */
    REPORT = 1 << 10,   /* orders tried between two progress reports */
};

/* The state of a search: over the orders of the schedule, or of the same schedule with fewer microbatches. */
typedef struct Searcher {
    const SearchProblem *base;
    const SearchControl *control;
    PairProblem problem;
    PairOrder current, best, made;
    PairOrder apart; /* the best order without F&Bs that was tried as a start */
    PairOrder trial; /* room for a change of any line */
    /* small loops: some orders that have nothing of Megatron's order are shorter, so the first half of the short rounds
       does not start from it */
    bool late;
    uint64_t random;
    /* The cost of an order is its makespan * `ends` + PairOrder.ends, because ranks that end earlier leave room for
       changes. */
    int64_t ends;
    int64_t bound;
    uint32_t *tried; /* number of orders that all searchers together have tried */
    uint32_t planned;
    /* the best order for all microbatches, for progress reports; also while this searcher works on fewer
       microbatches */
    const PairOrder *whole;
    double whole_ticks, whole_bound;
} Searcher;

static int64_t cost_of(const Searcher *s, const PairOrder *order) { return order->makespan * s->ends + order->ends; }

static bool is_better(const PairOrder *order, const PairOrder *than)
{
    return order->makespan < than->makespan || (order->makespan == than->makespan && order->ends < than->ends);
}

static bool goes_on(const Searcher *s)
{
    return s->best.makespan > s->bound && !(s->control->stop && *s->control->stop);
}

static void tell(const Searcher *s)
{
    if (s->control->progress && *s->tried % REPORT == 0 && s->whole->makespan != NEVER)
        s->control->progress(s->control->context,
                             &(SearchProgress){*s->tried, s->planned, (double)s->whole->makespan / s->whole_ticks,
                                               s->whole_bound, true});
}

/* Simulates an order. False: it is not legal, it deadlocks, or its makespan exceeds `most`. */
static bool try_order(Searcher *s, PairOrder *order, int64_t most)
{
    ++*s->tried;
    tell(s);
    for (uint32_t r = 0; r < s->base->rank_count; r++)
        if (!pair_line_check(&s->problem, r, &order->lines[r]))
            return false;
    return pair_run(&s->problem, order, most);
}

static void keep_better(const Searcher *s, const PairOrder *order, PairOrder *best)
{
    if (best->makespan == NEVER || is_better(order, best))
        pair_order_copy(s->base, best, order);
}

static void keep_if_better(Searcher *s, const PairOrder *order) { keep_better(s, order, &s->best); }

static void open_searcher(Searcher *s, const SearchProblem *base, const Schedule *schedule, const Costs *costs,
                          Arena *arena)
{
    s->base = base;
    s->problem = pair_problem_new(base, schedule, costs, arena);
    s->current = pair_order_new(base, arena);
    s->best = pair_order_new(base, arena);
    s->made = pair_order_new(base, arena);
    s->apart = pair_order_new(base, arena);
    s->trial = pair_order_new(base, arena);
}

/* --- published orders --- */

/* Tries the order in `made`. If some B takes less time than its I and W, also tries the order without any B outside
   F&Bs, and with as many such B as possible. s->best and `kept` keep the best order. False: the order in `made` is not
   legal, or it deadlocks. */
static bool try_made(Searcher *s, PairOrder *kept)
{
    for (int variant = 0; variant <= 2 * s->problem.has_full; variant++) {
        if (variant)
            pair_order_fill(s->base, variant == 2, &s->made);
        if (!try_order(s, &s->made, NEVER))
            return variant;
        keep_if_better(s, &s->made);
        keep_better(s, &s->made, kept);
    }
    return true;
}

/* Tries the order that search_policies finds, which has no F&Bs. */
static void try_search_without(Searcher *s, const Schedule *schedule, const SearchTask *task, Arena *scratch)
{
    SearchTask without = *task;
    Schedule own = *schedule;
    const SearchControl control = {.stop = s->control->stop};
    own.orders = arena_array(scratch, schedule->ranks, sizeof *own.orders);
    without.overlap = false;
    without.effort = 1;
    search_policies(&own, &without, &control, (Span){0, 0}, scratch, NULL);
    pair_order_read(&own, &s->made);
    try_made(s, &s->apart);
}

/* Tries the published orders with F&Bs. False: none is legal without a deadlock. */
static bool try_pair_seeds(Searcher *s, Arena *arena)
{
    Arena *const scratch = arena_scratch(arena);
    bool paired = false;
    for (uint32_t number = 0; pair_seed(s->base, number, &s->made, scratch); number++)
        paired |= try_made(s, &s->best);
    arena_free(scratch);
    return paired;
}

static void try_seeds(Searcher *s, const Schedule *schedule, const SearchTask *task, Arena *arena)
{
    Arena *const scratch = arena_scratch(arena);
    SeedMaker *seeds = seed_maker_new(s->base, schedule, task, scratch);
    SearchOrder order = {.passes = arena_array(scratch, s->base->passes, sizeof(SearchPass))};
    SeedResult result;
    for (uint32_t number = 0; (result = seed_make(seeds, number, &order)) != SEED_NONE; number++) {
        if (result != SEED_MADE)
            continue;
        pair_order_take(s->base, &order, &s->made);
        try_made(s, &s->apart);
    }
    if (s->late || !try_pair_seeds(s, scratch))
        try_search_without(s, schedule, task, scratch);
    arena_free(scratch);
}

/* --- annealing --- */

/* About -ln of 1/64, 3/64, ..., 63/64 in units of 1/1024. From 33/64 on the numbers are larger, by up to 16; the orders
   that the search finds depend on them. Each step of the annealing draws one of these numbers: the largest increase of
   the cost that the step accepts, in units of the temperature. */
static const uint16_t logarithms[] = {4259, 3134, 2611, 2266, 2009, 1803, 1632, 1486, 1357, 1243, 1141,
                                      1048, 963,  884,  811,  743,  680,  620,  564,  511,  461,  413,
                                      367,  323,  282,  242,  204,  167,  132,  98,   65,   32};

static void swap_lines(PairLine *a, PairLine *b)
{
    const PairLine line = *a;
    *a = *b;
    *b = line;
}

/* If the current order is better than the best one, keeps it as the best, with its W written where they ran in gaps. */
static void keep_filled(Searcher *s)
{
    if (!is_better(&s->current, &s->best))
        return;
    pair_order_copy(s->base, &s->made, &s->problem.filled);
    s->problem.fills = false;
    if (try_order(s, &s->made, NEVER))
        keep_if_better(s, &s->made);
    s->problem.fills = true;
}

/* Tries a random change of one rank. Accepts it if the cost increases by at most a random multiple of the temperature.
   Returns the number of passes visited. */
static uint64_t step(Searcher *s, int64_t temperature)
{
    const uint32_t rank = random_of(&s->random, s->base->rank_count);
    PairLine *line = &s->current.lines[rank], *trial = &s->trial.lines[rank];
    const uint32_t draw = random_of(&s->random, sizeof logarithms / sizeof *logarithms);
    const int64_t worse = temperature / 1024 * logarithms[draw];
    const int64_t makespan = s->current.makespan, ends = s->current.ends, cost = cost_of(s, &s->current) + worse;
    if (!pair_move(line, s->problem.has_full && !s->problem.fills, &s->random, trial))
        return 1;
    if (!pair_line_check(&s->problem, rank, trial))
        return trial->count;
    swap_lines(line, trial);
    ++*s->tried;
    tell(s);
    if (pair_run(&s->problem, &s->current, makespan + worse / s->ends) && cost_of(s, &s->current) <= cost) {
        if (s->problem.fills)
            keep_filled(s);
        else
            keep_if_better(s, &s->current);
    } else {
        swap_lines(line, trial);
        s->current.makespan = makespan;
        s->current.ends = ends;
    }
    return s->base->passes;
}

/* Anneals the current order until the changes that it tries have visited `visits` passes. The temperature falls from
   `hot`, but not below `cold`. */
static void anneal(Searcher *s, int64_t hot, int64_t cold, uint64_t visits)
{
    enum { STAGES = 64 };
    int64_t temperature = hot;
    for (uint32_t i = 0; i < STAGES; i++) {
        for (uint64_t made = 0; made < visits / STAGES && goes_on(s);)
            made += step(s, temperature);
        temperature -= temperature / 12;
        temperature = temperature > cold ? temperature : cold;
    }
}

static void anneal_from(Searcher *s, const PairOrder *start, uint32_t heat, uint64_t visits)
{
    const int64_t unit = s->base->slot * s->ends;
    if (start->makespan == NEVER)
        return;
    if (start != &s->current)
        pair_order_copy(s->base, &s->current, start);
    anneal(s, unit * heat / 64, unit / 256, visits);
}

/* Anneals three times, each time from a lower temperature. Each annealing starts from the best order so far. A round
   with `apart` is different, because a shorter order may have its F&Bs elsewhere: its first annealing starts from the
   best order without F&Bs, and its second and third continue with the current order. The rounds differ so that the
   search can leave a local optimum. */
static void anneal_round(Searcher *s, uint32_t round, uint64_t visits)
{
    static const struct {
        uint32_t heats[3];
        int64_t ends;
        bool apart;
    } rounds[] = {{{5, 3, 1}, 50, false},
                  {{5, 3, 1}, 8, false},
                  {{16, 8, 4}, 50, true},
                  {{32, 16, 4}, 8, false},
                  {{16, 8, 4}, 8, true}};
    const uint32_t which = round % (sizeof rounds / sizeof *rounds);
    s->ends = rounds[which].ends;
    for (uint32_t i = 0; i < 3; i++) {
        const PairOrder *start = !rounds[which].apart ? &s->best : i ? &s->current : &s->apart;
        anneal_from(s, start, rounds[which].heats[i], visits / 3);
    }
}

/* --- repeating the middle --- */

static bool is_kind(const PairPass *pass, uint8_t kind, uint8_t chunk)
{
    if (kind == ACTION_F)
        return (pass->kind == ACTION_F || pass->kind == ACTION_B) && pass->chunk == chunk;
    if (kind == ACTION_I)
        return (pass->kind == ACTION_I && pass->chunk == chunk) || (pass->kind == ACTION_B && pass->backward == chunk);
    return pass->kind == kind && pass->chunk == chunk;
}

static uint32_t count_kind(const PairLine *line, uint32_t from, uint32_t to, uint8_t kind, uint8_t chunk)
{
    uint32_t count = 0;
    for (uint32_t i = from; i < to; i++)
        count += is_kind(&line->passes[i], kind, chunk);
    return count;
}

/* Looks at the passes of a rank from the F of microbatch `first` of chunk 0 up to the pass before the F of microbatch
   first + period. They are a period, which can be repeated, if they have `period` F and `period` backwards of each
   chunk and a W for each I. Sets *from and *to to the indices of the two F. False: they are no period. */
static bool find_period(const PairLine *line, uint32_t chunks, uint32_t first, uint32_t period, uint32_t *from,
                        uint32_t *to)
{
    uint32_t seen = 0;
    *from = *to = UINT32_MAX;
    for (uint32_t i = 0; i < line->count && *to == UINT32_MAX; i++)
        if (is_kind(&line->passes[i], ACTION_F, 0)) {
            if (seen == first)
                *from = i;
            if (seen++ == first + period)
                *to = i;
        }
    if (*to == UINT32_MAX)
        return false;
    for (uint8_t c = 0; c < chunks; c++) {
        uint32_t single = 0;
        for (uint32_t i = *from; i < *to; i++)
            single += line->passes[i].kind == ACTION_I && line->passes[i].chunk == c;
        if (count_kind(line, *from, *to, ACTION_F, c) != period ||
            count_kind(line, *from, *to, ACTION_I, c) != period || count_kind(line, *from, *to, ACTION_W, c) != single)
            return false;
    }
    return true;
}

static bool repeat_line(const PairLine *from, uint32_t chunks, uint32_t first, uint32_t period, uint32_t more,
                        PairLine *to)
{
    uint32_t begin, end;
    if (!find_period(from, chunks, first, period, &begin, &end))
        return false;
    to->count = 0;
    for (uint32_t i = 0; i < from->count; i++) {
        to->passes[to->count++] = from->passes[i];
        for (uint32_t again = 0; i + 1 == end && again < more / period; again++)
            for (uint32_t j = begin; j < end; j++)
                to->passes[to->count++] = from->passes[j];
    }
    return true;
}

/* Makes an order for all microbatches from `few`, the best order for fewer: adds `more` microbatches per pipe in its
   middle. Each rank repeats the first period of its order that begins at one of the `period` microbatches from `first`
   on. False: some rank has no such period. */
static bool repeat(const Searcher *few, uint32_t first, uint32_t period, uint32_t more, PairOrder *order)
{
    for (uint32_t r = 0; r < few->base->rank_count; r++) {
        const SearchRank *rank = &few->base->ranks[r];
        uint32_t at = first;
        while (at < first + period &&
               !repeat_line(&few->best.lines[r], rank->node_count, at, period, more, &order->lines[r]))
            at++;
        if (at == first + period)
            return false;
    }
    return true;
}

/* How many microbatches a rank runs in a row through a chunk. */
static uint32_t round_of(const SearchProblem *base) { return pair_is_loop(base) ? base->rank_count : 1; }

static void repeat_all(Searcher *s, const Searcher *few, uint32_t microbatches, uint32_t more)
{
    const uint32_t round = round_of(s->base);
    for (uint32_t period = round; period <= 4 * round; period += round)
        for (uint32_t first = 0; more % period == 0 && first + period < microbatches; first++)
            if (repeat(few, first, period, more, &s->made) && try_order(s, &s->made, NEVER))
                keep_if_better(s, &s->made);
}

/* --- all of it --- */

static uint32_t least_microbatches(const Schedule *schedule)
{
    uint32_t least = UINT32_MAX;
    for (uint32_t p = 0; p < schedule->pipe_count; p++)
        least = schedule->pipes[p].microbatches < least ? schedule->pipes[p].microbatches : least;
    return least;
}

/* The schedule without the last `fewer` microbatches of each pipe. */
static Schedule shortened(const Schedule *schedule, uint32_t fewer, Arena *arena)
{
    Schedule shorter = *schedule;
    shorter.pipes = arena_array(arena, schedule->pipe_count, sizeof *shorter.pipes);
    for (uint32_t p = 0; p < schedule->pipe_count; p++) {
        shorter.pipes[p] = schedule->pipes[p];
        shorter.pipes[p].microbatches -= fewer;
    }
    return shorter;
}

static int64_t bound_of(const Schedule *schedule, const SearchTask *task, double ticks, Arena *arena)
{
    double *most = arena_array(arena, schedule->ranks, sizeof *most);
    for (uint32_t r = 0; r < schedule->ranks; r++)
        most[r] = (double)task->memory[r];
    const MemoryLimits limits = {-(double)task->input, -(double)task->weight, most};
    return (int64_t)(makespan_bound(schedule, task->costs, &limits, arena) * ticks * (1 + 1e-9));
}

/* The rounds of annealing take 1, 1, 2, 4, ... steps of effort, and end when the rest of the effort is too small for a
   whole round. The first rounds do not depend on the effort, so more effort never finds a longer order. */
typedef struct Round {
    uint32_t number, done;
    uint64_t visits;
} Round;

/* How many passes one step of effort simulates or checks at most. */
static uint64_t visits_of(const SearchProblem *problem)
{
    const uint64_t orders = (uint64_t)ORDERS * problem->passes;
    return orders < VISITS ? orders : VISITS;
}

static uint32_t steps_of(const SearchProblem *problem, uint32_t effort)
{
    return problem->passes <= SMALL ? SMALL_STEPS * effort : effort;
}

static uint32_t orders_planned(const SearchProblem *problem, uint32_t effort)
{
    return (uint32_t)(visits_of(problem) * steps_of(problem, effort) / problem->passes + 1);
}

static bool next_round(Round *round, const SearchProblem *problem, uint32_t effort)
{
    const uint32_t steps = round->done ? round->done : 1;
    if (steps > steps_of(problem, effort) - round->done)
        return false;
    round->number += round->done > 0;
    round->done += steps;
    round->visits = steps * visits_of(problem);
    return true;
}

/* Anneals a small schedule in many short rounds, which take SMALL_STEPS steps in all. They find some orders that the
   long rounds miss. */
static void anneal_short_rounds(Searcher *s, Arena *scratch)
{
    enum { ROUNDS_OF_STEP = 16, ROUNDS = SMALL_STEPS * ROUNDS_OF_STEP };
    for (uint32_t i = 0; i < ROUNDS && goes_on(s); i++) {
        if (s->late && i == ROUNDS / 2)
            try_pair_seeds(s, scratch);
        anneal_round(s, i, visits_of(s->base) / ROUNDS_OF_STEP);
    }
}

/* Anneals a tiny schedule from the best order without F&Bs. The W run in gaps, and the sum of the ends counts more
   than the makespan: so a change of a rank's F, I and F&Bs needs no change of its W, and changes the cost little. These
   rounds find orders whose F&Bs differ from those of the best order on all ranks. */
static void anneal_filled_rounds(Searcher *s)
{
    static const uint32_t heats[] = {200, 120, 40};
    s->ends = 1;
    for (uint32_t i = 0; i < FILLED_ROUNDS && goes_on(s); i++) {
        pair_order_copy(s->base, &s->current, &s->apart);
        pair_order_fill(s->base, false, &s->current);
        s->problem.fills = true;
        if (try_order(s, &s->current, NEVER))
            for (uint32_t j = 0; j < 3; j++)
                anneal_from(s, &s->current, heats[j], visits_of(s->base) / 8);
        s->problem.fills = false;
        anneal_from(s, &s->best, 2, visits_of(s->base) / 8);
    }
}

/* Searches orders without the last `more` microbatches of each pipe. Repeating the middle of these orders gives orders
   for all microbatches. */
static void search_few(Searcher *s, const Schedule *schedule, const SearchTask *task, uint32_t more, Arena *scratch)
{
    const Schedule shorter = shortened(schedule, more, scratch);
    SearchProblem problem;
    search_problem_make(&shorter, task, scratch, &problem);
    s->planned = orders_planned(&problem, task->effort);
    Searcher few = *s;
    open_searcher(&few, &problem, &shorter, task->costs, scratch);
    few.bound = bound_of(&shorter, task, problem.ticks, scratch);
    try_seeds(&few, &shorter, task, scratch);
    for (Round round = {0}; goes_on(s) && next_round(&round, &problem, task->effort);) {
        anneal_round(&few, round.number, round.visits / 4 * 3);
        repeat_all(s, &few, least_microbatches(&shorter), more);
        anneal_from(s, &s->best, 2, round.visits / 4);
    }
}

void search_pairs(Schedule *schedule, const SearchTask *task, const SearchControl *control, Span span, Arena *arena,
                  SearchProgress *found)
{
    Arena *const scratch = arena_scratch(arena);
    SearchProblem problem;
    const uint32_t least = least_microbatches(schedule);
    search_problem_make(schedule, task, scratch, &problem);
    uint32_t tried = 0;
    Searcher s = {.control = control, .random = 1, .ends = 50, .tried = &tried, .whole_ticks = problem.ticks};
    open_searcher(&s, &problem, schedule, task->costs, scratch);
    s.bound = bound_of(schedule, task, problem.ticks, scratch);
    s.whole = &s.best;
    s.whole_bound = (double)s.bound / problem.ticks;
    /* with anneal_short_rounds of small schedules and anneal_filled_rounds of tiny ones */
    s.planned = orders_planned(&problem, task->effort + (problem.passes <= SMALL) + (problem.passes <= TINY ? 2 : 0));
    const uint32_t few_microbatches = problem.stages + 2, rounds = round_of(&problem);
    const bool repeats = least > few_microbatches + (rounds > 2 ? rounds - 1 : 2);
    s.late = !repeats && problem.passes <= SMALL && pair_is_loop(&problem);
    try_seeds(&s, schedule, task, scratch);
    if (goes_on(&s) && repeats)
        search_few(&s, schedule, task, (least - few_microbatches) / rounds * rounds, scratch);
    else
        for (Round round = {0}; next_round(&round, &problem, task->effort);) {
            anneal_round(&s, round.number, round.visits);
            if (problem.passes <= SMALL && round.done == SMALL_STEPS) {
                anneal_short_rounds(&s, scratch);
                if (problem.passes <= TINY)
                    anneal_filled_rounds(&s);
            }
        }
    if (s.late) /* also if the search was stopped */
        try_pair_seeds(&s, scratch);
    pair_order_write(&problem, &s.best, span, arena, schedule);
    if (found)
        *found = (SearchProgress){tried, s.planned, (double)s.best.makespan / problem.ticks, s.whole_bound, true};
    arena_free(scratch);
}
