#pragma once

/* Errors in what is evaluated once per rank: the same error on many ranks becomes one diagnostic. */

#include "compiler/source/diag.h"

typedef struct RankNote {
    Span span;
    const char *text;
    struct RankNote *next;
} RankNote;

typedef struct RankError {
    Span span;
    const char *format; /* two errors with the same format and the same span count as one error */
    const char *text;   /* text of the error on the first rank */
    const char *help;   /* NULL: none */
    RankNote *notes;
    bool refuses;       /* see diag_refuses */
    bool values_differ; /* the text of the error is not the same on all its ranks */
    uint32_t first_rank, last_rank, ranks;
    struct RankError *next;
} RankError;

typedef struct RankErrors {
    Arena *arena;
    RankError *first, *last;
} RankErrors;

/* Reports an error on a rank. Returns the new error, so that the caller can set its help and notes. NULL: the same
   error was reported before, and only its ranks are counted. */
RankError *rank_error(RankErrors *errors, uint32_t rank, Span span, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
void rank_errors_report(const RankErrors *errors, Diagnostics *diagnostics);
