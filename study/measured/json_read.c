#include "study/measured/json_read.h"

#include <endian.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

enum { WINDOW_BYTES = 1 << 18, SLACK_BYTES = 8 };

/* The number of plain characters at the start of the next 8 bytes of a string: those before the first quote,
   backslash or control character. A subtraction may borrow from the next byte, which is then marked although it is
   plain. That does no harm: it happens only after a byte that is marked rightly, and the first mark counts. */
static inline unsigned plain_bytes(const char *text)
{
    const uint64_t ones = 0x0101010101010101;
    uint64_t bytes;
    memcpy(&bytes, text, sizeof bytes);
    bytes = le64toh(bytes);
    const uint64_t quote = bytes ^ ones * '"', escape = bytes ^ ones * '\\';
    const uint64_t stops =
        (((quote - ones) & ~quote) | ((escape - ones) & ~escape) | ((bytes - ones * ' ') & ~bytes)) & ones * 0x80;
    return stops ? (unsigned)__builtin_ctzll(stops) / 8 : 8;
}

Status json_open(JsonReader *reader, const char *path, Arena *arena, Error *error)
{
    *reader = (JsonReader){.path = path, .line = 1};
    errno = 0;
    const gzFile file = strcmp(path, "-") == 0 ? gzdopen(0, "rb") : gzopen(path, "rb");
    if (!file)
        return error_set(error, STATUS_BAD_INPUT, "%s: %s", path, errno ? strerror(errno) : "no memory to read it");
    gzbuffer(file, WINDOW_BYTES);
    reader->file = file;
    reader->buffer = reader->next = reader->end = arena_allocate(arena, WINDOW_BYTES + SLACK_BYTES);
    return STATUS_OK;
}

static const char cut_short[] = "the file ends in the middle", zero_byte[] = "it has a zero byte";

static uint64_t offset(const JsonReader *reader) { return reader->end_offset - (uint64_t)(reader->end - reader->next); }

/* Counts the line end that is the next byte. */
static void end_line(JsonReader *reader)
{
    reader->line++;
    reader->line_offset = offset(reader) + 1;
}

static JsonKind fail(JsonReader *reader, const char *fault)
{
    if (!reader->fault) {
        reader->fault = fault;
        reader->column = offset(reader) - reader->line_offset + 1;
    }
    reader->over = true;
    reader->next = reader->end;
    return JSON_END;
}

/* Reads the next part of the file into the buffer. Keeps the text from reader->token on, and writes a 0 byte after the
   end. False: the file has ended, or cannot be read further (reader->fault). */
static bool more(JsonReader *reader)
{
    if (reader->over)
        return false;
    size_t kept = (size_t)(reader->end - reader->token);
    const size_t ahead = (size_t)(reader->end - reader->next);
    if (kept > WINDOW_BYTES / 2) { /* only a string can be this long: keep its first JSON_TEXT_MAX bytes */
        kept = JSON_TEXT_MAX + ahead;
        memmove(reader->token + JSON_TEXT_MAX, reader->next, ahead);
        reader->cut = true;
    }
    memmove(reader->buffer, reader->token, kept);
    reader->token = reader->buffer;
    reader->end = reader->buffer + kept;
    reader->next = reader->end - ahead;
    const int got = gzread(reader->file, reader->end, (unsigned)(WINDOW_BYTES - kept));
    reader->end += got > 0 ? got : 0;
    reader->end_offset += got > 0 ? (uint64_t)got : 0;
    *reader->end = '\0';
    reader->over = got <= 0;
    int code;
    gzerror(reader->file, &code);
    if (code == Z_BUF_ERROR)
        fail(reader, "the compressed file ends in the middle");
    else if (code != Z_OK)
        fail(reader, code == Z_ERRNO        ? strerror(errno)
                     : code == Z_DATA_ERROR ? "the compressed file is damaged"
                                            : "no memory to read it");
    reader->unread = code == Z_ERRNO;
    return got > 0;
}

/* Skips white space and returns the next byte without taking it; 0: the file has ended, or the byte is 0, which is a
   fault. */
static char peek(JsonReader *reader)
{
    for (;; reader->next++) {
        while (*reader->next == ' ')
            reader->next++;
        switch (*reader->next) {
        case '\n': end_line(reader); break;
        case '\t':
        case '\r': break;
        case '\0':
            if (reader->next < reader->end) {
                fail(reader, zero_byte);
                return '\0';
            }
            reader->token = reader->next;
            if (!more(reader))
                return '\0';
            reader->next--;
            break;
        default: return *reader->next;
        }
    }
}

