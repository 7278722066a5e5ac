#include "compiler/placement/balance_input.h"

#include "compiler/source/csv_cell.h"
#include "base/counted.h"

#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Accepts only a decimal number. strtod also accepts hexadecimal numbers, infinities and NaN. */
static bool parse_number(const char *text, size_t length, double *value)
{
    char *end;
    *value = strtod(text, &end);
    return (size_t)(end - text) == length && strspn(text, "+-.0123456789eE") >= length;
}

typedef struct Reader {
    Table *table;
    const TableCells *cells;
    size_t capacity; /* number of elements that `values` and `cells` of the table have room for */
    Arena *arena;
} Reader;

static void read_cell(Reader *reader, uint32_t row, uint32_t column, Span cell)
{
    Table *table = reader->table;
    const TableCells *kind = reader->cells;
    const char *text = table->source.text + cell.begin;
    const int length = (int)(cell.end - cell.begin);
    const size_t at = (size_t)row * table->columns + column;
    double *value = &table->values[at];
    table->cells[at] = cell;
    if (length == 0)
        diag_error(table->diagnostics, cell, "layer %u, %s %u: %s is missing", row, kind->column, column, kind->value);
    else if (!parse_number(text, (size_t)length, value) || *value < kind->least || *value > kind->most ||
             (kind->whole && *value != floor(*value)))
        diag_error(table->diagnostics, cell, "layer %u, %s %u: `%.*s` is not %s, a%s number from %g to %g", row,
                   kind->column, column, length, text, kind->value, kind->whole ? " whole" : "", kind->least,
                   kind->most);
    else
        return;
    *value = kind->least;
}

/* The number of cells in the row that begins at the offset `at`. */
static uint32_t count_cells(const Source *source, uint32_t at)
{
    uint32_t count = 0;
    for (CsvCell cell = {.last = false}; !cell.last; count++)
        at = csv_cell(source, at, (uint32_t)source->size, &cell);
    return count;
}

static void make_room(Reader *reader)
{
    Table *table = reader->table;
    const size_t used = (size_t)table->rows * table->columns, needed = used + table->columns;
    if (needed <= reader->capacity)
        return;
    reader->capacity = 2 * needed;
    table->values = arena_grow(reader->arena, table->values, used * sizeof *table->values,
                               reader->capacity * sizeof *table->values);
    table->cells =
        arena_grow(reader->arena, table->cells, used * sizeof *table->cells, reader->capacity * sizeof *table->cells);
}

/* Reads the row that begins at the offset `at` and returns the offset of the next one. */
static uint32_t read_row(Reader *reader, uint32_t at)
{
    Table *table = reader->table;
    const uint32_t count = count_cells(&table->source, at);
    if (!table->rows)
        table->columns = count;
    make_room(reader);
    for (uint32_t column = 0; column < count; column++) {
        CsvCell cell;
        at = csv_cell(&table->source, at, (uint32_t)table->source.size, &cell);
        if (cell.fault)
            diag_error(table->diagnostics, cell.span, "layer %u: %s", table->rows, cell.fault);
        else if (column < table->columns)
            read_cell(reader, table->rows, column, cell.span);
        const bool is_extra = column == table->columns;
        if (is_extra || (cell.last && count < table->columns))
            diag_error(table->diagnostics, cell.span,
                       "layer %u has %s, but layer 0 has %u: each row has one for every %s", table->rows,
                       counted(count, "value").text, table->columns, reader->cells->column);
    }
    table->rows++;
    return at;
}

/* The offset of the first row that begins at the line start `at` or later. Lines that are empty or begin with # are no
   rows. */
static uint32_t next_row(const Source *source, uint32_t at)
{
    while (at < source->size) {
        const char *line = source->text + at, *first = line + strspn(line, " \t\r\v\f");
        if (*first && *first != '\n' && *first != '#')
            return at;
        at += (uint32_t)(first - line + (ptrdiff_t)strcspn(first, "\n")) + 1;
    }
    return (uint32_t)source->size;
}

Status table_parse(Table *table, const TableCells *cells, Arena *arena)
{
    const Source *source = &table->source;
    table->diagnostics = diag_new(arena, source);
    Reader reader = {.table = table, .cells = cells, .arena = arena};
    for (uint32_t at = 0; (at = next_row(source, at)) < source->size && !diag_full(table->diagnostics);)
        at = read_row(&reader, at);
    if (!table->rows)
        diag_error(table->diagnostics, (Span){0, 0},
                   "this file has no rows: it needs one row for each layer, with a column for each %s", cells->column);
    return diag_failed(table->diagnostics) ? STATUS_BAD_INPUT : STATUS_OK;
}

Status table_read(const char *path, const TableCells *cells, Arena *arena, Table *table, Error *error)
{
    *table = (Table){.rows = 0};
    TRY(source_read(path, arena, &table->source, error));
    if (strcmp(path, "-") == 0)
        table->source.path = "standard input";
    return table_parse(table, cells, arena);
}
