#include "study/trials/fit_sizes.h"

#include "base/counted.h"

#include <inttypes.h>

enum { SIZES_MAX = 400 };

/* Ends each search of `order auto` after its first orders. If the best of them is as short as the search's bound, a
   longer search would return the same one. */
static const atomic_int stop = 1;
static const SearchControl first_orders = {.stop = &stop};

static Status stop_before_lowering(const Compilation *c, Form form)
{
    (void)c;
    return form == FORM_COMMS ? STATUS_RUN_FAILED : STATUS_OK;
}

bool fit_size_at_bound(const FitSize *size)
{
    return !size->c.tree->order || size->c.found.cost <= size->c.found.bound * (1 + 1e-9);
}

bool fit_size_compile(const FitSizes *sizes, FitSize *size, const Costs *costs, bool lowered)
{
    Error ignored;
    arena_free(&size->arena);
    Parameters *parameters = arena_allocate(&size->arena, sizeof *parameters);
    *parameters = sizes->options->parameters;
    parameters_set_ranks(parameters, size->ranks);
    parameters_set_microbatches(parameters, size->microbatches);
    size->lowered = lowered;
    size->c = (Compilation){.arena = &size->arena,
                            .source = sizes->source,
                            .parameters = parameters,
                            .costs = costs,
                            .search = &first_orders,
                            .reached = lowered ? NULL : stop_before_lowering};
    const Status status = compile(&size->c, &ignored);
    size->c.costs = NULL;
    return status == (lowered ? STATUS_OK : STATUS_RUN_FAILED);
}

/* Compiles the file with a size, and adds the size if this succeeds and there is room for it. */
static void add_size(FitSizes *sizes, Arena *arena, int64_t ranks, int64_t microbatches, bool other)
{
    if (sizes->count == SIZES_MAX)
        return;
    FitSize *size = &sizes->all[sizes->count];
    *size =
        (FitSize){.ranks = ranks, .microbatches = microbatches, .other = other, .arena.exhausted = arena->exhausted};
    if (fit_size_compile(sizes, size, &sizes->options->costs, true)) {
        sizes->has_pairs |= (schedule_costs_used(&size->c.schedule) & 1u << COST_FB) != 0;
        sizes->count++;
    } else {
        arena_free(&size->arena);
    }
}

void fit_sizes_compile(FitSizes *sizes, Arena *arena)
{
    static const int64_t ranks[] = {2, 3, 4, 5, 6, 8, 10};
    sizes->all = arena_array(arena, SIZES_MAX, sizeof *sizes->all);
    for (size_t i = 0; i < sizeof ranks / sizeof *ranks; i++)
        for (int64_t m = ranks[i] > 6 ? 2 : 1; m <= 3 * ranks[i] + 2; m += ranks[i] > 6 ? 2 : 1)
            add_size(sizes, arena, ranks[i], m, false);
    static const int64_t others[] = {7, 9, 11, 12};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        for (int64_t p = others[i], m = p - 1; m <= 3 * p; m += p / 2)
            add_size(sizes, arena, p, m, true);
    for (int64_t m = 12; m <= 48; m += 12)
        add_size(sizes, arena, 12, m, true);
}

void fit_sizes_print(const FitSizes *sizes, const char *name, FILE *stream)
{
    /* [0]: the smallest number in all sizes; [1]: the largest number */
    int64_t ranks[] = {INT64_MAX, 0}, microbatches[] = {INT64_MAX, 0};
    for (uint32_t i = 0; i < sizes->count; i++) {
        const FitSize *size = &sizes->all[i];
        ranks[0] = size->ranks < ranks[0] ? size->ranks : ranks[0];
        ranks[1] = size->ranks > ranks[1] ? size->ranks : ranks[1];
        microbatches[0] = size->microbatches < microbatches[0] ? size->microbatches : microbatches[0];
        microbatches[1] = size->microbatches > microbatches[1] ? size->microbatches : microbatches[1];
    }
    fprintf(stream, "%s: for P ranks and M microbatches", name);
    if (sizes->count)
        fprintf(stream, "; tried at %s, P = %" PRId64 "..%" PRId64 ", M = %" PRId64 "..%" PRId64,
                counted(sizes->count, "size").text, ranks[0], ranks[1], microbatches[0], microbatches[1]);
    else
        fputs("; it does not compile at any size that fit tries (2 to 12 ranks)", stream);
    if (sizes->count && sizes->all[0].c.tree->order)
        fprintf(stream, "; the order is searched: formulas hold where its makespan is the lower bound of the search");
    putc('\n', stream);
}

void fit_sizes_free(FitSizes *sizes)
{
    for (uint32_t i = 0; i < sizes->count; i++)
        arena_free(&sizes->all[i].arena);
}
