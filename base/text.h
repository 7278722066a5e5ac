#pragma once

/* Text of users, which may have any bytes: read (text_accept), or printed, as file names, names in a program or lines
   of a source, on a terminal or as JSON. */

#include "base/status.h"

#include "base/arena.h"

#include <stddef.h>
#include <stdio.h>

/* Takes the bytes of a text file that a user wrote; a 0 byte follows them. Moves *text after a byte order mark. Makes
   each CR that no LF follows, the line end of some spreadsheets and editors, an LF: so a line ends with LF or CR LF.
   STATUS_BAD_INPUT: the file is UTF-16, or no text; the error names the path. */
Status text_accept(const char *path, char **text, size_t *size, Error *error);

/* The length in bytes of the character at `text`, which has `left` bytes, at least one. 0: the character is a control
   character (C0, DEL, C1), which a terminal cannot show, or the bytes are not UTF-8 (RFC 3629, section 4). */
size_t text_character(const char *text, size_t left);

/* Prints text for people: a tab becomes a space, and any other byte that cannot be shown becomes ?. Newlines stay. */
void text_print(const char *text, size_t length, FILE *stream);
/* Replaces in place what text_print would replace, for text of one line: a newline becomes ? too. */
void text_make_printable(char *text);
/* The same for a message. Its own further lines are indented, so a newline stays before two spaces. Every Error and
   every diagnostic goes through this function: a message may contain a file name with any bytes. */
void text_make_message(char *text);
/* A copy after text_make_printable, in the arena: of a file's name as messages and tables show it. */
const char *text_printable(const char *text, Arena *arena);

/* Prints each line of a text, which end in newlines, after the same words. */
void text_put_lines(const char *head, const char *lines, FILE *stream);

/* Writes a JSON string with its quotes. A byte that is not UTF-8 becomes U+FFFD, and < is escaped, so that the string
   may be in the script of a page. */
void json_put_text(const char *text, size_t length, FILE *stream);
/* The same of a text that ends with a 0. */
void json_put_string(const char *text, FILE *stream);
/* Prints `before`, such as ", \"key\": ", as it is, and then the text as a string. */
void json_put_member(const char *before, const char *text, FILE *stream);
