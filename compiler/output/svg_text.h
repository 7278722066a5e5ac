#ifndef OUTPUT_SVG_TEXT_H
#define OUTPUT_SVG_TEXT_H

/* Text in an svg, which does not break lines by itself. */

#include <stdio.h>

/* With what XML asks for in place of & < > ". */
void svg_put_text(const char *text, size_t length, FILE *stream);

/* A text in lines of at most `width` pixels, broken at blanks. Lengths in pixels. */
typedef struct SvgLines {
    const char *style; /* its class */
    double x, width;
    double character, pitch; /* width of a character, from line to line */
} SvgLines;

/* The first line is at y. Returns how high all are; stream NULL: only that. */
double svg_put_lines(const SvgLines *lines, const char *text, double y, FILE *stream);

#endif
