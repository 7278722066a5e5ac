#pragma once

/* Text in an SVG picture, broken into lines here because SVG breaks no lines. */

#include <stdio.h>

/* Writes text with XML's entities for & < > ". */
void svg_put_text(const char *text, size_t length, FILE *stream);

/* The layout of a text in lines of about `width` pixels at most, broken at blanks or, in a longer word, anywhere.
   Lengths are in pixels. */
typedef struct SvgLines {
    const char *style; /* CSS class of the text */
    double x, width;
    double character, pitch; /* mean width of a character; distance between the baselines of two lines */
} SvgLines;

/* Writes the lines of a text; `y` is the baseline of the first one. Returns their height. stream NULL: only
   measures. */
double svg_put_lines(const SvgLines *lines, const char *text, double y, FILE *stream);
