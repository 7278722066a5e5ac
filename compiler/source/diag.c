#include "compiler/source/diag.h"

#include "base/text.h"
#include "base/text_stream.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum {
    ERRORS_SHOWN = 20,
    WINDOW = 120, /* most columns shown of a long line */
    /* most columns of a longer line that are shown before the caret; more if the caret is near the end of the line */
    BEFORE = 40,
};

typedef struct Remark {
    bool is_note;
    Span span; /* notes */
    const char *text;
    struct Remark *next;
} Remark;

typedef struct Report {
    Span span;
    const char *text;
    const char *format;
    bool refuses;   /* diag_refuses has marked it: it is no mistake in the source */
    uint64_t again; /* further errors with the same format at the same position, which are only counted */
    Remark *remarks, *last;
} Report;

struct Diagnostics {
    Arena *arena;
    const Source *source;
    Report reports[ERRORS_SHOWN];
    uint32_t shown;
    uint64_t more; /* further errors, which are only counted */
    /* the last error, to which the next note or help belongs; NULL: there is no error, or the last one was not kept */
    Report *current;
};

Diagnostics *diag_new(Arena *arena, const Source *source)
{
    Diagnostics *diagnostics = arena_allocate(arena, sizeof *diagnostics);
    diagnostics->arena = arena;
    diagnostics->source = source;
    return diagnostics;
}

static const char *format_text(Arena *arena, const char *format, va_list arguments)
{
    va_list again;
    va_copy(again, arguments);
    const int length = vsnprintf(NULL, 0, format, arguments);
    char *text = arena_allocate(arena, length < 0 ? 1 : (size_t)length + 1);
    if (length > 0)
        vsnprintf(text, (size_t)length + 1, format, again);
    text_make_message(text);
    va_end(again);
    return text;
}

static void add_report(Diagnostics *diagnostics, Report report, va_list arguments, const char *format)
{
    diagnostics->current = NULL;
    if (diagnostics->shown == ERRORS_SHOWN) {
        diagnostics->more++;
        return;
    }
    report.format = format;
    report.text = format_text(diagnostics->arena, format, arguments);
    for (uint32_t i = 0; i < diagnostics->shown; i++)
        if (diagnostics->reports[i].span.begin == report.span.begin &&
            strcmp(diagnostics->reports[i].text, report.text) == 0)
            return;
    diagnostics->current = &diagnostics->reports[diagnostics->shown++];
    *diagnostics->current = report;
}

void diag_error(Diagnostics *diagnostics, Span span, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    add_report(diagnostics, (Report){.span = span}, arguments, format);
    va_end(arguments);
}

void diag_pass_error(Diagnostics *diagnostics, Span span, const char *format, ...)
{
    for (uint32_t i = 0; i < diagnostics->shown; i++)
        if (diagnostics->reports[i].span.begin == span.begin && diagnostics->reports[i].format == format) {
            diagnostics->reports[i].again++;
            diagnostics->current = NULL;
            return;
        }
    va_list arguments;
    va_start(arguments, format);
    add_report(diagnostics, (Report){.span = span}, arguments, format);
    va_end(arguments);
}

static void add_remark(Diagnostics *diagnostics, Remark remark)
{
    Report *report = diagnostics->current;
    Remark *added = arena_allocate(diagnostics->arena, sizeof *added);
    *added = remark;
    if (report->last)
        report->last->next = added;
    else
        report->remarks = added;
    report->last = added;
}

void diag_note(Diagnostics *diagnostics, Span span, const char *format, ...)
{
    if (!diagnostics->current)
        return;
    va_list arguments;
    va_start(arguments, format);
    add_remark(diagnostics,
               (Remark){.is_note = true, .span = span, .text = format_text(diagnostics->arena, format, arguments)});
    va_end(arguments);
}

void diag_help(Diagnostics *diagnostics, const char *format, ...)
{
    if (!diagnostics->current)
        return;
    va_list arguments;
    va_start(arguments, format);
    add_remark(diagnostics, (Remark){.text = format_text(diagnostics->arena, format, arguments)});
    va_end(arguments);
}

void diag_refuses(Diagnostics *diagnostics)
{
    if (diagnostics->current)
        diagnostics->current->refuses = true;
}

bool diag_taken(const Diagnostics *diagnostics) { return diagnostics->current != NULL; }

bool diag_failed(const Diagnostics *diagnostics) { return diagnostics->shown > 0; }

bool diag_is_refusal(const Diagnostics *diagnostics)
{
    bool refuses = diag_failed(diagnostics);
    for (uint32_t i = 0; i < diagnostics->shown; i++)
        refuses = refuses && diagnostics->reports[i].refuses;
    return refuses;
}

DiagKind diag_kind(const Diagnostics *diagnostics)
{
    return (DiagKind){diagnostics->reports[0].span.begin, diagnostics->reports[0].format};
}

const char *diag_first(const Diagnostics *diagnostics, Arena *arena)
{
    const Report *report = &diagnostics->reports[0];
    if (!report->last || report->last->is_note)
        return arena_format(arena, "%s", report->text);
    return arena_format(arena, "%s; %s", report->text, report->last->text);
}

bool diag_full(const Diagnostics *diagnostics) { return diagnostics->shown == ERRORS_SHOWN; }

/* --- printing --- */

/* The position that is `count` characters after byte `at`, or before it if `count` is negative, but within [begin,
   end]. */