static bool read_hex(const char *text, unsigned *code)
{
    *code = 0;
    for (int i = 0; i < 4; i++) {
        const char c = text[i];
        const int digit = c >= '0' && c <= '9'                 ? c - '0'
                          : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10
                                                               : -1;
        if (digit < 0)
            return false;
        *code = 16 * *code + (unsigned)digit;
    }
    return true;
}

static char *put_utf8(unsigned code, char *to)
{
    if (code < 0x80) {
        *to++ = (char)code;
    } else if (code < 0x800) {
        *to++ = (char)(0xc0 | code >> 6);
        *to++ = (char)(0x80 | (code & 0x3f));
    } else { /* a surrogate pair is not joined to one character, because no caller needs it */
        *to++ = (char)(0xe0 | code >> 12);
        *to++ = (char)(0x80 | (code >> 6 & 0x3f));
        *to++ = (char)(0x80 | (code & 0x3f));
    }
    return to;
}

/* Replaces the escapes in [text, end) by what they mean, and returns the new end; NULL: an escape is wrong. */
static char *unescape(char *text, const char *end)
{
    static const char letters[] = "\"\\/bfnrt", meanings[] = "\"\\/\b\f\n\r\t";
    char *to = text;
    for (const char *from = text; from < end; from++) {
        const char *letter;
        unsigned code;
        if (*from != '\\') {
            *to++ = *from;
        } else if (++from < end && *from && (letter = strchr(letters, *from))) {
            *to++ = meanings[letter - letters];
        } else if (from < end && *from == 'u' && end - from > 4 && read_hex(from + 1, &code)) {
            to = put_utf8(code, to);
            from += 4;
        } else {
            return NULL;
        }
    }
    return to;
}

/* Moves to the closing quote of a string. kept: the text from reader->token on stays in the buffer. False: the string
   is wrong or not closed; reader->fault says so. */
static bool find_quote(JsonReader *reader, bool kept, bool *escaped)
{
    for (;;) {
        for (unsigned count = 8; count == 8; reader->next += count)
            count = plain_bytes(reader->next);
        const bool escape = *reader->next == '\\';
        if (*reader->next == '"')
            return true;
        if (escape && reader->end - reader->next > 1) {
            reader->next += 2;
            *escaped = true;
            continue;
        }
        if (!escape && reader->next < reader->end)
            return fail(reader, "a string has a control character in it") != JSON_END;
        if (!kept)
            reader->token = reader->next;
        if (!more(reader))
            return fail(reader, cut_short) != JSON_END;
    }
}

/* Reads the string whose opening quote is the next byte. False: the string is wrong; reader->fault says so. */
static bool read_string(JsonReader *reader)
{
    bool escaped = false;
    reader->cut = false;
    reader->token = ++reader->next;
    if (!find_quote(reader, true, &escaped))
        return false;
    char *end = reader->next++;
    if (reader->cut)
        end = reader->token + JSON_TEXT_MAX;
    else if (escaped && !(end = unescape(reader->token, end)))
        return fail(reader, "a string has an unknown escape in it") != JSON_END;
    reader->text = reader->token;
    reader->length = (size_t)(end - reader->token);
    return true;
}

static bool is_scalar(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' || c == '+' ||
           c == '.';
}

