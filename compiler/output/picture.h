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
    Gap gap;              /* of the makespan of `times`; all 0: not known */
    const Proven *proven; /* NULL: no solver was asked */
    const Program *program;
} Picture;

typedef struct Cell {
    const Action *first, *second; /* second: the second half of an F&B or F&F; NULL: a single pass */
    uint32_t position;            /* of `first` in the order of its rank; `second` follows directly */
    /* middle: of an F&B, the end of the part of its time that its first half gets, in the ratio of the times of the
       halves alone; of a single pass: equal to end */
    double start, middle, end;
} Cell;

/* Returns the cell at or after *position, and moves *position after it; false at the end of the rank. Start with 0. */
bool picture_next(const Picture *picture, uint32_t rank, uint32_t *position, Cell *cell);

/* The number of shades: for each pipe, as many as any rank has chunks of one pipe. */
uint32_t picture_variants(const Schedule *schedule);
/* The shade of a chunk of a rank; `variants` is their number. */
uint32_t picture_variant(const Schedule *schedule, uint32_t variants, uint32_t rank, uint8_t chunk);

#endif
