#pragma once

/* Reads JSON (RFC 8259) as a stream of tokens, in memory that does not grow with the file. The file may be
   compressed with gzip.

   Beyond the standard it accepts words such as NaN and inf as values, which profilers write, and, as Chrome's trace
   format allows, a file that is an array without the closing ]. It does not check that text is UTF-8. */

#include "base/arena.h"
#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef enum JsonKind {
    JSON_END, /* the end of the file, or an error: json_close says which */
    JSON_OBJECT,
    JSON_OBJECT_END,
    JSON_ARRAY,
    JSON_ARRAY_END,
    JSON_KEY,
    JSON_TEXT,
    JSON_NUMBER,
    JSON_WORD, /* true, false, null; NaN, inf and the like */
} JsonKind;

enum { JSON_DEPTH_MAX = 64, JSON_TEXT_MAX = 4096 };

typedef struct JsonReader {
    /* The text of the last token, without quotes and with escapes replaced. Valid until the next call; it does not end
       in a 0. Of a text longer than 128 KiB, these may be only the first JSON_TEXT_MAX bytes. */
    const char *text;
    size_t length;
    int depth;       /* number of open objects and arrays */
    uint64_t line;   /* line of the file, from 1 */
    uint64_t column; /* if the file is wrong: the column, in bytes from 1, at which that was noticed */

    /* the following are private to json_read.c */
    const char *path;
    void *file; /* gzFile */
    char *buffer, *next, *end, *token;
    uint64_t end_offset, line_offset; /* offsets in the file of `end` and of the first byte of the line */
    /* over: the file has been read to its end, or no further because of an error; cut: the last token's text was too
       long and is incomplete */
    bool over, cut;
    /* For the innermost open object or array (at depth 0: for the file). after_key: the last token was a key, and its
       value comes next. after_value: it already has a value, so a comma or the end comes next. Both are true after a
       key that is not the first: look at after_key first. */
    bool after_key, after_value;
    bool in_object[JSON_DEPTH_MAX];
    const char *fault; /* what is wrong; NULL: no error yet; "": json_stop has ended the stream */
    bool unread;       /* the fault is that the file cannot be read */
} JsonReader;

/* Opens the file; "-" is standard input. STATUS_BAD_INPUT: it cannot be opened. Call json_close in any case. */
Status json_open(JsonReader *reader, const char *path, Arena *arena, Error *error);
JsonKind json_next(JsonReader *reader);
/* Skips the rest of the innermost open object or array. In the skipped text brackets are only counted, and strings must
   end; other errors are not noticed. */
void json_leave(JsonReader *reader);
/* Skips the rest of a value. `kind`: its first token, which was read last. An object or array is skipped as by
   json_leave. */
void json_skip(JsonReader *reader, JsonKind kind);
/* Ends the stream because the caller has found an error: json_next returns JSON_END from now on. */
void json_stop(JsonReader *reader);
/* Closes the file. STATUS_BAD_INPUT: it was not JSON, or could not be read; the error starts with FILE:LINE:COLUMN or
   with FILE. After json_stop the result is STATUS_OK. */
Status json_close(JsonReader *reader, Error *error);

/* Whether the last token's text is `word`. */
static inline bool json_is(const JsonReader *reader, const char *word)
{
    return reader->length == strlen(word) && memcmp(reader->text, word, reader->length) == 0;
}
/* The last token as a number; NAN if it is none. */
double json_number(const JsonReader *reader);
