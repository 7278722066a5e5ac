#pragma once

/* The tables that `dpc balance` reads: one row per line, cells separated by commas. Empty lines and lines that start
   with # are skipped. */

#include "compiler/source/diag.h"

typedef struct Table {
    Source source;
    Diagnostics *diagnostics;
    uint32_t rows, columns;
    double *values; /* [rows][columns] */
    Span *cells;    /* [rows][columns]: where each cell is in the source */
} Table;

/* What the cells of a table hold: for checks and messages. */
typedef struct TableCells {
    const char *column; /* what a column is for, such as "expert" */
    const char *value;  /* what a cell has, such as "a load" */
    double least, most;
    bool whole; /* only whole numbers are valid */
} TableCells;

/* Parses table->source and fills in the other fields. STATUS_BAD_INPUT: table->diagnostics has the errors. */
Status table_parse(Table *table, const TableCells *cells, Arena *arena);
/* Reads and parses a file. STATUS_BAD_INPUT: if `error` has no text, table->diagnostics has the errors. */
Status table_read(const char *path, const TableCells *cells, Arena *arena, Table *table, Error *error);
