#ifndef BASE_TEXT_H
#define BASE_TEXT_H

/* Text from elsewhere (file names, names in a program, lines of a source) on its way to a terminal or into JSON: any
   bytes. */

#include <stddef.h>
#include <stdio.h>

/* How many of the `left` bytes at `text` are one character that a terminal shows; 0: a control character (C0, DEL, C1),
   or bytes that are not UTF-8 (RFC 3629, section 4). */
size_t text_character(const char *text, size_t left);

/* For people: a tab becomes a space, any other byte that is not shown becomes ?. Newlines stay. */
void text_print(const char *text, size_t length, FILE *stream);
/* The same in place, for text of one line: a newline becomes ? too. */
void text_make_printable(char *text);

/* As a string of JSON, with its quotes. A byte that is not UTF-8 becomes U+FFFD. No < is left in it, so that it may
   stand in the script of a page. */
void json_put_text(const char *text, size_t length, FILE *stream);

#endif
