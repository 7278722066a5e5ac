#include "compiler/search/optimum_model.h"

#include "compiler/search/optimum_rank.h"

/* --- times --- */

/* Adds the start time and the end time of a job, and the clauses that the end is at least its duration after the start.
   The I and the W of a B have other durations. add_pair adds the clauses for pairs. */
static void add_times(OptimumModel *model, uint32_t j)
{
    const Job *job = &model->jobs.jobs[j];
    const Job *backward = job->kind == JOB_W ? job_other(&model->jobs, job, JOB_I) : job;
    const int whole = job->may_be_whole ? model->whole[number_of(model, backward)] : NEVER_SO;
    Ladder *start = &model->start[j], *end = &model->end[j];
    *start = ladder_new(&model->clauses, job->earliest, job->latest - job->least);
    if (!job->may_be_paired && !job->may_be_whole) {
        *end = (Ladder){start->first + job->time, start->last + job->time, start->variables};
        return;
    }
    *end = ladder_new(&model->clauses, job->earliest + job->least, job->latest);
    ladder_follows(&model->clauses, start, end, job->time, model->paired[j], whole);
    if (job->kind == JOB_W)
        ladder_follows(&model->clauses, start, end, 0, NEVER_SO, NEVER_SO);
    if (job->kind == JOB_I && job->may_be_whole)
        ladder_follows(&model->clauses, start, end, job_whole_time(&model->jobs, job), model->paired[j], -whole);
}

/* Adds the clauses that the halves of an F&B or F&I start together, and that neither half ends before the time of the
   whole has passed. */
static void add_pair(OptimumModel *model, uint32_t p)
{
    const JobPair *pair = &model->jobs.pairs[p];
    const int apart = -model->pair[p], whole = model->whole[pair->backward];
    const uint32_t halves[] = {pair->forward, pair->backward};
    for (int i = 0; i < 2; i++) {
        const Ladder *start = &model->start[halves[i]], *end = &model->end[halves[i]];
        clause_implies(&model->clauses, -apart, model->paired[halves[i]]);
        ladder_follows(&model->clauses, &model->start[halves[!i]], start, 0, apart, NEVER_SO);
        if (pair->whole != LEFT_OUT)
            ladder_follows(&model->clauses, start, end, pair->whole, apart, -whole);
        if (pair->input != LEFT_OUT)
            ladder_follows(&model->clauses, start, end, pair->input, apart, whole);
    }
    if (pair->whole == LEFT_OUT)
        clause_implies(&model->clauses, -apart, -whole);
    if (pair->input == LEFT_OUT)
        clause_implies(&model->clauses, -apart, whole);
}

/* Writes the literals of the F&Bs and F&Is of which a job may be a half. Returns their number. */
static uint32_t pairs_of(const OptimumModel *model, uint32_t j, int *literals)
{
    uint32_t count = 0;
    for (uint32_t p = 0; p < model->jobs.pair_count; p++)
        if (model->jobs.pairs[p].forward == j || model->jobs.pairs[p].backward == j)
            literals[count++] = model->pair[p];
    return count;
}

/* Adds the clauses that a job is half of at most one F&B or F&I, and that `paired` is true only if it is half of one.
   If a B alone takes at least as long as I and W, also adds the clause that this backward is split into I and W unless
   it is in an F&B. */
static void add_choice(OptimumModel *model, uint32_t j, int *literals)
{
    const Job *job = &model->jobs.jobs[j];
    const uint32_t count = pairs_of(model, j, literals);
    for (uint32_t a = 0; a < count; a++)
        for (uint32_t b = a + 1; b < count; b++)
            clause_implies(&model->clauses, literals[a], -literals[b]);
    if (count) {
        solver_add(model->clauses.solver, -model->paired[j]);
        for (uint32_t a = 0; a < count; a++)
            solver_add(model->clauses.solver, literals[a]);
        solver_add(model->clauses.solver, 0);
    }
    if (job->kind == JOB_I && job->may_be_whole &&
        job_whole_time(&model->jobs, job) >= job->time + job_other(&model->jobs, job, JOB_W)->time)
        clause_implies(&model->clauses, model->whole[j], model->paired[j]);
}

