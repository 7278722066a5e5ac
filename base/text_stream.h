#pragma once

/* Text that is written to a stream and then lives in an arena. */

#include "base/arena.h"

#include <stdio.h>

typedef struct TextStream {
    Arena *arena;
    FILE *stream;
    char *text;
    size_t length; /* of the text, once the stream is closed */
} TextStream;

/* Opens a stream. Until it is closed, no jump may leave the function that opened it: it would stay open. If there is no
   memory, both functions end as arena_exhausted does. */
FILE *text_stream_open(TextStream *made, Arena *arena);
/* Closes the stream and returns its text, in the arena and with a closing 0. */
char *text_stream_close(TextStream *opened);
