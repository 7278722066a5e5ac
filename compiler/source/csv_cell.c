#include "compiler/source/csv_cell.h"

#include <ctype.h>

/* The offset of the closing quote of a cell whose text begins at `at`; `end`: there is none. */
static uint32_t closing_quote(const char *text, uint32_t at, uint32_t end)
{
    for (; at < end; at++)
        if (text[at] == '"' && (at + 1 == end || text[at + 1] != '"'))
            return at;
        else if (text[at] == '"')
            at++;
    return end;
}

static Span without_blanks(const char *text, Span span)
{
    while (span.begin < span.end && isspace((unsigned char)text[span.begin]))
        span.begin++;
    while (span.end > span.begin && isspace((unsigned char)text[span.end - 1]))
        span.end--;
    return span;
}

uint32_t csv_cell(const Source *source, uint32_t at, uint32_t end, CsvCell *cell)
{
    const char *text = source->text;
    const bool quoted = at < end && text[at] == '"';
    uint32_t stop = quoted ? closing_quote(text, at + 1, end) : at;
    *cell = (CsvCell){.span = {at + quoted, stop}};
    if (quoted && stop == end)
        cell->fault = "the quote before this cell has no closing quote";
    stop += quoted && stop < end;
    const uint32_t after = stop;
    while (stop < end && text[stop] != ',' && text[stop] != '\n')
        stop++;
    if (!quoted)
        cell->span.end = stop;
    cell->span = without_blanks(text, cell->span);
    const Span rest = without_blanks(text, (Span){after, stop});
    if (quoted && rest.begin < rest.end)
        cell->fault = "text follows the closing quote of this cell";
    cell->last = stop >= end || text[stop] == '\n';
    return stop + 1;
}
