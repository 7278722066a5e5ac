#ifndef GRAMMAR_AROUND_H
#define GRAMMAR_AROUND_H

/* The text around a position in the source, for messages that quote it. */

#include "grammar/reader.h"

const char *text_of(const Reader *reader, Span span);
/* The byte at `at`; 0 after the end. */
char byte_at(const Reader *reader, uint32_t at);
bool is_word_byte(char byte);
uint32_t skip_blanks(const Reader *reader, uint32_t at);
Span trimmed(const Reader *reader, Span span);
static inline bool is_empty(Span span) { return span.begin == span.end; }

/* The name or number at `at`, or after blanks from there; empty: none. */
Span word_at(const Reader *reader, uint32_t at);

/* The expression that begins at `at`: at most 200 bytes of the same line, up to one of `stops` or a bracket that
   closes an outer one. */
Span expression_from(const Reader *reader, uint32_t at, const char *stops);
/* The expression that ends at `at`. */
Span expression_before(const Reader *reader, uint32_t at);

#endif
