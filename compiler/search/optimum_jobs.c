#include "compiler/search/optimum_jobs.h"

#include <math.h>

static int smaller(int a, int b) { return a < b ? a : b; }
static int larger(int a, int b) { return a > b ? a : b; }

/* A time in whole ticks, rounded down; a time that misses a whole number only by a rounding error becomes that
   number. */
static int ticks_of(const Jobs *jobs, double time)
{
    const double ticks = time / jobs->tick, nearest = round(ticks);
    return (int)(fabs(ticks - nearest) <= 1e-9 * fmax(1, ticks) ? nearest : floor(ticks));
}

static uint32_t *number_at(const Jobs *jobs, uint32_t pipe, uint32_t stage, uint32_t microbatch, JobKind kind)
{
    const uint32_t microbatches = jobs->task->schedule->pipes[pipe].microbatches;
    return &jobs->at[pipe][(stage * microbatches + microbatch) * JOB_KINDS + kind];
}

Job *job_at(const Jobs *jobs, uint32_t pipe, uint32_t stage, uint32_t microbatch, JobKind kind)
{
    return &jobs->jobs[*number_at(jobs, pipe, stage, microbatch, kind)];
}

Job *job_other(const Jobs *jobs, const Job *job, JobKind kind)
{
    return job_at(jobs, job->pipe, job->stage, job->microbatch, kind);
}

int job_whole_time(const Jobs *jobs, const Job *backward)
{
    return ticks_of(jobs, costs_pass(jobs->task->costs, backward->stage, COST_B));
}

/* Whether the microbatches of the job's chunk are interchangeable. Then it is enough to look at orders that run them in
   ascending order. */
static bool is_alike(const Jobs *jobs, const Job *job) { return !jobs->task->schedule->pipes[job->pipe].replicated; }

bool job_is_before(const Jobs *jobs, const Job *a, const Job *b)
{
    if (a->chunk != b->chunk || a->rank != b->rank || a->kind > b->kind || a == b)
        return false;
    if (a->microbatch == b->microbatch)
        return true;
    return a->microbatch < b->microbatch && is_alike(jobs, a) && !(a->kind == JOB_W && b->may_be_whole);
}

/* --- which jobs there are --- */

static void add_job(Jobs *jobs, uint32_t rank, uint32_t chunk, uint32_t microbatch, JobKind kind)
{
    static const StageCost costs[] = {COST_F, COST_I, COST_W};
    const PlacedChunk placed = jobs->task->schedule->chunks[rank][chunk];
    Job *job = &jobs->jobs[jobs->count];
    *job = (Job){.kind = kind,
                 .rank = rank,
                 .chunk = chunk,
                 .pipe = placed.pipe,
                 .stage = placed.stage,
                 .microbatch = microbatch,
                 .time = ticks_of(jobs, costs_pass(jobs->task->costs, placed.stage, costs[kind]))};
    job->least = job->time;
    *number_at(jobs, placed.pipe, placed.stage, microbatch, kind) = jobs->count++;
}

static void add_jobs(Jobs *jobs, uint32_t rank)
{
    const Schedule *schedule = jobs->task->schedule;
    for (uint32_t c = 0; c < schedule->chunk_counts[rank]; c++) {
        const uint32_t all = schedule->pipes[schedule->chunks[rank][c].pipe].microbatches;
        for (JobKind kind = JOB_F; kind < JOB_KINDS; kind++)
            for (uint32_t m = chunk_microbatch(schedule, rank, c, 0, all); m < all;
                 m = chunk_microbatch(schedule, rank, c, m + 1, all))
                add_job(jobs, rank, c, m, kind);
    }
    jobs->first[rank + 1] = jobs->count;
}

/* --- B, F&B and F&I, where they can help --- */

/* The ticks of an F&B and of an F&I of these two jobs. An F&B or F&I is LEFT_OUT if it saves no time compared with its
   two passes one after the other. An F&B is also LEFT_OUT if it saves no time compared with an F&I and a W. The F&I is
   always LEFT_OUT in a task without `with_inputs`. */
static JobPair pair_of(const Jobs *jobs, uint32_t f, uint32_t b)
{
    const Job *forward = &jobs->jobs[f], *backward = &jobs->jobs[b];
    const Costs *costs = costs_of_pair(jobs->task->costs, forward->chunk, backward->chunk);
    const int weight = job_other(jobs, backward, JOB_W)->time, whole = job_whole_time(jobs, backward);
    JobPair pair = {f, b, ticks_of(jobs, costs_pair(costs, forward->stage, backward->stage, COST_B)),
                    ticks_of(jobs, costs_pair(costs, forward->stage, backward->stage, COST_I))};
    if (!jobs->task->with_inputs || pair.input >= forward->time + backward->time)
        pair.input = LEFT_OUT;
    if (pair.whole >= forward->time + smaller(whole, backward->time + weight) ||
        (pair.input != LEFT_OUT && pair.whole >= pair.input + weight))
        pair.whole = LEFT_OUT;
    return pair;
}

static void add_pair(Jobs *jobs, JobPair pair)
{
    Job *forward = &jobs->jobs[pair.forward], *backward = &jobs->jobs[pair.backward];
    const int least = smaller(pair.whole, pair.input);
    if (least == LEFT_OUT)
        return;
    forward->may_be_paired = backward->may_be_paired = true;
    forward->least = smaller(forward->least, least);
    backward->least = smaller(backward->least, least);
    backward->may_be_whole = backward->may_be_whole || pair.whole != LEFT_OUT;
    jobs->pairs[jobs->pair_count++] = pair;
}

