#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* What a stream can show. */
typedef struct Terminal {
    uint32_t width; /* in columns */
    /* the stream is a terminal, TERM is not "dumb", and NO_COLOR (no-color.org) is unset or empty */
    bool colours;
} Terminal;

/* `width` is what the user asks for. If it is 0: COLUMNS if that is a valid width, else the width of the terminal (80
   if that is unknown), or 160 if the stream is not a terminal. */
Terminal terminal_of(FILE *stream, uint32_t width);

/* A progress bar for long work, on one line of a terminal, which is overwritten. */
typedef struct ProgressBar {
    FILE *stream; /* NULL: nothing is shown */
    int64_t shown_at;
} ProgressBar;

/* Shows nothing if the stream is NULL or not a terminal. */
ProgressBar progress_bar_of(FILE *stream);
/* Updates the line at most ten times a second. `words` are printed after the numbers. */
void progress_bar_show(ProgressBar *bar, uint64_t done, uint64_t all, const char *words);
/* Clears the line. */
void progress_bar_clear(ProgressBar *bar);
