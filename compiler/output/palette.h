#ifndef OUTPUT_PALETTE_H
#define OUTPUT_PALETTE_H

/* The colours of passes in every picture: the sources' (forward orange, backward green, its halves light and dark blue;
   updates plum), chosen so that they stay apart for colour-blind readers. Variants, the directions of a pipeline or the
   chunks of a rank, run from a light shade to a dark one. */

#include <stdint.h>

typedef struct Colour {
    uint8_t red, green, blue;
} Colour;

/* `kind` is a pass or U. */
Colour palette_fill(uint8_t kind, uint32_t variant, uint32_t variants);
/* Black or white: what can be read better on it. At least 4.5 : 1 for every fill, as WCAG 2 asks of text. */
Colour palette_ink(Colour fill);
/* Contrast of two colours by WCAG 2: 1 to 21. */
double palette_contrast(Colour one, Colour other);
/* The nearest of the 6 x 6 x 6 colours that terminals have: 16..231. */
int palette_terminal(Colour colour);

#endif