static void add_pairs(Jobs *jobs, uint32_t rank)
{
    for (uint32_t f = jobs->first[rank]; f < jobs->first[rank + 1]; f++)
        for (uint32_t b = jobs->first[rank]; b < jobs->first[rank + 1]; b++)
            if (jobs->jobs[f].kind == JOB_F && jobs->jobs[b].kind == JOB_I &&
                !job_is_before(jobs, &jobs->jobs[f], &jobs->jobs[b]))
                add_pair(jobs, pair_of(jobs, f, b));
}

/* Lets a backward run as a B without an F if that takes less time than its I and W. Tells the W whether its backward
   may be a B. */
static void add_whole(Jobs *jobs, Job *backward)
{
    Job *weight = job_other(jobs, backward, JOB_W);
    const int whole = job_whole_time(jobs, backward);
    if (whole < backward->time + weight->time) {
        backward->may_be_whole = true;
        backward->least = smaller(backward->least, whole);
    }
    if (backward->may_be_whole) {
        weight->may_be_whole = true;
        weight->least = 0;
    }
}

static void add_alternatives(Jobs *jobs, Arena *arena)
{
    const uint32_t ranks = jobs->task->schedule->ranks;
    size_t most = 0;
    for (uint32_t r = 0; r < ranks; r++) {
        const size_t forwards = (jobs->first[r + 1] - jobs->first[r]) / JOB_KINDS;
        most += forwards * forwards;
    }
    jobs->pairs = arena_array(arena, most, sizeof *jobs->pairs);
    for (uint32_t r = 0; r < ranks; r++)
        add_pairs(jobs, r);
    for (uint32_t j = 0; j < jobs->count; j++)
        if (jobs->jobs[j].kind == JOB_I)
            add_whole(jobs, &jobs->jobs[j]);
}

/* --- when they may run --- */

uint32_t jobs_before(const Jobs *jobs, const Job *job, JobBefore before[JOBS_BEFORE])
{
    const PlacedPipe *pipe = &jobs->task->schedule->pipes[job->pipe];
    const bool forward = job->kind == JOB_F;
    uint32_t count = 0;
    if (!forward)
        before[count++] = (JobBefore){job_other(jobs, job, job->kind - 1), 0};
    if (forward ? job->stage > 0 : job->kind == JOB_I && job->stage + 1 < pipe->stages) {
        const uint32_t stage = forward ? job->stage - 1 : job->stage + 1;
        Job *there = job_at(jobs, job->pipe, stage, job->microbatch, job->kind);
        before[count++] = (JobBefore){there, ticks_of(jobs, costs_message(jobs->task->costs, there->rank, job->rank))};
    }
    if (job->microbatch > 0 && is_alike(jobs, job) && !(job->kind == JOB_W && job->may_be_whole))
        before[count++] = (JobBefore){job_at(jobs, job->pipe, job->stage, job->microbatch - 1, job->kind), 0};
    return count;
}

/* Narrows the time windows (earliest, latest) of a job and of its direct predecessors, so that the job can run after
   each of them. Returns whether a window changed. */
static bool narrow(const Jobs *jobs, Job *job)
{
    bool changed = false;
    JobBefore before[JOBS_BEFORE];
    const uint32_t count = jobs_before(jobs, job, before);
    for (uint32_t i = 0; i < count; i++) {
        Job *other = before[i].job;
        const int earliest = other->earliest + other->least + before[i].lag;
        const int latest = job->latest - job->least - before[i].lag;
        changed = changed || earliest > job->earliest || latest < other->latest;
        job->earliest = larger(job->earliest, earliest);
        other->latest = smaller(other->latest, latest);
    }
    return changed;
}

static void find_times(Jobs *jobs, int most)
{
    for (uint32_t j = 0; j < jobs->count; j++) {
        const double *starts = jobs->task->starts;
        jobs->jobs[j].earliest = starts ? ticks_of(jobs, starts[jobs->jobs[j].rank]) : 0;
        jobs->jobs[j].latest = jobs->jobs[j].earliest + most;
    }
    for (bool changed = true; changed;) {
        changed = false;
        for (uint32_t j = 0; j < jobs->count; j++)
            changed = narrow(jobs, &jobs->jobs[j]) || changed;
    }
    jobs->possible = true;
    for (uint32_t j = 0; j < jobs->count; j++)
        jobs->possible = jobs->possible && jobs->jobs[j].earliest + jobs->jobs[j].least <= jobs->jobs[j].latest;
}

Jobs jobs_new(const OptimumTask *task, double tick, int most, Arena *arena)
{
    const Schedule *schedule = task->schedule;
    Jobs jobs = {.task = task, .tick = tick};
    size_t count = 0;
    jobs.at = arena_array(arena, schedule->pipe_count, sizeof *jobs.at);
    for (uint32_t p = 0; p < schedule->pipe_count; p++) {
        const size_t own = (size_t)schedule->pipes[p].stages * schedule->pipes[p].microbatches * JOB_KINDS;
        jobs.at[p] = arena_array(arena, own, sizeof **jobs.at);
        count += own;
    }
    jobs.jobs = arena_array(arena, count, sizeof *jobs.jobs);
    jobs.first = arena_array(arena, schedule->ranks + 1, sizeof *jobs.first);
    for (uint32_t r = 0; r < schedule->ranks; r++)
        add_jobs(&jobs, r);
    if (task->overlap)
        add_alternatives(&jobs, arena);
    find_times(&jobs, most);
    return jobs;
}
