#pragma once

/* Runs the front of the compiler on a text, for tests: from bytes to a Schedule, or to the compiler's messages. */

#include "compiler/order/cost_values.h"
#include "compiler/order/expand.h"
#include "compiler/order/order_auto.h"
#include "compiler/order/place.h"
#include "compiler/order/require.h"
#include "compiler/order/squeeze.h"
#include "compiler/prove/prove.h"
#include "compiler/tree/check.h"
#include "compiler/tree/parse.h"
#include "base/file.h"
#include "tests/test.h"

#include <stdlib.h>
#include <string.h>

typedef struct Front {
    Arena arena;
    Source source;
    Ast *ast; /* NULL if there is a syntax error */
    bool good;
    Schedule schedule;
    char *report; /* output of diag_print */
    size_t report_size;
} Front;

static inline bool front_squeeze(Front *front, const Parameters *parameters, Diagnostics *diagnostics)
{
    PassTable table;
    Timeline times;
    return prove_passes(&front->schedule, &front->arena, diagnostics, &table) &&
           timeline_run(&front->schedule, &table, &costs_unit, &front->arena, &times) &&
           squeeze(front->ast, parameters, &front->schedule, &table, &times, &front->arena, diagnostics);
}

static inline void front_run_bytes(Front *front, const char *path, const char *bytes, size_t size,
                                   const Parameters *parameters)
{
    static const Parameters none = {0};
    parameters = parameters ? parameters : &none;
    *front = (Front){.source = {.path = path, .text = bytes, .size = size}};
    source_lines(&front->source, &front->arena);
    Diagnostics *diagnostics = diag_new(&front->arena, &front->source);
    front->ast = parse(&front->source, &front->arena, diagnostics);
    Parameters known = *parameters;
    front->good = front->ast && check(front->ast, &front->arena, diagnostics) &&
                  place(front->ast, parameters, &front->arena, diagnostics, &front->schedule) &&
                  (!front->ast->cost || (cost_values(front->ast, &front->schedule, &costs_unit, diagnostics, &known) &&
                                         require_with_costs(front->ast, &known, &front->arena, diagnostics)));
    parameters = &known;
    front->good = front->good &&
                  (front->ast->order ? order_auto(front->ast, parameters, &costs_unit, NULL, &front->arena, diagnostics,
                                                  &front->schedule, &(SearchProgress){0}, &(MemoryLimits){0})
                                     : expand(front->ast, parameters, &front->arena, diagnostics, &front->schedule));
    if (front->good && front->ast->squeeze)
        front->good = front_squeeze(front, parameters, diagnostics);
    FILE *stream = open_memstream(&front->report, &front->report_size);
    diag_print(diagnostics, stream);
    fclose(stream);
    assert_int_equal(front->good, !diag_failed(diagnostics));
}

static inline void front_run(Front *front, const char *text)
{
    front_run_bytes(front, "t.dps", text, strlen(text), NULL);
}

static inline void front_run_file(Front *front, const char *path, const Parameters *parameters)
{
    Arena arena = {0};
    Error error;
    char *text;
    size_t size;
    assert_int_equal(file_read(path, &arena, &text, &size, &error), STATUS_OK);
    front_run_bytes(front, path, text, size, parameters);
    front->source.text = NULL; /* the local arena frees it; nothing after expand reads it */
    arena_free(&arena);
}

static inline void front_close(Front *front)
{
    free(front->report);
    arena_free(&front->arena);
}

/* Checks that the report of the text has these parts in this order; NULL ends the parts. */
static inline void assert_reports(const char *text, const char *const *parts)
{
    Front front;
    front_run(&front, text);
    assert_false(front.good);
    const char *rest = front.report;
    for (; *parts; parts++) {
        const char *found = strstr(rest, *parts);
        if (!found)
            fail_msg("expected\n%s\nin what is left of the report:\n%s\nwhole report:\n%s", *parts, rest, front.report);
        rest = found + strlen(*parts);
    }
    front_close(&front);
}

#define REPORTS(text, ...) assert_reports(text, (const char *const[]){__VA_ARGS__, NULL})

/* The head of a schedule of 2 ranks and 2 microbatches; `items` follow. */
#define TWO "schedule t; ranks P = 2; microbatches M = 2; pipe a: P stages, stage s on s, M microbatches;\n"
