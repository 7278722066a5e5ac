/* Diagnostics as data and as text. */

#include "library/internal.h"

#include <stdlib.h>
#include <string.h>

static dps_diagnostic place(const DiagEntry *entry, const Source *source)
{
    const Span span = entry->span;
    return (dps_diagnostic){.severity = entry->severity == DIAG_ERROR ? DPS_ERROR : DPS_NOTE,
                            .line = source_line(source, span.begin),
                            .column = source_column(source, span.begin),
                            .end_line = source_line(source, span.end),
                            .end_column = source_column(source, span.end)};
}

static const char *joined(Arena *arena, const char *one, const char *other)
{
    return one ? arena_format(arena, "%s\n%s", one, other) : arena_format(arena, "%s", other);
}

static void take_entries(dps *d, const DiagEntry *entries, uint32_t count, const Source *source)
{
    dps_diagnostic *error = NULL;
    d->diagnostics = arena_array(&d->report, count, sizeof *d->diagnostics);
    for (const DiagEntry *entry = entries; entry < entries + count; entry++) {
        if (entry->severity == DIAG_HELP) {
            error->help = joined(&d->report, error->help, entry->text);
            continue;
        }
        dps_diagnostic *const next = &d->diagnostics[d->diagnostic_count++];
        *next = entry->severity == DIAG_MORE ? (dps_diagnostic){.severity = DPS_NOTE} : place(entry, source);
        next->text = arena_format(&d->report, "%s", entry->text);
        error = entry->severity == DIAG_ERROR ? next : error;
    }
}

void report_diagnostics(dps *d, const Diagnostics *diagnostics, const Source *source)
{
    uint32_t count;
    const DiagEntry *const entries = diag_entries(diagnostics, &count);
    take_entries(d, entries, count, source);
    const char *const text = diag_text(diagnostics, &d->report);
    d->words = arena_text(&d->report, text, strlen(text) - 1); /* without the last line break */
}

size_t dps_diagnostic_count(const dps *d) { return d ? d->diagnostic_count : 0; }

dps_status dps_get_diagnostic(const dps *d, size_t index, dps_diagnostic *diagnostic)
{
    return index < dps_diagnostic_count(d) && STRUCT_OUT(diagnostic, &d->diagnostics[index]) ? DPS_OK : DPS_BAD_USAGE;
}
