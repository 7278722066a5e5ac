#ifndef SOURCE_DIAG_H
#define SOURCE_DIAG_H

/* Errors in a user's source: collected while the passes run, several to a run, reported together with line, column,
   source line and caret. Places are byte offsets until then. */

#include "compiler/source/source.h"

#include <stdbool.h>
#include <stdio.h>

typedef struct Diagnostics Diagnostics;

Diagnostics *diag_new(Arena *arena, const Source *source);

/* One error: what is wrong. Followed by any number of notes (another place that explains it) and a help (what to do).
   The same error at the same place is taken once. After 20 errors the rest is counted only. */
void diag_error(Diagnostics *diagnostics, Span span, const char *format, ...) __attribute__((format(printf, 3, 4)));
void diag_note(Diagnostics *diagnostics, Span span, const char *format, ...) __attribute__((format(printf, 3, 4)));
void diag_help(Diagnostics *diagnostics, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The same of one of the passes that a step makes, on this rank or another: further ones of the same format at the same
   place are counted with the first. */
void diag_pass_error(Diagnostics *diagnostics, Span span, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* The error just reported is no mistake in the source: it refuses the numbers or limits that came from outside. */
void diag_refuses(Diagnostics *diagnostics);

/* Whether the last error was a new one, so that its notes and help will be shown. */
bool diag_taken(const Diagnostics *diagnostics);

bool diag_failed(const Diagnostics *diagnostics);
/* Whether there are errors, and all of them refuse numbers or limits. */
bool diag_is_refusal(const Diagnostics *diagnostics);
/* Errors of one kind have the same place and the same words, the numbers in them apart: those of the first error. */
typedef struct DiagKind {
    uint32_t begin;
    const char *format; /* NULL: there is no error */
} DiagKind;
DiagKind diag_kind(const Diagnostics *diagnostics);
/* In one line, without its place: the first error and what to do about it. */
const char *diag_first(const Diagnostics *diagnostics, Arena *arena);
/* Further errors will be counted only: no need to make much of them. */
bool diag_full(const Diagnostics *diagnostics);
/* FILE:LINE:COLUMN: error: ... with source line and caret, in the order of the source. Columns count from 1, in
   characters (UTF-8), a tab is one. */
void diag_print(const Diagnostics *diagnostics, FILE *stream);

#endif
