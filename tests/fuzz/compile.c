/* The first door: any bytes as a schedule, .dps or .csv (by the first byte), through every pass. Either there is a diagnostic
   or a program that passes its verification; never a crash, a leak or a hang. */

#include "compiler/check.h"
#include "compiler/communicate.h"
#include "compiler/csv.h"
#include "compiler/expand.h"
#include "compiler/lower.h"
#include "compiler/parse.h"
#include "compiler/passes.h"
#include "compiler/place.h"
#include "compiler/prove.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { PASSES_MAX = 100000 }; /* larger schedules only cost the fuzzer's time */

static void demand(bool good, const char *what)
{
    if (good)
        return;
    fprintf(stderr, "%s\n", what);
    abort();
}

static bool read_schedule(const Source *source, Arena *arena, Diagnostics *diagnostics, Schedule *schedule)
{
    if (source->size && (isdigit((unsigned char)*source->text) || strchr("p(,", *source->text)))
        return csv_read(source, arena, diagnostics, schedule);
    const Parameters parameters = {0};
    const Ast *tree = parse(source, arena, diagnostics);
    if (!tree || !check((Ast *)(uintptr_t)tree, arena, diagnostics) || !place(tree, &parameters, arena, diagnostics, schedule))
        return false;
    if ((uint64_t)schedule->microbatches * schedule->pipes[0].stages > PASSES_MAX)
        return false;
    return expand(tree, &parameters, arena, diagnostics, schedule);
}

static void compile(const Source *source, Arena *arena, Diagnostics *diagnostics)
{
    Schedule schedule;
    PassTable table;
    Timeline timeline;
    if (!read_schedule(source, arena, diagnostics, &schedule) || !legal(&schedule, arena, diagnostics, &table))
        return;
    if (!timeline_run(&schedule, &table, &costs_unit, arena, &timeline)) {
        prove_report_circle(&schedule, &table, &timeline, arena, diagnostics);
        demand(diag_failed(diagnostics), "a circle without a diagnostic");
        return;
    }
    if (!schedule.has_messages)
        communicate(&schedule, &table, &timeline, arena);
    if (!prove_messages(&schedule, &table, arena, diagnostics))
        return;
    RankPlan *plans = arena_array(arena, schedule.ranks, sizeof *plans);
    for (uint32_t r = 0; r < schedule.ranks; r++)
        if (!plan_rank(&schedule, r, arena, diagnostics, &plans[r]))
            return;
    Error error = {""};
    const Program *program = lower(&schedule, plans, source, arena);
    demand(program_verify(program, &error) == STATUS_OK, error.text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    Arena arena = {0};
    Source source = {.path = "fuzz", .text = arena_text(&arena, (const char *)data, size), .size = size};
    source_lines(&source, &arena);
    Diagnostics *diagnostics = diag_new(&arena, &source);
    compile(&source, &arena, diagnostics);
    char *text = NULL;
    size_t length = 0;
    FILE *stream = open_memstream(&text, &length);
    if (stream) {
        diag_print(diagnostics, stream);
        fclose(stream);
    }
    free(text);
    arena_free(&arena);
    return 0;
}
