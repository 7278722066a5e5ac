#pragma once

/* Cells, one for each pass or U in the order of a rank: every picture of a timeline is drawn from them. An F&B or F&F
   is one cell with two halves. A U takes no time, unless --cost gives it a time. */

#include "compiler/output/palette.h"
#include "compiler/schedule/bound.h"
#include "compiler/schedule/passes.h"
#include "compiler/schedule/timeline.h"
#include "program/program.h"

/* The schedule, the times and the program of a complete compilation, from which pictures are drawn. */
typedef struct Picture {
    const Source *source;
    const Schedule *schedule;
    const PassTable *table;
    const Timeline *times;
    Gap gap;              /* gap between the makespan of `times` and its lower bound; all 0 if not known */
    const Proven *proven; /* result of dpc --prove; NULL: no solver was asked */
    const Program *program;
} Picture;

typedef struct Cell {
    const Action *first, *second; /* second: the second half of an F&B or F&F; NULL if the cell is a single pass */
    uint32_t position;            /* position of `first` in the order of its rank; `second` is at the next one */
    /* middle: the time at which pictures divide an F&B or F&F, in the ratio of the times of its halves when they run
       alone; of a single pass, the same as `end` */
    double start, middle, end;
} Cell;

/* Sets `cell` to the first cell at or after *position, and *position to the position after that cell. Begin with
   position 0. False: the rank has no more cells. */
bool picture_next(const Picture *picture, uint32_t rank, uint32_t *position, Cell *cell);

/* The number of shades: the number of pipes times the largest number of chunks that a rank holds of one pipe. */
uint32_t picture_variants(const Schedule *schedule);
/* The shade of a chunk of a rank, 0..variants-1; `variants` is what picture_variants returned. */
uint32_t picture_variant(const Schedule *schedule, uint32_t variants, uint32_t rank, uint8_t chunk);