static void add_pairs(OptimumModel *model, Arena *arena)
{
    const Jobs *jobs = &model->jobs;
    Arena *const scratch = arena_scratch(arena);
    int *literals = arena_array(scratch, jobs->count, sizeof *literals);
    model->pair = arena_array(arena, jobs->pair_count, sizeof *model->pair);
    for (uint32_t p = 0; p < jobs->pair_count; p++) {
        model->pair[p] = clauses_variables(&model->clauses, 1);
        add_pair(model, p);
    }
    for (uint32_t j = 0; j < jobs->count; j++)
        if (jobs->jobs[j].may_be_paired || jobs->jobs[j].may_be_whole)
            add_choice(model, j, literals);
    arena_free(scratch);
}

static void add_dependences(const OptimumModel *model)
{
    for (uint32_t j = 0; j < model->jobs.count; j++) {
        JobBefore before[JOBS_BEFORE];
        const uint32_t count = jobs_before(&model->jobs, &model->jobs.jobs[j], before);
        for (uint32_t i = 0; i < count; i++)
            ladder_follows(&model->clauses, &model->end[number_of(model, before[i].job)], &model->start[j],
                           before[i].lag, NEVER_SO, NEVER_SO);
    }
}

/* Adds the clauses of the time of the whole order: if it is n ticks less than `most`, every job ends at least n ticks
   before its `latest`. */
static void add_time(OptimumModel *model, int least, int most)
{
    model->time = ladder_new(&model->clauses, least, most);
    for (uint32_t j = 0; j < model->jobs.count; j++)
        for (int time = least; time < most; time++)
            clause_implies(&model->clauses, ladder_by(&model->time, time),
                           ladder_by(&model->end[j], model->jobs.jobs[j].latest - (most - time)));
}

/* --- all of it --- */

static void add_literals(OptimumModel *model, Arena *arena)
{
    const Jobs *jobs = &model->jobs;
    model->whole = arena_array(arena, jobs->count, sizeof *model->whole);
    model->paired = arena_array(arena, jobs->count, sizeof *model->paired);
    for (uint32_t j = 0; j < jobs->count; j++) {
        const Job *job = &jobs->jobs[j];
        model->whole[j] = job->kind == JOB_I && job->may_be_whole ? clauses_variables(&model->clauses, 1) : NEVER_SO;
        model->paired[j] = job->may_be_paired ? clauses_variables(&model->clauses, 1) : NEVER_SO;
    }
}

OptimumModel *optimum_model_new(const OptimumTask *task, double tick, int least, int most, Solver *solver, Arena *arena)
{
    OptimumModel *model = arena_allocate(arena, sizeof *model);
    *model = (OptimumModel){.jobs = jobs_new(task, tick, most, arena), .clauses = {.solver = solver}};
    if (!model->jobs.possible) { /* no order is possible: the empty clause tells the solver */
        model->time = ladder_new(&model->clauses, least, most);
        solver_add(solver, 0);
        return model;
    }
    const uint32_t count = model->jobs.count;
    model->start = arena_array(arena, count, sizeof *model->start);
    model->end = arena_array(arena, count, sizeof *model->end);
    model->before = arena_array(arena, task->schedule->ranks, sizeof *model->before);
    add_literals(model, arena);
    for (uint32_t j = 0; j < count; j++)
        add_times(model, j);
    add_dependences(model);
    add_time(model, least, most);
    add_pairs(model, arena);
    for (uint32_t r = 0; r < task->schedule->ranks; r++)
        optimum_rank_add(model, r, arena);
    return model;
}

int optimum_model_within(const OptimumModel *model, int ticks) { return ladder_by(&model->time, ticks); }