/* Reads a number or a word. */
static JsonKind read_scalar(JsonReader *reader)
{
    reader->token = reader->next;
    do
        while (is_scalar(*reader->next))
            reader->next++;
    while (reader->next == reader->end && more(reader));
    reader->text = reader->token;
    reader->length = (size_t)(reader->next - reader->token);
    if (!reader->length || reader->length > 64)
        return fail(reader, reader->length ? "a number or word has more than 64 characters" : "a value is missing");
    const char first = *reader->text, second = reader->length > 1 ? reader->text[1] : ' ';
    if ((first >= '0' && first <= '9') || (first == '-' && second >= '0' && second <= '9'))
        return JSON_NUMBER;
    static const char *const words[] = {"true",      "false", "null", "NaN",  "Infinity",
                                        "-Infinity", "nan",   "inf",  "-nan", "-inf"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (json_is(reader, words[i]))
            return JSON_WORD;
    return fail(reader, "a word is none of true, false, null, NaN and Infinity");
}

static JsonKind leave(JsonReader *reader)
{
    reader->next++;
    reader->after_value = true;
    return reader->in_object[--reader->depth] ? JSON_OBJECT_END : JSON_ARRAY_END;
}

static JsonKind enter(JsonReader *reader, bool object)
{
    if (reader->depth == JSON_DEPTH_MAX)
        return fail(reader, "more than 64 objects and arrays are nested");
    reader->in_object[reader->depth++] = object;
    reader->next++;
    reader->after_value = false;
    return object ? JSON_OBJECT : JSON_ARRAY;
}

static JsonKind read_value(JsonReader *reader)
{
    switch (*reader->next) {
    case '{': return enter(reader, true);
    case '[': return enter(reader, false);
    case '"': reader->after_value = true; return read_string(reader) ? JSON_TEXT : JSON_END;
    default: reader->after_value = true; return read_scalar(reader);
    }
}

static JsonKind read_key(JsonReader *reader)
{
    if (*reader->next != '"')
        return fail(reader, "a key in quotes is missing");
    reader->after_key = true;
    return read_string(reader) ? JSON_KEY : JSON_END;
}

JsonKind json_next(JsonReader *reader)
{
    char next = peek(reader);
    const bool ended = !reader->depth && reader->after_value;
    const bool may_end = ended || (reader->depth == 1 && !*reader->in_object);
    if (!next)
        return may_end ? JSON_END : fail(reader, reader->depth ? cut_short : "there is nothing in the file");
    if (ended)
        return fail(reader, "something follows the end");
    if (reader->after_key) {
        if (next != ':')
            return fail(reader, "a colon is missing");
        reader->after_key = false;
        reader->next++;
        return peek(reader) ? read_value(reader) : fail(reader, cut_short);
    }
    if (!reader->depth)
        return read_value(reader);
    const bool object = reader->in_object[reader->depth - 1];
    if (next == (object ? '}' : ']'))
        return leave(reader);
    if (reader->after_value) {
        if (next != ',')
            return fail(reader, "a comma is missing");
        reader->next++;
        if (!peek(reader))
            return may_end ? JSON_END : fail(reader, cut_short);
    }
    return object ? read_key(reader) : read_value(reader);
}

/* json_leave skips text without reading tokens. It looks only at these bytes. */
static const bool structural[256] = {
    [0] = true, ['"'] = true, ['\n'] = true, ['{'] = true, ['}'] = true, ['['] = true, [']'] = true};

void json_leave(JsonReader *reader)
{
    bool escaped;
    for (int open = 1; open; reader->next++) {
        while (!structural[(unsigned char)*reader->next])
            reader->next++;
        switch (*reader->next) {
        case '"':
            reader->next++;
            if (!find_quote(reader, false, &escaped))
                return;
            break;
        case '{':
        case '[': open++; break;
        case '}':
        case ']': open--; break;
        case '\n': end_line(reader); break;
        default:
            reader->token = reader->next;
            if (reader->next < reader->end || !more(reader)) {
                fail(reader, reader->next < reader->end ? zero_byte : cut_short);
                return;
            }
            reader->next--;
        }
    }
    reader->depth--;
    reader->after_key = false;
    reader->after_value = true;
}

void json_skip(JsonReader *reader, JsonKind kind)
{
    if (kind == JSON_OBJECT || kind == JSON_ARRAY)
        json_leave(reader);
}

void json_stop(JsonReader *reader) { fail(reader, ""); }

Status json_close(JsonReader *reader, Error *error)
{
    if (reader->file)
        gzclose(reader->file);
    reader->file = NULL;
    if (!reader->fault || !*reader->fault)
        return STATUS_OK;
    if (reader->unread)
        return error_set(error, STATUS_BAD_INPUT, "%s: %s", reader->path, reader->fault);
    return error_set(error, STATUS_BAD_INPUT, "%s:%llu:%llu: cannot be read as a trace (JSON): %s", reader->path,
                     (unsigned long long)reader->line, (unsigned long long)reader->column, reader->fault);
}

double json_number(const JsonReader *reader)
{
    char copy[72];
    if (reader->length >= sizeof copy)
        return NAN;
    memcpy(copy, reader->text, reader->length);
    copy[reader->length] = '\0';
    char *end;
    const double value = strtod(copy, &end);
    return *end || end == copy ? NAN : value;
}
