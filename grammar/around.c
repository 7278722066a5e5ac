#include "grammar/around.h"

#include <ctype.h>
#include <string.h>

const char *text_of(const Reader *reader, Span span)
{
    return arena_text(reader->arena, reader->source->text + span.begin, span.end - span.begin);
}

char byte_at(const Reader *reader, uint32_t at) { return at < reader->source->size ? reader->source->text[at] : '\0'; }

bool is_word_byte(char byte) { return isalnum((unsigned char)byte) || byte == '_'; }

uint32_t skip_blanks(const Reader *reader, uint32_t at)
{
    while (byte_at(reader, at) == ' ' || byte_at(reader, at) == '\t')
        at++;
    return at;
}

Span word_at(const Reader *reader, uint32_t at)
{
    Span span = {skip_blanks(reader, at), 0};
    for (span.end = span.begin; is_word_byte(byte_at(reader, span.end));)
        span.end++;
    return span;
}

Span trimmed(const Reader *reader, Span span)
{
    while (!is_empty(span) && isspace((unsigned char)byte_at(reader, span.begin)))
        span.begin++;
    while (!is_empty(span) && isspace((unsigned char)byte_at(reader, span.end - 1)))
        span.end--;
    return span;
}

enum { REACH = 200 }; /* most bytes examined on each side of a position */

Span expression_from(const Reader *reader, uint32_t at, const char *stops)
{
    Span span = {at, at};
    int depth = 0;
    for (char byte; (byte = byte_at(reader, span.end)) && byte != '\n' && span.end - at < REACH; span.end++) {
        depth += byte == '(' || byte == '[';
        depth -= byte == ')' || byte == ']';
        if (depth < 0 || (depth == 0 && strchr(stops, byte)))
            break;
    }
    return trimmed(reader, span);
}

Span expression_before(const Reader *reader, uint32_t at)
{
    Span span = {at, at};
    int depth = 0;
    for (; span.begin > 0 && at - span.begin < REACH; span.begin--) {
        const char byte = byte_at(reader, span.begin - 1),
                   before = span.begin > 1 ? byte_at(reader, span.begin - 2) : '\0';
        const bool compares = byte == '=' && (strchr("<>!=", before) || byte_at(reader, span.begin) == '=') && before;
        depth += byte == ')' || byte == ']';
        depth -= byte == '(' || byte == '[';
        if (depth < 0 || (depth == 0 && !compares && strchr("=:,;{}\n", byte)))
            break;
    }
    return trimmed(reader, span);
}
