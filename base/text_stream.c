#include "base/text_stream.h"

#include <stdbool.h>
#include <stdlib.h>

FILE *text_stream_open(TextStream *made, Arena *arena)
{
    *made = (TextStream){.arena = arena};
    made->stream = open_memstream(&made->text, &made->length);
    return made->stream ? made->stream : arena_exhausted(arena);
}

char *text_stream_close(TextStream *opened)
{
    Arena *const arena = opened->arena;
    jmp_buf *const exhausted = arena->exhausted;
    const bool failed = ferror(opened->stream);
    arena->exhausted = NULL; /* without memory, the arena returns NULL here: a jump would lose the text */
    char *const kept = fclose(opened->stream) == 0 && !failed ? arena_text(arena, opened->text, opened->length) : NULL;
    arena->exhausted = exhausted;
    free(opened->text);
    return kept ? kept : arena_exhausted(arena);
}
