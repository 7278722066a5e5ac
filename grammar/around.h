#ifndef GRAMMAR_AROUND_H
#define GRAMMAR_AROUND_H

/* The text around a place of the source, for messages that quote it. */

#include "grammar/reader.h"

const char *text_of(const Reader *reader, Span span);
/* 0 behind the end. */
char byte_at(const Reader *reader, uint32_t at);
bool is_word_byte(char byte);
uint32_t skip_blanks(const Reader *reader, uint32_t at);
Span trimmed(const Reader *reader, Span span);
static inline bool is_empty(Span span) { return span.begin == span.end; }

/* The name or number at `at` or after blanks from there; empty: there is none. */
Span word_at(const Reader *reader, uint32_t at);

/* At most 200 bytes of the same line: from `at` on, up to one of `stops` or a bracket that was opened before; */
Span expression_from(const Reader *reader, uint32_t at, const char *stops);
/* back from `at` to where its expression begins. */
Span expression_before(const Reader *reader, uint32_t at);

#endif
