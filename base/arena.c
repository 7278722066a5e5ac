#include "base/arena.h"

#include <stdarg.h>
#include <stdalign.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { FIRST_BLOCK_BYTES = 1 << 16, LAST_BLOCK_BYTES = 1 << 23, HUGE_PAGE_BYTES = 1 << 21 };

struct ArenaBlock {
    ArenaBlock *previous;
    size_t size; /* of `memory` */
    alignas(max_align_t) char memory[];
};

void *arena_exhausted(Arena *arena)
{
    if (arena->exhausted)
        longjmp(*arena->exhausted, 1);
    return NULL;
}

/* The size of the next block: FIRST_BLOCK_BYTES if the newest block is smaller or there is none; else twice that of the
   newest block, but at most LAST_BLOCK_BYTES. */
static size_t next_block_bytes(const Arena *arena)
{
    const size_t last = arena->blocks ? arena->blocks->size : 0;
    return last < FIRST_BLOCK_BYTES ? FIRST_BLOCK_BYTES : last < LAST_BLOCK_BYTES / 2 ? 2 * last : LAST_BLOCK_BYTES;
}

/* Asks the system for huge pages for a block of 4 MiB or more, so that it has fewer pages. The first access to a page
   takes more time than most compiler passes spend on the content of the page. */
static void use_huge_pages(void *block, size_t size)
{
    if (size < 2 * (size_t)HUGE_PAGE_BYTES)
        return;
    const uintptr_t begin = ((uintptr_t)block + HUGE_PAGE_BYTES - 1) / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES;
    madvise((void *)begin, ((uintptr_t)block + size - begin) / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES, MADV_HUGEPAGE);
}

/* Makes a zeroed block with `memory` bytes for content. NULL: there is no memory. */
static ArenaBlock *block_new(const Arena *arena, size_t memory)
{
    const MemoryFunctions *const functions = arena->functions;
    ArenaBlock *block;
    if (functions) {
        block = functions->allocate(functions->user, sizeof *block + memory);
        if (block)
            memset(block, 0, sizeof *block + memory);
    } else {
        block = calloc(1, sizeof *block + memory);
        if (block)
            use_huge_pages(block, sizeof *block + memory);
    }
    return block;
}

void *arena_allocate(Arena *arena, size_t size)
{
    const size_t alignment = alignof(max_align_t);
    if (size > SIZE_MAX / 2)
        return arena_exhausted(arena);
    size = size ? (size + alignment - 1) / alignment * alignment : alignment;
    if (size > (size_t)(arena->limit - arena->next)) {
        const size_t open = next_block_bytes(arena);
        /* a large piece gets a block of its own; later small pieces still use the rest of the older block */
        const int large = size > open / 4;
        const size_t memory = large ? size : open;
        ArenaBlock *block = block_new(arena, memory);
        if (!block)
            return arena_exhausted(arena);
        block->previous = arena->blocks;
        block->size = memory;
        arena->blocks = block;
        if (large)
            return block->memory;
        arena->next = block->memory;
        arena->limit = block->memory + memory;
    }
    void *piece = arena->next;
    arena->next += size;
    return piece;
}

void *arena_array(Arena *arena, size_t count, size_t size)
{
    if (size && count > SIZE_MAX / size)
        return arena_exhausted(arena);
    return arena_allocate(arena, count * size);
}

void *arena_grow(Arena *arena, void *block, size_t old_size, size_t new_size)
{
    void *grown = arena_allocate(arena, new_size);
    if (grown && old_size)
        memcpy(grown, block, old_size < new_size ? old_size : new_size);
    return grown;
}

void *arena_extend(Arena *arena, void *block, size_t count, size_t size)
{
    enum { LEAST = 16 };
    if (count % LEAST || (count & (count - 1)))
        return block;
    return arena_grow(arena, block, count * size, (count ? 2 * count : LEAST) * size);
}

char *arena_text(Arena *arena, const char *text, size_t length)
{
    char *copy = length < SIZE_MAX ? arena_allocate(arena, length + 1) : arena_exhausted(arena);
    if (copy && length)
        memcpy(copy, text, length);
    return copy;
}

char *arena_format(Arena *arena, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(NULL, 0, format, arguments);
    va_end(arguments);
    if (length < 0)
        length = 0;
    char *text = arena_allocate(arena, (size_t)length + 1);
    if (!text)
        return NULL;
    va_start(arguments, format);
    vsnprintf(text, (size_t)length + 1, format, arguments);
    va_end(arguments);
    return text;
}

Arena *arena_scratch(Arena *arena)
{
    Arena *scratch = arena_allocate(arena, sizeof *scratch);
    if (!scratch)
        return NULL;
    *scratch = (Arena){.exhausted = arena->exhausted, .functions = arena->functions, .sibling = arena->scratch};
    arena->scratch = scratch;
    return scratch;
}

void arena_free(Arena *arena)
{
    const MemoryFunctions *const functions = arena->functions;
    for (Arena *scratch = arena->scratch; scratch; scratch = scratch->sibling)
        arena_free(scratch);
    for (ArenaBlock *block = arena->blocks; block;) {
        ArenaBlock *previous = block->previous;
        if (functions)
            functions->release(functions->user, block);
        else
            free(block);
        block = previous;
    }
    arena->blocks = NULL;
    arena->next = arena->limit = NULL;
    arena->scratch = NULL;
}
