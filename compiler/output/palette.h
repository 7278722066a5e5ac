#pragma once

/* The colours of passes in every picture. They are those of the papers (forward orange, backward green, its halves
   light and dark blue; updates plum), chosen so that colour-blind readers can tell them apart. Variants (the
   directions of a pipeline, or the chunks of a rank) go from a light shade to a dark one. */

#include <stdint.h>

typedef struct Colour {
    uint8_t red, green, blue;
} Colour;

/* `kind` is a pass or U. `variant` is 0 (the lightest shade) to variants - 1 (the darkest). */
Colour palette_fill(uint8_t kind, uint32_t variant, uint32_t variants);
/* Black or white, whichever is easier to read on `fill`. The contrast is at least 4.5 : 1 for every fill, as WCAG 2
   asks of text. */
Colour palette_ink(Colour fill);
/* The contrast ratio of two colours by WCAG 2, from 1 to 21. */
double palette_contrast(Colour one, Colour other);
/* The code, 16..231, of the nearest of the 6 x 6 x 6 colours of terminals. */
int palette_terminal(Colour colour);
