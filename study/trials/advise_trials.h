#pragma once

/* The attempts of dpc advise: files, each with several values of its parameters. */

#include "study/trials/candidates.h"
#include "study/trials/settings.h"
#include "study/trials/trial.h"

#include <stdatomic.h>
#include <stdio.h>

/* A file to try. */
typedef struct Contender {
    Source source;
    const Ast *tree; /* NULL: the file is an order (.csv), cannot be read or has errors */
    Candidates candidates;
    Error unreadable;
    /* its first attempt failed, did not finish or is not allowed, so no other parameter values are tried */
    bool excluded;
} Contender;

/* A file with values for its parameters. */
typedef struct Attempt {
    Contender *contender;
    size_t candidate;
    /* a second attempt: the search gets the most memory with which the program still keeps the memory limit */
    bool fits_memory;
    bool finished;
    Status status;
    CompareRow row;
    Arena *arena; /* owns the texts of `row`; one thread at a time allocates in it */
} Attempt;

typedef enum TrialsEnd { ENDED, OUT_OF_TIME, INTERRUPTED, NO_MEMORY } TrialsEnd;

/* What the caller of the trials decides. */
typedef struct TrialsControl {
    bool installed; /* also tries the schedules that come with dpc */
    /* called once, after all files were read and before the first trial; NULL: not called */
    void (*begins)(void);
    const atomic_int *interrupted; /* the trials end when this is not 0; NULL: nothing interrupts them */
    /* a terminal, which shows a progress bar; NULL or another file: no progress is shown */
    FILE *progress;
} TrialsControl;

typedef struct Trials {
    const TrialSettings *options;
    const TrialsControl *control;
    Arena *arena;
    int64_t deadline;      /* when the trials end, in ns of the monotonic clock */
    Contender *contenders; /* [contender_count]; the arena owns them */
    size_t contender_count;
    Attempt *attempts; /* [attempt_count]; the arena owns them */
    size_t attempt_count;
    /* a TrialsEnd. ENDED: the trials still run, or all were tried; any other value stops the searches of all threads */
    atomic_int end;
} Trials;

/* Tries all schedules, several at once on the machine's cores, until all are tried, options->seconds have passed or
   control->interrupted is set. Attempts that did not end in time are not `finished`. If an attempt finds no memory, all
   end, and the call ends as arena_exhausted does. STATUS_BAD_USAGE: there is nothing
   to try, a -D for all files sets a parameter that no schedule has, or a -D for one file sets a parameter that this
   file does not have. */
Status trials_run(const TrialSettings *options, const TrialsControl *control, Arena *arena, Trials *trials,
                  Error *error);

/* Whether advise leaves the row out because it has no backward, or needs --allow, which is not given. */
bool trials_exclude(const TrialSettings *options, const CompareRow *row);
