#include "compiler/search/optimum_rank.h"

#include <math.h>

typedef struct Rank {
    OptimumModel *model;
    uint32_t first, count; /* index of the first job of the rank, and number of its jobs */
    int *before;           /* model->before of the rank */
} Rank;

/* The literal "a ends before b starts". */
static int *before_of(const Rank *rank, uint32_t a, uint32_t b) { return &rank->before[a * rank->count + b]; }

/* --- order --- */

/* Whether job a can never end before job b starts. */
static bool never_before(const OptimumModel *model, uint32_t a, uint32_t b)
{
    return model->end[a].first > model->start[b].last ||
           job_is_before(&model->jobs, &model->jobs.jobs[b], &model->jobs.jobs[a]);
}

static void order_two(const Rank *rank, uint32_t a, uint32_t b, int pair)
{
    OptimumModel *model = rank->model;
    const uint32_t first = rank->first + a, second = rank->first + b;
    const bool not_a = never_before(model, first, second), not_b = never_before(model, second, first);
    int *const before = before_of(rank, a, b), *const after = before_of(rank, b, a);
    *before = not_a ? NEVER_SO : not_b && pair == NEVER_SO ? ALWAYS : clauses_variables(&model->clauses, 1);
    *after = not_b ? NEVER_SO : pair == NEVER_SO ? -*before : clauses_variables(&model->clauses, 1);
    clause_add(&model->clauses, *before, *after, pair, NEVER_SO);
    if (pair != NEVER_SO) {
        clause_implies(&model->clauses, pair, -*before);
        clause_implies(&model->clauses, pair, -*after);
        clause_implies(&model->clauses, *before, -*after);
    }
    ladder_follows(&model->clauses, &model->end[first], &model->start[second], 0, -*before, NEVER_SO);
    ladder_follows(&model->clauses, &model->end[second], &model->start[first], 0, -*after, NEVER_SO);
}

static void order_all(const Rank *rank, Arena *arena)
{
    const OptimumModel *model = rank->model;
    int *pair = arena_array(arena, (size_t)rank->count * rank->count, sizeof *pair);
    for (size_t i = 0; i < (size_t)rank->count * rank->count; i++)
        pair[i] = NEVER_SO;
    for (uint32_t p = 0; p < model->jobs.pair_count; p++) {
        const JobPair *of = &model->jobs.pairs[p];
        if (model->jobs.jobs[of->forward].rank == model->jobs.jobs[rank->first].rank)
            pair[(of->forward - rank->first) * rank->count + of->backward - rank->first] =
                pair[(of->backward - rank->first) * rank->count + of->forward - rank->first] = model->pair[p];
    }
    for (uint32_t a = 0; a < rank->count; a++)
        for (uint32_t b = a + 1; b < rank->count; b++)
            order_two(rank, a, b, pair[a * rank->count + b]);
}

/* Adds clauses for any two consecutive jobs b - 1 and b of the rank, if b - 1 always comes before b: each job after b
   also comes after b - 1, and each job before b - 1 also comes before b. These clauses follow from the others and only
   spare the solver the deduction. */
static void add_transitivity(const Rank *rank)
{
    const OptimumModel *model = rank->model;
    for (uint32_t b = 1; b < rank->count; b++) {
        if (!job_is_before(&model->jobs, &model->jobs.jobs[rank->first + b - 1], &model->jobs.jobs[rank->first + b]))
            continue;
        for (uint32_t other = 0; other < rank->count; other++)
            if (other != b && other != b - 1) {
                clause_implies(&model->clauses, *before_of(rank, b, other), *before_of(rank, b - 1, other));
                clause_implies(&model->clauses, *before_of(rank, other, b - 1), *before_of(rank, other, b));
            }
    }
}

/* Adds the clauses that the W of a chunk, except those that are part of a B, run the microbatches in ascending
   order. */
static void order_weights(const Rank *rank)
{
    const OptimumModel *model = rank->model;
    const Jobs *jobs = &model->jobs;
    for (uint32_t a = 0; a < rank->count; a++)
        for (uint32_t b = a + 1; b < rank->count; b++) {
            const Job *first = &jobs->jobs[rank->first + a], *second = &jobs->jobs[rank->first + b];
            if (first->kind == JOB_W && second->kind == JOB_W && second->may_be_whole &&
                first->chunk == second->chunk && !jobs->task->schedule->pipes[first->pipe].replicated)
                clause_add(&model->clauses, model->whole[number_of(model, job_other(jobs, second, JOB_I))],
                           *before_of(rank, a, b), NEVER_SO, NEVER_SO);
        }
}

/* Adds the clauses that a backward which is not split has its W directly after its I. */
static void tie_weights(const Rank *rank)
{
    const OptimumModel *model = rank->model;
    for (uint32_t w = 0; w < rank->count; w++) {
        const Job *weight = &model->jobs.jobs[rank->first + w];
        if (weight->kind != JOB_W || !weight->may_be_whole)
            continue;
        const uint32_t backward = number_of(model, job_other(&model->jobs, weight, JOB_I)), b = backward - rank->first;
        const int whole = model->whole[backward];
        for (uint32_t other = 0; other < rank->count; other++)
            if (other != w && other != b) {
                clause_add(&model->clauses, -whole, -*before_of(rank, b, other), *before_of(rank, w, other), NEVER_SO);
                clause_add(&model->clauses, -whole, *before_of(rank, b, other), -*before_of(rank, w, other), NEVER_SO);
            }
    }
}

/* --- memory --- */

/* Counts the other F of the rank that come before this F, plus the jobs of `kind` that do not. If the rank has n F,
   then during this F it holds count + 1 - n microbatches: they have run their F (this one included) and not yet their
   job of `kind`. */
