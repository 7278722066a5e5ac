#ifndef OUTPUT_PICTURE_H
#define OUTPUT_PICTURE_H

/* What every picture of a timeline is drawn from: the cells of each rank in order, an F&B being one cell of two halves.
   A U takes no time, unless --cost says so. */

#include "compiler/output/palette.h"
#include "compiler/schedule/passes.h"
#include "compiler/schedule/timeline.h"
#include "runtime/program/program.h"

/* A compilation that came to its end. */
typedef struct Picture {
    const Source *source;
    const Schedule *schedule;
    const PassTable *table;
    const Timeline *times;
    const Program *program;
} Picture;

typedef struct Cell {
    const Action *first, *second; /* second: the backward half of an F&B, else NULL */
    uint32_t position;            /* of the first in the order of its rank; a second stands right behind */
    /* middle: where the halves of an F&B meet if each gets its share of the time; else end */
    double start, middle, end;
} Cell;

/* The cell at or behind *position, which moves behind it; false at the end of the rank. Start with 0. */
bool picture_next(const Picture *picture, uint32_t rank, uint32_t *position, Cell *cell);

/* Shades: pipe after pipe, one for each chunk that a rank may hold of it. */
uint32_t picture_variants(const Schedule *schedule);
/* Of a chunk of a rank, `variants` being how many there are. */
uint32_t picture_variant(const Schedule *schedule, uint32_t variants, uint32_t rank, uint8_t chunk);

#endif
