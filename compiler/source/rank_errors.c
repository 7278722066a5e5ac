#include "compiler/source/rank_errors.h"

#include <stdarg.h>
#include <string.h>

RankError *rank_error(RankErrors *errors, uint32_t rank, Span span, const char *format, ...)
{
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    for (RankError *error = errors->first; error; error = error->next)
        if (error->span.begin == span.begin && error->span.end == span.end && strcmp(error->format, format) == 0) {
            error->ranks += error->last_rank != rank;
            error->values_differ = error->values_differ || (error->last_rank != rank && strcmp(error->text, text) != 0);
            error->last_rank = rank;
            return NULL;
        }
    RankError *added = arena_allocate(errors->arena, sizeof *added);
    *added = (RankError){.span = span,
                         .format = format,
                         .text = arena_text(errors->arena, text, strlen(text)),
                         .first_rank = rank,
                         .last_rank = rank,
                         .ranks = 1};
    if (errors->last)
        errors->last->next = added;
    else
        errors->first = added;
    errors->last = added;
    return added;
}

void rank_errors_report(const RankErrors *errors, Diagnostics *diagnostics)
{
    for (const RankError *error = errors->first; error; error = error->next) {
        if (error->ranks > 1)
            diag_error(diagnostics, error->span, "rank %u (and %u more%s): %s", error->first_rank, error->ranks - 1,
                       error->values_differ ? ", with other values" : "", error->text);
        else
            diag_error(diagnostics, error->span, "rank %u: %s", error->first_rank, error->text);
        if (error->refuses)
            diag_refuses(diagnostics);
        for (const RankNote *note = error->notes; note; note = note->next)
            diag_note(diagnostics, note->span, "%s", note->text);
        if (error->help)
            diag_help(diagnostics, "%s", error->help);
    }
}
