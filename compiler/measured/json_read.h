#ifndef MEASURED_JSON_READ_H
#define MEASURED_JSON_READ_H

/* Reads JSON (RFC 8259) as a stream of tokens, in memory that does not grow with the file. The file may be
   compressed with gzip.

   Beyond the standard it accepts words such as NaN and inf as values, which profilers write. It does not check that
   text is UTF-8. */

#include "runtime/base/arena.h"
#include "runtime/base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef enum JsonKind {
    JSON_END, /* the end of the file, or an error: json_close tells which */
    JSON_OBJECT,
    JSON_OBJECT_END,
    JSON_ARRAY,
    JSON_ARRAY_END,
    JSON_KEY,
    JSON_TEXT,
    JSON_NUMBER,
    JSON_WORD, /* true, false, null; NaN, inf */
} JsonKind;

enum { JSON_DEPTH_MAX = 64, JSON_TEXT_MAX = 4096 };

typedef struct JsonReader {
    /* The text of the last token, without quotes and escapes, valid until the next call. It does not end in a 0. Of
       a text longer than 128 KiB it has only the first JSON_TEXT_MAX bytes. */
    const char *text;
    size_t length;
    int depth;     /* number of open containers */
    uint64_t line; /* in the file, from 1 */

    /* private to json_read.c */
    const char *path;
    void *file; /* gzFile */
    char *buffer, *next, *end, *token;
    /* over: the file has been read to its end; cut: the text of the last token was too long and is incomplete */
    bool over, cut;
    bool after_key, after_value; /* whether the last token in the innermost container was a key; a value */
    bool in_object[JSON_DEPTH_MAX];
    const char *fault; /* the error; NULL: none yet */
} JsonReader;

/* "-" is standard input. STATUS_BAD_INPUT: the file cannot be opened. Call json_close in any case. */
Status json_open(JsonReader *reader, const char *path, Arena *arena, Error *error);
JsonKind json_next(JsonReader *reader);
/* Skips to after the end of the innermost open container. Of the skipped text only brackets and quotes are checked. */
void json_leave(JsonReader *reader);
/* Skips the rest of the value whose first token, of this kind, was read last. Checks only brackets and quotes. */
void json_skip(JsonReader *reader, JsonKind kind);
/* Ends the stream because of an error that the caller found: json_next returns JSON_END from now on. */
void json_stop(JsonReader *reader);
/* STATUS_BAD_INPUT: the file was not JSON, or could not be read; the error starts with FILE:LINE. An end by
   json_stop is not an error here. */
Status json_close(JsonReader *reader, Error *error);

/* Whether the last token's text is `word`. */
static inline bool json_is(const JsonReader *reader, const char *word)
{
    return reader->length == strlen(word) && memcmp(reader->text, word, reader->length) == 0;
}
/* The number of the last token; NAN if it is not a number. */
double json_number(const JsonReader *reader);

#endif
