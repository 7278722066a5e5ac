#pragma once

/* The cells of a table in the form that spreadsheets write (CSV, RFC 4180): separated by commas, rows by line ends. A
   cell in quotes may contain both, and "" for a quote. */

#include "compiler/source/source.h"

typedef struct CsvCell {
    Span span;         /* the cell without its quotes, and without blanks at both ends; a "" stays as it is */
    bool last;         /* the cell is the last one of its row */
    const char *fault; /* what is wrong with its quotes; NULL: nothing */
} CsvCell;

/* Reads the cell at the offset `at`, which is the first one of a row or follows a comma, in a table that ends at `end`.
   Returns the offset of the next cell, of this row or the next. */
uint32_t csv_cell(const Source *source, uint32_t at, uint32_t end, CsvCell *cell);
