#ifndef COMMAND_ADVISE_TRIALS_H
#define COMMAND_ADVISE_TRIALS_H

/* The attempts of dpc advise: files, each with several values of its parameters. */

#include "compiler/command/candidates.h"
#include "compiler/command/options.h"
#include "compiler/command/trial.h"

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
    Arena arena; /* of the row's texts */
} Attempt;

typedef enum TrialsEnd { ENDED, OUT_OF_TIME, INTERRUPTED } TrialsEnd;

typedef struct Trials {
    const Options *options;
    Contender *contenders; /* [contender_count], the arena's */
    size_t contender_count;
    Attempt *attempts; /* [attempt_count], the arena's */
    size_t attempt_count;
    TrialsEnd end;
} Trials;

/* Tries all schedules that come with dpc and all inputs, several at once on the machine's cores, until the options'
   seconds have passed or ctrl-C. Attempts that were not reached in time are not `finished`. STATUS_BAD_USAGE: there
   is nothing to try, or no schedule has a given parameter. If it takes longer than a second, a terminal on stderr
   shows the progress. */
Status trials_run(const Options *options, Arena *arena, Trials *trials, Error *error);
void trials_free(Trials *trials);

/* Whether the row is tried only with --allow. */
bool trials_exclude(const Options *options, const CompareRow *row);

#endif
