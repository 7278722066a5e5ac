#include "compiler/placement/balance_input.h"

#include "runtime/base/counted.h"

#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Removes the blanks at both ends of [*begin, *end). */
static void trim(const char *text, uint32_t *begin, uint32_t *end)
{
    while (*begin < *end && isspace((unsigned char)text[*begin]))
        ++*begin;
    while (*end > *begin && isspace((unsigned char)text[*end - 1]))
        --*end;
}

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

static uint32_t count_cells(const char *text, Span line)
{
    uint32_t count = 1;
    for (uint32_t i = line.begin; i < line.end; i++)
        count += text[i] == ',';
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

static void read_row(Reader *reader, Span line)
{
    Table *table = reader->table;
    const char *text = table->source.text;
    const uint32_t count = count_cells(text, line);
    if (!table->rows)
        table->columns = count;
    make_room(reader);
    uint32_t begin = line.begin;
    for (uint32_t column = 0; column < count; column++) {
        const char *comma = memchr(text + begin, ',', line.end - begin);
        const uint32_t next = comma ? (uint32_t)(comma - text) : line.end;
        Span cell = {begin, next};
        trim(text, &cell.begin, &cell.end);
        begin = next + 1;
        if (column < table->columns)
            read_cell(reader, table->rows, column, cell);
        const bool is_last = column + 1 == count, is_extra = column == table->columns;
        if (is_extra || (is_last && count < table->columns))
            diag_error(table->diagnostics, cell, "layer %u has %s, but layer 0 has %u: each row has one for every %s",
                       table->rows, counted(count, "value").text, table->columns, reader->cells->column);
    }
    table->rows++;
}

Status table_parse(Table *table, const TableCells *cells, Arena *arena)
{
    const Source *source = &table->source;
    table->diagnostics = diag_new(arena, source);
    Reader reader = {.table = table, .cells = cells, .arena = arena};
    for (uint32_t i = 0; i < source->line_count && !diag_full(table->diagnostics); i++) {
        Span line = {source->line_starts[i],
                     i + 1 < source->line_count ? source->line_starts[i + 1] : (uint32_t)source->size};
        trim(source->text, &line.begin, &line.end);
        if (line.begin < line.end && source->text[line.begin] != '#')
            read_row(&reader, line);
    }
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
