#ifndef COMPILER_TERMINAL_H
#define COMPILER_TERMINAL_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* What can be shown on a stream. */
typedef struct Terminal {
    uint32_t width; /* in columns; 0: no terminal, any */
    bool colours;   /* a terminal, and NO_COLOR (no-color.org) is not set */
} Terminal;

/* COLUMNS, if it is set, is the width of any stream. */
Terminal terminal_of(FILE *stream);

#endif
