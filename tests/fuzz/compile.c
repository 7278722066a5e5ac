/* Fuzz target of the compiler: any bytes as a schedule, .dps or .csv (chosen by the first byte), through every compiler
   pass. The result is a diagnostic or a program that passes its verification; never a crash, a leak or a hang.
   Formatting does not change the meaning. */

#include "compiler/command/format.h"
#include "compiler/compile.h"
#include "compiler/tree/parse.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* larger schedules only take time; `order auto` of schedules of more than SEARCHED_MAX ends at once */
enum { PASSES_MAX = 100000, SEARCHED_MAX = 200, TRIED = 30 };

static void demand(bool good, const char *what)
{
    if (good)
        return;
    fprintf(stderr, "%s\n", what);
    abort();
}

static Status stop_large(const Compilation *c, Form form)
{
    const uint64_t passes =
        form == FORM_SCHEDULE ? (uint64_t)c->schedule.microbatches * c->schedule.pipes[0].stages : 0;
    if (passes > SEARCHED_MAX)
        *(atomic_int *)c->context = 1;
    return passes > PASSES_MAX ? STATUS_RUN_FAILED : STATUS_OK;
}

/* Ends a search with F&Bs at its first report, which comes after 1024 orders, and one without after TRIED orders. */
static void stop_soon(void *stop, const SearchProgress *progress)
{
    if (progress->overlap || progress->tried >= TRIED)
        *(atomic_int *)stop = 1;
}

/* Checks that formatting a source changes no token, and that formatting the result changes nothing. */
static void check_format(const Source *source, Arena *arena)
{
    Source formatted = {.path = "formatted", .text = source->text, .size = source->size}, again = formatted;
    Diagnostics *diagnostics = diag_new(arena, source);
    formatted.text = format_source(source, arena, diagnostics, &formatted.size);
    demand(formatted.text, "what was parsed cannot be formatted");
    source_lines(&formatted, arena);
    uint32_t count, formatted_count;
    const Token *tokens = read_tokens(source, arena, &count), *kept = read_tokens(&formatted, arena, &formatted_count);
    demand(count == formatted_count, "formatting changes the number of tokens");
    for (uint32_t i = 0; i < count; i++) {
        const Span old = tokens[i].span, new = kept[i].span;
        demand(tokens[i].kind == kept[i].kind &&
                   old.end - old.begin ==
                       new.end - new.begin &&memcmp(source->text + old.begin, formatted.text + new.begin,
                                                    old.end - old.begin) ==
                       0,
               "formatting changes a token");
    }
    again.text = format_source(&formatted, arena, diagnostics, &again.size);
    demand(again.text && again.size == formatted.size && memcmp(again.text, formatted.text, again.size) == 0,
           "formatting twice is not the same as once");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    Arena arena = {0};
    const bool is_order = size && (isdigit(*data) || strchr("p(,", *data));
    Source source = {
        .path = is_order ? "fuzz.csv" : "fuzz.dps", .text = arena_text(&arena, (const char *)data, size), .size = size};
    source_lines(&source, &arena);
    atomic_int stop = 0;
    const Parameters parameters = {0};
    /* `overlap F&B auto` needs times of components: the costs of components are given for sources with an odd number of
       bytes; the others test the error without them. */
    Costs costs = costs_unit;
    costs.parts[RECIPE_ATTENTION][RECIPE_F] = costs.parts[RECIPE_MLP][RECIPE_B] = 3;
    costs.parts[RECIPE_DISPATCH][RECIPE_F] = costs.parts[RECIPE_COMBINE][RECIPE_B] = 2;
    Compilation compilation = {.arena = &arena,
                               .source = &source,
                               .parameters = &parameters,
                               .costs = size % 2 ? &costs : NULL,
                               .reached = stop_large,
                               .search = &(const SearchControl){&stop, stop_soon, &stop},
                               .context = &stop};
    Error error = {""};
    const Status status = compile(&compilation, &error);
    demand(!*error.text, error.text);
    demand(status != STATUS_BAD_INPUT || diag_failed(compilation.diagnostics), "refused without a diagnostic");
    demand(status != STATUS_OK || !diag_failed(compilation.diagnostics), "a diagnostic, but not refused");
    if (compilation.tree)
        check_format(&source, &arena);
    char *text = NULL;
    size_t length = 0;
    FILE *stream = open_memstream(&text, &length);
    if (stream) {
        diag_print(compilation.diagnostics, stream);
        fclose(stream);
    }
    free(text);
    arena_free(&arena);
    return 0;
}
