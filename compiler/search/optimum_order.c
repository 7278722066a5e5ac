/* Turns the solver's values into actions, in an order for each rank. */

#include "compiler/search/optimum_model.h"

#include <stdlib.h>

static bool is_true(const OptimumModel *model, int literal)
{
    return literal == ALWAYS ||
           (literal != NEVER_SO && solver_value(model->clauses.solver, abs(literal)) == (literal > 0));
}

/* Where a job comes in the order of its rank. Jobs are sorted by start and, if they start together, by `before`: the
   number of jobs of the rank that end before this one starts. */
typedef struct Place {
    int start;
    uint32_t before, job;
} Place;

static int compare(const void *a, const void *b)
{
    const Place *first = a, *second = b;
    return first->start != second->start ? (first->start > second->start) - (first->start < second->start)
                                         : (first->before > second->before) - (first->before < second->before);
}

static Place place_of(const OptimumModel *model, uint32_t rank, uint32_t j)
{
    const uint32_t first = model->jobs.first[rank], count = model->jobs.first[rank + 1] - first;
    Place place = {.start = model->start[j].first, .job = j};
    while (!is_true(model, ladder_by(&model->start[j], place.start)))
        place.start++;
    for (uint32_t i = 0; i < count; i++)
        place.before += i != j - first && is_true(model, model->before[rank][i * count + j - first]);
    return place;
}

/* The other half of the job's F&B or F&I; NULL: the job is in none. */
static const Job *partner(const OptimumModel *model, uint32_t j)
{
    for (uint32_t p = 0; p < model->jobs.pair_count; p++) {
        const JobPair *pair = &model->jobs.pairs[p];
        if ((pair->forward == j || pair->backward == j) && is_true(model, model->pair[p]))
            return &model->jobs.jobs[pair->forward == j ? pair->backward : pair->forward];
    }
    return NULL;
}

static void write_job(const OptimumModel *model, const Job *job, bool overlap, Span span, Order *order)
{
    static const ActionKind kinds[] = {ACTION_F, ACTION_I, ACTION_W};
    const bool whole = job->kind == JOB_I && is_true(model, model->whole[number_of(model, job)]);
    order->actions[order->count++] = (Action){.kind = (uint8_t)(whole ? ACTION_B : kinds[job->kind]),
                                              .chunk = (uint8_t)job->chunk,
                                              .overlap = overlap,
                                              .pipe = (uint16_t)job->pipe,
                                              .stage = (uint16_t)job->stage,
                                              .microbatch = job->microbatch,
                                              .span = span};
}

static void write_rank(const OptimumModel *model, uint32_t rank, Place *places, Span span, Order *order)
{
    const uint32_t first = model->jobs.first[rank], count = model->jobs.first[rank + 1] - first;
    for (uint32_t i = 0; i < count; i++)
        places[i] = place_of(model, rank, first + i);
    qsort(places, count, sizeof *places, compare);
    for (uint32_t i = 0; i < count; i++) {
        const Job *job = &model->jobs.jobs[places[i].job];
        const Job *other = job->kind == JOB_W ? NULL : partner(model, places[i].job);
        if (job->kind == JOB_W && is_true(model, model->whole[number_of(model, job_other(&model->jobs, job, JOB_I))]))
            continue;
        if (other && job->kind == JOB_I)
            continue; /* this backward was written together with the F of its pair */
        write_job(model, job, other != NULL, span, order);
        if (other)
            write_job(model, other, false, span, order);
    }
}

void optimum_model_orders(const OptimumModel *model, Span span, Arena *arena, Order *orders)
{
    Arena *const scratch = arena_scratch(arena);
    Place *places = arena_array(scratch, model->jobs.count, sizeof *places);
    for (uint32_t r = 0; r < model->jobs.task->schedule->ranks; r++) {
        const uint32_t count = model->jobs.first[r + 1] - model->jobs.first[r];
        orders[r] = (Order){.actions = arena_array(arena, count, sizeof(Action)), .capacity = count};
        write_rank(model, r, places, span, &orders[r]);
    }
    arena_free(scratch);
}
