#ifndef MEASURED_JSON_READ_H
#define MEASURED_JSON_READ_H

/* Reads JSON (RFC 8259) as a stream of tokens, in memory that does not grow with the file. The file may be compressed
   with gzip.

   Beyond the standard it takes words such as NaN and inf for values, which profilers write. It does not look whether
   text is UTF-8. */

#include "runtime/base/arena.h"
#include "runtime/base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef enum JsonKind {
    JSON_END, /* of the file, or an error: json_close says which */
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
    /* The last token's text, without quotes and escapes, until the next call. Not closed by a 0. Of a text longer than
       128 KiB only the first JSON_TEXT_MAX bytes. */
    const char *text;
    size_t length;
    int depth;     /* of containers that are open */
    uint64_t line; /* of the file, from 1 */

    /* what follows is json_read.c's */
    const char *path;
    void *file; /* gzFile */
    char *buffer, *next, *end, *token;
    bool over, cut;              /* the file has been read; the token's text was too long */
    bool after_key, after_value; /* what the innermost container has just had */
    bool in_object[JSON_DEPTH_MAX];
    const char *fault; /* what is wrong; NULL: nothing yet */
} JsonReader;

/* "-" is standard input. STATUS_BAD_INPUT: it cannot be opened. Close it in any case. */
Status json_open(JsonReader *reader, const char *path, Arena *arena, Error *error);
JsonKind json_next(JsonReader *reader);
/* Goes past the end of the innermost open container. What it passes is only held to have its brackets and quotes in
   pairs. */
void json_leave(JsonReader *reader);
/* Goes past the value whose first token was `kind`, in the same way. */
void json_skip(JsonReader *reader, JsonKind kind);
/* Ends the stream with an error of the caller's: json_next gives JSON_END from now on. */
void json_stop(JsonReader *reader);
/* STATUS_BAD_INPUT: it was not JSON, or could not be read; FILE:LINE stands in the error. What json_stop stopped is no
   error of this. */
Status json_close(JsonReader *reader, Error *error);

/* Whether the last token's text is `word`. */
static inline bool json_is(const JsonReader *reader, const char *word)
{
    return reader->length == strlen(word) && memcmp(reader->text, word, reader->length) == 0;
}
/* The last token's number; NAN where it is none. */
double json_number(const JsonReader *reader);

#endif
