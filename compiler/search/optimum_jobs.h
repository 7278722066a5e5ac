#ifndef SEARCH_OPTIMUM_JOBS_H
#define SEARCH_OPTIMUM_JOBS_H

/* The passes of a placement as jobs with times in whole ticks, and the time window in which each job may run. */

#include "compiler/search/optimum.h"

typedef enum JobKind { JOB_F, JOB_I /* or B */, JOB_W, JOB_KINDS } JobKind;

typedef struct Job {
    JobKind kind;
    uint32_t rank, chunk, pipe, stage, microbatch;
    int time;             /* of F, I or W alone */
    int least;            /* the least time, alone or in a pair; 0 for a W that may be part of a B */
    int earliest, latest; /* the earliest start and the latest end */
    bool may_be_whole;    /* a backward: it may be a B; a W: it may be part of one */
    bool may_be_paired;
} Job;

/* Two jobs of a rank that may be an F&B or an F&I. */
enum { LEFT_OUT = INT32_MAX };
typedef struct JobPair {
    uint32_t forward, backward; /* jobs */
    int whole, input;           /* ticks of the F&B and of the F&I; LEFT_OUT: it cannot help */
} JobPair;

typedef struct Jobs {
    const OptimumTask *task;
    double tick;
    Job *jobs; /* rank after rank */
    uint32_t count;
    uint32_t *first; /* [ranks + 1]: the first job of each rank */
    uint32_t **at;   /* [pipe][(stage * microbatches + microbatch) * JOB_KINDS + kind]; read it with job_at */
    JobPair *pairs;
    uint32_t pair_count;
    bool possible; /* false: no order takes at most `most` ticks */
} Jobs;

/* The jobs of orders that take at most `most` ticks. Times are rounded down to whole ticks. */
Jobs jobs_new(const OptimumTask *task, double tick, int most, Arena *arena);

Job *job_at(const Jobs *jobs, uint32_t pipe, uint32_t stage, uint32_t microbatch, JobKind kind);
/* The F, backward or W of the same microbatch and stage. */
Job *job_other(const Jobs *jobs, const Job *job, JobKind kind);
/* The time of the backward as a B alone. */
int job_whole_time(const Jobs *jobs, const Job *backward);
/* Whether a ends before b starts in every order that the solver looks at. */
bool job_is_before(const Jobs *jobs, const Job *a, const Job *b);

/* A predecessor of another job: it ends at least `lag` ticks before the other one starts. */
typedef struct JobBefore {
    Job *job;
    int lag;
} JobBefore;
enum { JOBS_BEFORE = 3 };
/* Writes the direct predecessors of a job, and returns their number. */
uint32_t jobs_before(const Jobs *jobs, const Job *job, JobBefore before[JOBS_BEFORE]);

#endif
