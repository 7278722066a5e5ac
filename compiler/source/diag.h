#pragma once

/* Errors in a user's source. dpc collects them while it compiles and prints them together, with line, column, source
   line and caret. Until then positions are byte offsets. */

#include "compiler/source/source.h"

#include <stdbool.h>
#include <stdio.h>

typedef struct Diagnostics Diagnostics;

Diagnostics *diag_new(Arena *arena, const Source *source);

/* Reports one error: what is wrong. Any number of notes (another position that explains the error) and a help (what to
   do) may follow. The same error at the same position is kept once. After 20 errors further ones are only counted. */
void diag_error(Diagnostics *diagnostics, Span span, const char *format, ...) __attribute__((format(printf, 3, 4)));
void diag_note(Diagnostics *diagnostics, Span span, const char *format, ...) __attribute__((format(printf, 3, 4)));
void diag_help(Diagnostics *diagnostics, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Reports an error in a pass, which is often the same in other passes of its step, on this rank or others: further
   errors with the same format at the same position are only counted. */
void diag_pass_error(Diagnostics *diagnostics, Span span, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Marks the last error as a refusal: the source has no mistake, but numbers or limits of the command line do not fit
   it. */
void diag_refuses(Diagnostics *diagnostics);

/* Whether the last error is kept: then its notes and help will be printed. */
bool diag_taken(const Diagnostics *diagnostics);

bool diag_failed(const Diagnostics *diagnostics);
/* Whether there are errors, and all of them are marked by diag_refuses. */
bool diag_is_refusal(const Diagnostics *diagnostics);
/* The kind of the error that was reported first. Errors of one kind have the same position and the same format. */
typedef struct DiagKind {
    uint32_t begin;
    const char *format; /* NULL: there is no error */
} DiagKind;
DiagKind diag_kind(const Diagnostics *diagnostics);
/* The text of the error that was reported first, on one line and without its position. If the last remark to the error
   is a help, its text follows. There must be an error. */
const char *diag_first(const Diagnostics *diagnostics, Arena *arena);
/* Whether further errors will only be counted; then a caller can skip the work of describing them. */
bool diag_full(const Diagnostics *diagnostics);
typedef enum DiagSeverity { DIAG_ERROR, DIAG_NOTE, DIAG_HELP, DIAG_MORE } DiagSeverity;

/* An error, or a note or help that follows its error. The last entry may say how many more errors there are
   (DIAG_MORE). Helps and DIAG_MORE have no span. */
typedef struct DiagEntry {
    DiagSeverity severity;
    Span span;
    const char *text;
} DiagEntry;

/* All entries, [*count]: errors in the order of the source, each with its notes and help. The arena of the diagnostics
   owns them. */
const DiagEntry *diag_entries(const Diagnostics *diagnostics, uint32_t *count);
/* Prints FILE:LINE:COLUMN: error: ... with source line and caret, in the order of the source. Columns count from 1,
   in characters (UTF-8); a tab is one character. */
void diag_print(const Diagnostics *diagnostics, FILE *stream);
/* What diag_print prints, in the arena. */
const char *diag_text(const Diagnostics *diagnostics, Arena *arena);
