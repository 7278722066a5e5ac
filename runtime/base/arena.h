#ifndef BASE_ARENA_H
#define BASE_ARENA_H

#include <setjmp.h>
#include <stddef.h>

/* Memory that is freed all at once. An arena lives as long as one compilation or one loaded program. If the system
   has no more memory, the arena jumps to `exhausted`, which the owner sets with setjmp before first use; if
   `exhausted` is NULL, the arena returns NULL. */
typedef struct ArenaBlock ArenaBlock;
typedef struct Arena {
    ArenaBlock *blocks;
    char *next, *limit;
    jmp_buf *exhausted;
} Arena;

/* Zeroed memory, aligned for any type. Size 0 returns a valid pointer. */
void *arena_allocate(Arena *arena, size_t size);
/* Zeroed array; overflow of count * size is handled like exhausted memory. */
void *arena_array(Arena *arena, size_t count, size_t size);
/* `block` of `old_size` bytes, grown to `new_size`; the new bytes are zero. The old block stays until arena_free. */
void *arena_grow(Arena *arena, void *block, size_t old_size, size_t new_size);
/* A copy of `length` bytes of text with a closing 0. */
char *arena_text(Arena *arena, const char *text, size_t length);
char *arena_format(Arena *arena, const char *format, ...) __attribute__((format(printf, 2, 3)));
void arena_free(Arena *arena);

#endif
