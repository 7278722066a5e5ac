#ifndef PLACEMENT_BALANCE_INPUT_H
#define PLACEMENT_BALANCE_INPUT_H

/* The tables that `dpc balance` reads: a row a line, cells separated by commas. Empty lines and lines that start
   with # do not count. */

#include "compiler/source/diag.h"

typedef struct Table {
    Source source;
    Diagnostics *diagnostics;
    uint32_t rows, columns;
    double *values; /* [rows][columns] */
    Span *cells;    /* the same: where they are */
} Table;

/* What a cell holds, for messages. */
typedef struct TableCells {
    const char *column; /* "expert" */
    const char *value;  /* "a load" */
    double least, most;
    bool whole; /* numbers without a fraction */
} TableCells;

/* Of the source that the table has; the rest is empty. STATUS_BAD_INPUT: the table's diagnostics say why. */
Status table_parse(Table *table, const TableCells *cells, Arena *arena);
/* The same of a file. STATUS_BAD_INPUT without words in `error`: the table's diagnostics have them. */
Status table_read(const char *path, const TableCells *cells, Arena *arena, Table *table, Error *error);

#endif
