#pragma once

/* Compiles schedule files; random numbers, the same in every run. */

#include "compiler/compile.h"
#include "tests/test.h"

static inline uint64_t random_below(uint64_t *state, uint64_t below)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (*state >> 33) % below;
}

/* False: the schedule does not admit these sizes. The arena owns the result. `costs`: NULL for the default ones. */
static inline bool compiled_for(const char *path, int64_t ranks, int64_t microbatches, const Costs *costs, Arena *arena,
                                Compilation *c)
{
    Source *source = arena_allocate(arena, sizeof *source);
    Parameters *parameters = arena_allocate(arena, sizeof *parameters);
    Error error = {""};
    parameters_set_ranks(parameters, ranks);
    parameters_set_microbatches(parameters, microbatches);
    *c = (Compilation){.arena = arena, .source = source, .parameters = parameters, .costs = costs};
    assert_int_equal(source_read(path, arena, source, &error), STATUS_OK);
    return compile(c, &error) == STATUS_OK;
}

static inline bool compiled(const char *path, int64_t ranks, int64_t microbatches, Arena *arena, Compilation *c)
{
    return compiled_for(path, ranks, microbatches, NULL, arena, c);
}
