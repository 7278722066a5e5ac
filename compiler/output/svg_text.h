#ifndef OUTPUT_SVG_TEXT_H
#define OUTPUT_SVG_TEXT_H

/* Text in an svg, which does not break lines by itself. */

#include <stdio.h>

/* Writes text with XML's entities for & < > ". */
void svg_put_text(const char *text, size_t length, FILE *stream);

/* A text in lines of at most `width` pixels, broken at blanks. Lengths are in pixels. */
typedef struct SvgLines {
    const char *style; /* class of the text */
    double x, width;
    double character, pitch; /* mean width of a character; distance between the baselines of two lines */
} SvgLines;

/* Writes the lines, the first one at y, and returns their height; with stream NULL it only measures. */
double svg_put_lines(const SvgLines *lines, const char *text, double y, FILE *stream);

#endif
