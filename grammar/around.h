#pragma once

/* The text around a position in the source, for messages that quote it. */

#include "grammar/reader.h"

const char *text_of(const Reader *reader, Span span);
/* The byte at `at`; 0 after the end. */
char byte_at(const Reader *reader, uint32_t at);
bool is_word_byte(char byte);
uint32_t skip_blanks(const Reader *reader, uint32_t at);
Span trimmed(const Reader *reader, Span span);
static inline bool is_empty(Span span) { return span.begin == span.end; }

/* The name or number that begins at `at`, or after blanks at `at`. An empty span: there is none. */
Span word_at(const Reader *reader, uint32_t at);

/* The span of the expression that begins at `at`. It ends at the end of the line, before one of the bytes `stops`
   outside of brackets, before a bracket that closes one opened before `at`, or after 200 bytes. */
Span expression_from(const Reader *reader, uint32_t at, const char *stops);
/* The span of the expression that ends before byte `at`. It begins after one of = : , ; { } or a line's end outside of
   brackets (== and <= are not such a =), after a bracket that is still open at `at`, or 200 bytes before `at`. */
Span expression_before(const Reader *reader, uint32_t at);
