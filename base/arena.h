#pragma once

#include <setjmp.h>
#include <stddef.h>

/* An arena is memory that is freed all at once, by arena_free. If there is no more memory, the arena's functions jump
   to `exhausted`, which the owner sets with setjmp before first use; if `exhausted` is NULL, they return NULL. */
typedef struct ArenaBlock ArenaBlock;

/* Where the blocks of an arena come from. */
typedef struct MemoryFunctions {
    /* returns a block that is aligned for any type, or NULL if there is no memory */
    void *(*allocate)(void *user, size_t size);
    void (*release)(void *user, void *block);
    void *user;
} MemoryFunctions;

typedef struct Arena Arena;
struct Arena {
    ArenaBlock *blocks;
    char *next, *limit;
    jmp_buf *exhausted;
    const MemoryFunctions *functions; /* NULL: calloc and free */
    /* scratch: the newest arena that arena_scratch has made in this one; sibling: in a scratch arena, the one made
       before it */
    Arena *scratch, *sibling;
};

/* What the functions below do when there is no memory: jumps to `exhausted`, or returns NULL if that is NULL. For
   callers whose memory is not the arena's. */
void *arena_exhausted(Arena *arena);
/* Zeroed memory, aligned for any type. Size 0 returns a valid pointer. */
void *arena_allocate(Arena *arena, size_t size);
/* Zeroed array; overflow of count * size is handled like exhausted memory. */
void *arena_array(Arena *arena, size_t count, size_t size);
/* Returns new memory of `new_size` bytes with the content of `block` (`old_size` bytes), cut off if there is less room;
   additional bytes are zero. The old block is not freed before arena_free. */
void *arena_grow(Arena *arena, void *block, size_t old_size, size_t new_size);
/* Makes room for one more element in the array `block` of `count` elements of `size` bytes, and returns the array. When
   the array is full (`count` is 0, 16 or a larger power of two), it is copied to new memory: room for 16 elements if
   `count` is 0, otherwise twice the old room. When it is not full, the result is `block`. So an array that grows only
   by this function needs no field for its capacity. `block` may be NULL if `count` is 0. */
void *arena_extend(Arena *arena, void *block, size_t count, size_t size);
/* A copy of `length` bytes of text with a closing 0. */
char *arena_text(Arena *arena, const char *text, size_t length);
char *arena_format(Arena *arena, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Frees all memory of the arena and of its scratch arenas. The arena can be used again. */
void arena_free(Arena *arena);

/* An empty arena inside this one, with the functions and the `exhausted` that this one has now, for what can be freed
   earlier. Freeing the outer arena also frees it, so nothing leaks after a jump to `exhausted`. */
Arena *arena_scratch(Arena *arena);
