#ifndef OUTPUT_TERMINAL_H
#define OUTPUT_TERMINAL_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* What can be shown on a stream. */
typedef struct Terminal {
    uint32_t width; /* in columns; 160 where the stream is no terminal */
    bool colours;   /* a terminal, and NO_COLOR (no-color.org) is not set */
} Terminal;

/* `width`: what the user asks for; 0: COLUMNS, if it is set, or what the stream has. */
Terminal terminal_of(FILE *stream, uint32_t width);

/* How far long work has come, on a line of its own that is written over and over. */
typedef struct ProgressBar {
    FILE *stream; /* NULL: nothing is shown */
    int64_t shown_at;
} ProgressBar;

/* Shows nothing where the stream is NULL or no terminal. */
ProgressBar progress_bar_of(FILE *stream);
/* Ten times a second at most. `words` stand behind the numbers. */
void progress_bar_show(ProgressBar *bar, uint64_t done, uint64_t all, const char *words);
/* The line is empty again. */
void progress_bar_clear(ProgressBar *bar);

#endif
