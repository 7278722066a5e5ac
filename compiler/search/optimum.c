#include "compiler/search/optimum.h"

#include "compiler/search/optimum_model.h"

#include "base/clock.h"

#include <math.h>

enum {
    TICKS_MAX = 4000,
    DIGITS = 6 /* a tick is exact only if no time has more digits than this after the decimal point */,
    CLAUSES_MAX = 30 * 1000000
};

/* --- the tick --- */

typedef struct Common {
    double scale;
    int64_t divisor; /* greatest common divisor of the times so far, in units of 1/scale; 0: all of them are 0 */
    bool whole;      /* all times so far are whole multiples of 1/scale */
} Common;

static int64_t divisor_of(int64_t a, int64_t b) { return b ? divisor_of(b, a % b) : a; }

static void take(Common *common, double time)
{
    const double scaled = time * common->scale, rounded = round(scaled);
    common->whole = common->whole && fabs(scaled - rounded) <= 1e-9 * fmax(1, scaled);
    common->divisor = common->whole ? divisor_of(common->divisor, (int64_t)rounded) : 1;
}

static void take_rank(Common *common, const OptimumTask *task, uint32_t rank)
{
    const Schedule *schedule = task->schedule;
    const uint32_t count = schedule->chunk_counts[rank];
    for (uint32_t i = 0; i < count * count; i++) {
        const Costs *pair = costs_of_pair(task->costs, i / count, i % count);
        const uint32_t forward = schedule->chunks[rank][i / count].stage;
        const uint32_t backward = schedule->chunks[rank][i % count].stage;
        take(common, costs_pass(task->costs, forward, COST_F));
        take(common, costs_pass(task->costs, forward, COST_I));
        take(common, costs_pass(task->costs, forward, COST_W));
        take(common, costs_pass(task->costs, forward, COST_B));
        take(common, costs_pair(pair, forward, backward, COST_B));
        if (task->with_inputs)
            take(common, costs_pair(pair, forward, backward, COST_I));
    }
    for (uint32_t other = 0; other < schedule->ranks; other++)
        take(common, costs_message(task->costs, rank, other));
    take(common, task->starts ? task->starts[rank] : 0);
}

/* The largest tick such that all times of the task are whole multiples of it. 0: a time has more than DIGITS digits
   after the decimal point, or all times are 0. */
static double exact_tick(const OptimumTask *task)
{
    double scale = 1;
    for (int digits = 0; digits <= DIGITS; digits++, scale *= 10) {
        Common common = {.scale = scale, .whole = true};
        for (uint32_t r = 0; r < task->schedule->ranks && common.whole; r++)
            take_rank(&common, task, r);
        if (common.whole && common.divisor)
            return (double)common.divisor / scale;
    }
    return 0;
}

static double tick_of(const OptimumTask *task, double known, bool *is_exact)
{
    const double exact = exact_tick(task);
    *is_exact = exact > 0 && known <= exact * TICKS_MAX;
    return *is_exact ? exact : known / TICKS_MAX;
}

/* --- questions to the solver --- */

typedef struct Asker {
    const OptimumTask *task;
    const OptimumControl *control;
    double tick;
    /* times of the clock: began, deadline: start and end of the search; pause: end of the time for the current
       question */
    int64_t began, deadline, pause;
    int least, most; /* no order takes fewer than `least` ticks; the shortest known order takes `most` */
    OptimumModel *model;
    Solver *solver;
} Asker;

static bool is_over(const Asker *asker)
{
    return clock_nanoseconds() >= asker->deadline || (asker->control->stop && *asker->control->stop);
}

static void tell(const Asker *asker)
{
    if (asker->control->progress)
        asker->control->progress(asker->control->context,
                                 &(OptimumProgress){asker->least * asker->tick, asker->most * asker->tick,
                                                    (double)(clock_nanoseconds() - asker->began) * 1e-9});
}

static bool pauses(void *context)
{
    const Asker *asker = context;
    tell(asker);
    return clock_nanoseconds() >= asker->pause || is_over(asker);
}

/* Estimates the number of clauses: for every two jobs of a rank, one per tick. */
static double size_of(const OptimumTask *task, int most)
{
    double size = 0;
    for (uint32_t r = 0; r < task->schedule->ranks; r++) {
        double jobs = 0;
        for (uint32_t c = 0; c < task->schedule->chunk_counts[r]; c++)
            jobs += 3.0 * task->schedule->pipes[task->schedule->chunks[r][c].pipe].microbatches;
        size += jobs * jobs * most;
    }
    return size;
}

/* Asks the solver whether there are orders of at most some number of ticks, for one number after another. The first
   question is whether any order is shorter than the known one. Each question gets half of the time that is left. If a
   question got no answer, the next one asks for a number half-way between that number and the bound, which is easier to
   exclude. Each answer "no" raises the bound. */
static void ask(Asker *asker, Optimum *optimum, Span span, Arena *arena)
{
    /* the smallest number for which a question got no answer; asker->most if there is none */
    int unknown = asker->most;
    while (asker->least < asker->most && !is_over(asker)) {
        const int ticks = unknown == asker->most ? asker->most - 1 : (asker->least + unknown - 1) / 2;
        const int within = optimum_model_within(asker->model, ticks);
        const int64_t now = clock_nanoseconds();
        asker->pause = now + (asker->deadline - now) / 2;
        const Answer answer = solver_ask(asker->solver, within == ALWAYS ? 0 : within);
        if (answer == ANSWER_YES) {
            asker->most = unknown = ticks;
            optimum_model_orders(asker->model, span, arena, optimum->orders);
            optimum->found = true;
        } else if (answer == ANSWER_NO) {
            asker->least = ticks + 1;
        } else {
            unknown = ticks > asker->least ? ticks : asker->most;
        }
        unknown = unknown > asker->least ? unknown : asker->most;
    }
}

Optimum optimum_find(const OptimumTask *task, double known, double bound, const OptimumControl *control, Span span,
                     Arena *arena)
{
    Arena *const scratch = arena_scratch(arena);
    bool exact;
    Asker asker = {.task = task, .control = control, .tick = tick_of(task, known, &exact)};
    Optimum optimum = {.bound = bound, .orders = arena_array(arena, task->schedule->ranks, sizeof(Order))};
    /* a makespan is a whole number of ticks only if the tick is exact */
    asker.least = (int)(exact ? ceil(bound / asker.tick - 1e-6) : floor(bound / asker.tick));
    asker.most = (int)ceil(known / asker.tick - 1e-6);
    optimum.too_large = size_of(task, asker.most) > CLAUSES_MAX;
    asker.solver = optimum.too_large || asker.least >= asker.most ? NULL : solver_new(pauses, &asker);
    if (asker.solver) {
        asker.began = clock_nanoseconds();
        asker.deadline = asker.began + (int64_t)(control->seconds * 1e9);
        asker.model = optimum_model_new(task, asker.tick, asker.least, asker.most - 1, asker.solver, scratch);
        ask(&asker, &optimum, span, arena);
        solver_free(asker.solver);
    }
    optimum.bound = fmin(known, fmax(bound, asker.least * asker.tick));
    arena_free(scratch);
    return optimum;
}