static Count held(const Rank *rank, uint32_t forward, JobKind kind, Arena *arena)
{
    int *literals = arena_array(arena, rank->count, sizeof *literals);
    uint32_t count = 0;
    for (uint32_t i = 0; i < rank->count; i++) {
        const JobKind of = rank->model->jobs.jobs[rank->first + i].kind;
        if (i != forward && (of == JOB_F || of == kind))
            literals[count++] = of == JOB_F ? *before_of(rank, i, forward) : -*before_of(rank, i, forward);
    }
    return count_true(&rank->model->clauses, literals, count, arena);
}

/* The literal "during the F of `count` (see held) the rank holds more than `most` microbatches". */
static int holds_above(const Rank *rank, const Count *count, int64_t most)
{
    return count_above(count, most + rank->count / JOB_KINDS - 1);
}

/* Adds the clauses of one memory limit. If i or more microbatches have run their F and not their I, they hold at least
   i * limits->input. Then at most (most - i * limits->input) / limits->weight microbatches may have run their F and not
   their W. */
static void keep_to(const Rank *rank, const MemoryLimits *limits, double most, const Count *inputs,
                    const Count *weights)
{
    const uint32_t all = rank->count / JOB_KINDS;
    for (uint32_t i = 0; i <= all; i++) {
        const double left = most - limits->input * i;
        const double fit = left < 0 ? -1 : limits->weight > 0 ? floor(left / limits->weight + 1e-9) : all;
        if (fit < all)
            clause_add(&rank->model->clauses, -holds_above(rank, inputs, (int64_t)i - 1),
                       -holds_above(rank, weights, (int64_t)fit), NEVER_SO, NEVER_SO);
    }
}

static void add_memory(const Rank *rank, Arena *arena)
{
    const Jobs *jobs = &rank->model->jobs;
    for (uint32_t f = 0; f < rank->count; f++) {
        if (jobs->jobs[rank->first + f].kind != JOB_F)
            continue;
        Arena *const scratch = arena_scratch(arena);
        const Count inputs = held(rank, f, JOB_I, scratch), weights = held(rank, f, JOB_W, scratch);
        for (uint32_t l = 0; l < jobs->task->limit_count; l++) {
            const MemoryLimits *limits = &jobs->task->limits[l];
            keep_to(rank, limits, limits->most[jobs->jobs[rank->first].rank], &inputs, &weights);
        }
        arena_free(scratch);
    }
}

/* The least ticks of a backward that is in no F&B or F&I: as I and W, or as a B. */
static int least_alone(const Jobs *jobs, const Job *backward)
{
    const int apart = backward->time + job_other(jobs, backward, JOB_W)->time, whole = job_whole_time(jobs, backward);
    return backward->may_be_whole && whole < apart ? whole : apart;
}

/* The most ticks that one F&B of the rank, or one F&I with its W, saves compared with the same passes alone. */
static int most_saved(const Rank *rank)
{
    const Jobs *jobs = &rank->model->jobs;
    int most = 0;
    for (uint32_t p = 0; p < jobs->pair_count; p++) {
        const JobPair *pair = &jobs->pairs[p];
        const Job *forward = &jobs->jobs[pair->forward], *backward = &jobs->jobs[pair->backward];
        if (forward->rank != jobs->jobs[rank->first].rank)
            continue;
        const int apart = forward->time + least_alone(jobs, backward), weight = job_other(jobs, backward, JOB_W)->time;
        most = pair->whole == LEFT_OUT || apart - pair->whole < most ? most : apart - pair->whole;
        most = pair->input == LEFT_OUT || apart - weight - pair->input < most ? most : apart - weight - pair->input;
    }
    return most;
}

/* Adds the clauses that enough F of the rank are in F&Bs or F&Is: with fewer, its work would not fit in the makespan
   that the solver is asked for. The other clauses imply these, but the solver deduces that slowly. */
static void add_work(const Rank *rank, Arena *arena)
{
    OptimumModel *model = rank->model;
    const Jobs *jobs = &model->jobs;
    int *alone = arena_array(arena, rank->count, sizeof *alone);
    int work = 0, earliest = INT32_MAX, latest = 0;
    uint32_t count = 0;
    for (uint32_t i = 0; i < rank->count; i++) {
        const Job *job = &jobs->jobs[rank->first + i];
        work += job->kind == JOB_F ? job->time : job->kind == JOB_I ? least_alone(jobs, job) : 0;
        earliest = job->earliest < earliest ? job->earliest : earliest;
        latest = job->latest > latest ? job->latest : latest;
        if (job->kind == JOB_F)
            alone[count++] = -model->paired[rank->first + i];
    }
    const int saved = most_saved(rank);
    const Count forwards = count_true(&model->clauses, alone, count, arena);
    for (int time = model->time.first; time <= model->time.last; time++) {
        const int missing = work - (latest - (model->time.last - time) - earliest);
        const int pairs = missing <= 0 ? 0 : saved ? (missing + saved - 1) / saved : INT32_MAX;
        if (pairs)
            clause_implies(&model->clauses, ladder_by(&model->time, time),
                           -count_above(&forwards, (int64_t)count - pairs));
    }
}

void optimum_rank_add(OptimumModel *model, uint32_t r, Arena *arena)
{
    Arena *const scratch = arena_scratch(arena);
    Rank rank = {.model = model, .first = model->jobs.first[r]};
    rank.count = model->jobs.first[r + 1] - rank.first;
    rank.before = model->before[r] = arena_array(arena, (size_t)rank.count * rank.count, sizeof *rank.before);
    order_all(&rank, scratch);
    add_transitivity(&rank);
    order_weights(&rank);
    tie_weights(&rank);
    add_memory(&rank, scratch);
    add_work(&rank, scratch);
    arena_free(scratch);
}