static size_t step_characters(const char *text, size_t begin, size_t end, size_t at, int count)
{
    for (; count > 0 && at < end; count--)
        for (at++; at < end && utf8_continues(text[at]);)
            at++;
    for (; count < 0 && at > begin; count++)
        for (at--; at > begin && utf8_continues(text[at]);)
            at--;
    return at;
}

static void repeat_mark(FILE *stream, char mark, const char *text, size_t begin, size_t end)
{
    for (size_t i = begin; i < end; i++)
        if (i == begin || !utf8_continues(text[i]))
            putc(mark, stream);
}

static void print_line(const Source *source, Span span, FILE *stream)
{
    const char *text = source->text;
    const size_t begin = source->line_starts[source_line(source, span.begin) - 1];
    const size_t at = span.begin < source->size ? span.begin : source->size;
    const char *newline = at < source->size ? memchr(text + at, '\n', source->size - at) : NULL;
    size_t end = newline ? (size_t)(newline - text) : source->size;
    if (end > at && text[end - 1] == '\r')
        end--;
    const size_t last = span.end < end ? span.end : end;

    size_t from = begin, to = step_characters(text, begin, end, begin, WINDOW);
    if (to < end) {
        from = step_characters(text, begin, end, at, -BEFORE);
        to = step_characters(text, begin, end, from, WINDOW);
        if (to == end)
            from = step_characters(text, begin, end, end, -WINDOW);
    }
    fputs("    ", stream);
    if (from > begin)
        fputs("... ", stream);
    text_print(text + from, to - from, stream);
    if (to < end)
        fputs(" ...", stream);
    fputs(from > begin ? "\n        " : "\n    ", stream);
    repeat_mark(stream, ' ', text, from, at);
    putc('^', stream);
    repeat_mark(stream, '~', text, step_characters(text, begin, end, at, 1), last < to ? last : to);
    putc('\n', stream);
}

static void put_line(const char *text, FILE *stream)
{
    text_print(text, strlen(text), stream);
    putc('\n', stream);
}

static void print_entry(const Source *source, Span span, const char *what, const char *text, FILE *stream)
{
    fprintf(stream, "%s:%u:%u: %s: ", source->path, source_line(source, span.begin), source_column(source, span.begin),
            what);
    put_line(text, stream);
    print_line(source, span, stream);
}

static int by_place(const void *left, const void *right)
{
    const Report *const *a = left, *const *b = right;
    if ((*a)->span.begin != (*b)->span.begin)
        return (*a)->span.begin < (*b)->span.begin ? -1 : 1;
    return *a < *b ? -1 : 1;
}

static uint32_t count_entries(const Diagnostics *diagnostics)
{
    uint32_t count = diagnostics->shown + (diagnostics->more > 0);
    for (uint32_t i = 0; i < diagnostics->shown; i++)
        for (const Remark *remark = diagnostics->reports[i].remarks; remark; remark = remark->next)
            count++;
    return count;
}

static const char *error_text(const Diagnostics *diagnostics, const Report *report)
{
    if (!report->again)
        return report->text;
    return arena_format(diagnostics->arena, "%s (and %llu more like this)", report->text,
                        (unsigned long long)report->again);
}

const DiagEntry *diag_entries(const Diagnostics *diagnostics, uint32_t *count)
{
    const Report *sorted[ERRORS_SHOWN];
    DiagEntry *const entries = arena_array(diagnostics->arena, *count = count_entries(diagnostics), sizeof *entries);
    DiagEntry *next = entries;
    for (uint32_t i = 0; i < diagnostics->shown; i++)
        sorted[i] = &diagnostics->reports[i];
    qsort(sorted, diagnostics->shown, sizeof *sorted, by_place);
    for (uint32_t i = 0; i < diagnostics->shown; i++) {
        *next++ = (DiagEntry){DIAG_ERROR, sorted[i]->span, error_text(diagnostics, sorted[i])};
        for (const Remark *remark = sorted[i]->remarks; remark; remark = remark->next)
            *next++ = (DiagEntry){remark->is_note ? DIAG_NOTE : DIAG_HELP, remark->span, remark->text};
    }
    if (diagnostics->more)
        *next =
            (DiagEntry){.severity = DIAG_MORE,
                        .text = arena_format(diagnostics->arena, "and %llu more error%s",
                                             (unsigned long long)diagnostics->more, diagnostics->more == 1 ? "" : "s")};
    return entries;
}

static void print_entries(const Diagnostics *diagnostics, const DiagEntry *entries, uint32_t count, FILE *stream)
{
    for (const DiagEntry *entry = entries; entry < entries + count; entry++)
        switch (entry->severity) {
        case DIAG_ERROR: print_entry(diagnostics->source, entry->span, "error", entry->text, stream); break;
        case DIAG_NOTE: print_entry(diagnostics->source, entry->span, "note", entry->text, stream); break;
        case DIAG_HELP:
            fputs("  help: ", stream);
            put_line(entry->text, stream);
            break;
        default: fprintf(stream, "%s: %s\n", diagnostics->source->path, entry->text); break;
        }
}

void diag_print(const Diagnostics *diagnostics, FILE *stream)
{
    uint32_t count;
    const DiagEntry *const entries = diag_entries(diagnostics, &count);
    print_entries(diagnostics, entries, count, stream);
}

const char *diag_text(const Diagnostics *diagnostics, Arena *arena)
{
    uint32_t count;
    TextStream text;
    const DiagEntry *const entries = diag_entries(diagnostics, &count);
    print_entries(diagnostics, entries, count, text_stream_open(&text, arena));
    return text_stream_close(&text);
}
