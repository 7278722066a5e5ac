#pragma once

/* The passes of a placement as jobs with times in whole ticks, and the time window in which each job may run. */

#include "compiler/search/optimum.h"

typedef enum JobKind { JOB_F, JOB_I /* or B */, JOB_W, JOB_KINDS } JobKind;

typedef struct Job {
    JobKind kind;
    uint32_t rank, chunk, pipe, stage, microbatch;
    int time;             /* ticks of the F, I or W when it runs alone */
    int least;            /* least ticks, alone or in an F&B or F&I; 0 for a W that may be part of a B */
    int earliest, latest; /* in ticks: the earliest start and the latest end */
    bool may_be_whole;    /* of a backward: it may be a B; of a W: it may be part of a B */
    bool may_be_paired;
} Job;

/* An F and a backward of one rank that may run as an F&B or an F&I. */
enum { LEFT_OUT = INT32_MAX };
typedef struct JobPair {
    uint32_t forward, backward; /* indices in Jobs.jobs */
    int whole, input;           /* ticks of the F&B (whole) and of the F&I (input); LEFT_OUT: it cannot help */
} JobPair;

typedef struct Jobs {
    const OptimumTask *task;
    double tick;
    Job *jobs; /* the jobs of rank 0, then those of rank 1, and so on */
    uint32_t count;
    uint32_t *first; /* [ranks + 1]: index of the first job of each rank */
    /* [pipe][(stage * microbatches + microbatch) * JOB_KINDS + kind]: index of the job; read it with job_at */
    uint32_t **at;
    JobPair *pairs;
    uint32_t pair_count;
    bool possible; /* false: no order takes at most the `most` ticks of jobs_new */
} Jobs;

/* Makes the jobs of a task. Their time windows are those of orders that take at most `most` ticks. Times are rounded
   down to whole ticks. */
Jobs jobs_new(const OptimumTask *task, double tick, int most, Arena *arena);

Job *job_at(const Jobs *jobs, uint32_t pipe, uint32_t stage, uint32_t microbatch, JobKind kind);
/* The job of this kind with the same stage and microbatch as `job`. */
Job *job_other(const Jobs *jobs, const Job *job, JobKind kind);
/* The ticks of the backward if it runs as a B without an F. */
int job_whole_time(const Jobs *jobs, const Job *backward);
/* Whether a ends before b starts in every order that the solver looks at. */
bool job_is_before(const Jobs *jobs, const Job *a, const Job *b);

/* A job that has to end at least `lag` ticks before another job starts. */
typedef struct JobBefore {
    Job *job;
    int lag;
} JobBefore;
enum { JOBS_BEFORE = 3 };
/* Writes the direct predecessors of `job`, and returns their number. */
uint32_t jobs_before(const Jobs *jobs, const Job *job, JobBefore before[JOBS_BEFORE]);
