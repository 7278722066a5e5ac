#pragma once

/* The text of a file that the user wrote, and positions in it. */

#include "base/arena.h"
#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct Span {
    uint32_t begin, end; /* bytes [begin, end) of the source */
} Span;

typedef struct Source {
    const char *path; /* path as the user gave it, made printable: for messages */
    const char *text;
    size_t size;
    uint32_t *line_starts; /* [line_count]: offset of the first byte of each line; set by source_lines */
    uint32_t line_count;
} Source;

/* Whether the source is an order, not a schedule: the path ends in .csv, or the text is in the form of Primus. */
bool source_is_order(const Source *source);
/* Whether the text begins as Primus prints an order: "Rank 0: ". */
bool source_is_primus(const Source *source);

/* Reads a file and finds its lines. */
Status source_read(const char *path, Arena *arena, Source *source, Error *error);

/* Makes a source of a text in memory (text_accept) and finds its lines. The text ends with a 0 byte and must live as
   long as the source. */
Status source_of_text(const char *path, char *text, size_t size, Arena *arena, Source *source, Error *error);

/* Sets line_starts and line_count. */
void source_lines(Source *source, Arena *arena);
/* The number, from 1, of the line with this byte offset. */
uint32_t source_line(const Source *source, uint32_t offset);
uint32_t source_column(const Source *source, uint32_t offset);

/* Whether the byte is a later byte of a UTF-8 character of several bytes. */
static inline bool utf8_continues(char byte) { return ((unsigned char)byte & 0xc0) == 0x80; }
