#pragma once

/* When the components of a rank's stages ran in a step. Times are in ns of clock_nanoseconds. */

#include "program/parts.h"

#include <stddef.h>
#include <stdint.h>

/* Work on one component in one pass. A component that a recipe divides, or that waits for an all-to-all, has several
   spans in its pass. */
typedef struct PartSpan {
    uint32_t layer;     /* number of the layer in the whole model; NO_LAYER: the component is outside the layers */
    uint8_t part, pass; /* ModelPart; RECIPE_F, B or W */
    /* the half of an F&B or F&F whose halves run together: 0: the F, or the first F; 1: the backward, or the second F.
       Otherwise 0 */
    uint8_t half;
    int64_t start, end;
} PartSpan;

/* The spans of a step in the order in which they ran. */
typedef struct PartSpans {
    PartSpan *entries; /* [room] */
    size_t count, room;
    uint8_t half; /* PartSpan.half of the spans that are appended now */
} PartSpans;

/* Appends a copy of `span`, but with the half spans->half. Does nothing if there is no room for it, or if `spans` is
   NULL. */
static inline void part_spans_note(PartSpans *spans, const PartSpan *span)
{
    if (!spans || spans->count == spans->room)
        return;
    spans->entries[spans->count] = *span;
    spans->entries[spans->count++].half = spans->half;
}
