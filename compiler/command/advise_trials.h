#ifndef COMMAND_ADVISE_TRIALS_H
#define COMMAND_ADVISE_TRIALS_H

/* The attempts of dpc advise: files, each with several values of its parameters. */

#include "compiler/command/candidates.h"
#include "compiler/command/options.h"
#include "compiler/command/trial.h"

#include <stdatomic.h>
#include <stdio.h>

/* A file. */
typedef struct Contender {
    Source source;
    const Ast *tree; /* NULL: an order, or the file does not parse */
    Candidates candidates;
    Error unreadable;
    bool excluded; /* by its first attempt */
} Contender;

/* A file with values for its parameters. */
typedef struct Attempt {
    Contender *contender;
    size_t candidate;
    bool fits_memory; /* `order auto` gets memory that fits the limit */
    bool finished;
    Status status;
    CompareRow row;
    Arena *arena; /* owns the texts of `row`; one thread at a time allocates in it */
} Attempt;

typedef enum TrialsEnd { ENDED, OUT_OF_TIME, INTERRUPTED } TrialsEnd;

/* What the caller of the trials decides. */
typedef struct TrialsControl {
    bool installed; /* also tries the schedules that come with dpc */
    /* called once, after all files were read and before the first trial; NULL: not called */
    void (*begins)(void);
    const atomic_int *interrupted; /* not 0: the trials end. NULL: never */
    /* a terminal, which shows a progress bar; NULL or another file: no progress is shown */
    FILE *progress;
} TrialsControl;

typedef struct Trials {
    const Options *options;
    const TrialsControl *control;
    Arena *arena;
    int64_t deadline;      /* of the monotonic clock */
    Contender *contenders; /* [contender_count], the arena's */
    size_t contender_count;
    Attempt *attempts; /* [attempt_count], the arena's */
    size_t attempt_count;
    atomic_int end; /* TrialsEnd; OUT_OF_TIME or INTERRUPTED stops the searches of all threads */
} Trials;

/* Tries all schedules, several at once on the machine's cores, until options->seconds have passed or
   control->interrupted is set. Attempts that did not end in time are not `finished`. STATUS_BAD_USAGE: there is nothing
   to try, or no schedule has a given parameter. */
Status trials_run(const Options *options, const TrialsControl *control, Arena *arena, Trials *trials, Error *error);

/* Whether advise leaves the row out because it has no backward, or needs --allow, which is not given. */
bool trials_exclude(const Options *options, const CompareRow *row);

#endif
