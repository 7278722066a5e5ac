#ifndef OUTPUT_JSON_H
#define OUTPUT_JSON_H

#include <stddef.h>
#include <stdio.h>

/* `length` bytes as a text of JSON, with its quotes. No < is left in it, so that it may stand in the script of a page. */
void json_put_text(const char *text, size_t length, FILE *stream);

#endif
