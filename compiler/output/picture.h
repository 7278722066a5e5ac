#ifndef OUTPUT_PICTURE_H
#define OUTPUT_PICTURE_H

/* The cells from which every picture of a timeline is drawn, in the order of each rank. An F&B is one cell of two
   halves. A U takes no time, unless --cost gives it one. */

#include "compiler/output/palette.h"
#include "compiler/schedule/bound.h"
#include "compiler/schedule/passes.h"
#include "compiler/schedule/timeline.h"
#include "runtime/program/program.h"

/* A complete compilation. */
typedef struct Picture {
    const Source *source;
    const Schedule *schedule;
    const PassTable *table;
    const Timeline *times;
    Gap gap;              /* of its makespan; all 0: not known */
    const Proven *proven; /* NULL: no solver was asked */
    const Program *program;
} Picture;

typedef struct Cell {
    const Action *first, *second; /* second: the backward half of an F&B, else NULL */
    uint32_t position;            /* of `first` in the order of its rank; `second` follows directly */
    /* middle: the boundary between the halves of an F&B if each gets its share of the time; else end */
    double start, middle, end;
} Cell;

/* Returns the cell at or after *position, and moves *position after it; false at the end of the rank. Start with 0. */
bool picture_next(const Picture *picture, uint32_t rank, uint32_t *position, Cell *cell);

/* The number of shades: pipe after pipe, one for each chunk that a rank may hold of it. */
uint32_t picture_variants(const Schedule *schedule);
/* The shade of a chunk of a rank; `variants` is their number. */
uint32_t picture_variant(const Schedule *schedule, uint32_t variants, uint32_t rank, uint8_t chunk);

#endif
