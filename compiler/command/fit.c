#include "compiler/command/fit.h"

#include "compiler/command/fit_system.h"
#include "compiler/compile.h"
#include "compiler/search/random.h"

#include "runtime/base/counted.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum { VARIABLES = 5, PIECES_MAX = 8, SIZES_MAX = 400, CHECKS = 24, LONGEST = 2000 };

typedef enum Quantity { MAKESPAN, BUBBLE, PEAK, QUANTITIES } Quantity;
static const char *const quantity_names[QUANTITIES] = {"makespan", "bubble", "peak"};

static const StageCost keys[] = {COST_F, COST_I, COST_W, COST_FB};
enum { MESSAGE = 4 }; /* the index of comm, after those of the keys */

/* A domain of costs. Its formulas are in a few variables; F, I, W, FB and comm are sums of these. */
typedef struct CostDomain {
    const char *text;
    struct {
        const char *name;
        int costs[VARIABLES]; /* how many times the variable is in F, I, W, FB, comm */
    } variables[VARIABLES];
    bool by_turns; /* FB is F+B */
    bool (*admits)(const int64_t *costs);
} CostDomain;

static bool all(const int64_t *c) { return c[0] > 0; }
static bool long_backward(const int64_t *c) { return c[1] + c[2] >= c[0]; }
static bool ordered(const int64_t *c) { return c[2] <= c[0] && c[0] <= c[1]; }
static bool short_messages(const int64_t *c) { return c[0] > 0 && 5 * c[4] <= c[0]; }
static bool short_weight(const int64_t *c) { return c[2] <= c[0]; }

/* Domains of costs, from the widest to the narrowest. */
static const CostDomain cost_domains[] = {
    {"comm <= F/5",
     {{"F", {1}}, {"I", {0, 1}}, {"W", {0, 0, 1}}, {"FB", {0, 0, 0, 1}}, {"comm", {0, 0, 0, 0, 1}}},
     false,
     short_messages},
    {"comm = 0", {{"F", {1}}, {"I", {0, 1}}, {"W", {0, 0, 1}}, {"FB", {0, 0, 0, 1}}}, false, all},
    {"comm = 0, B >= F", {{"F", {1}}, {"I", {0, 1}}, {"W", {0, 0, 1}}, {"FB", {0, 0, 0, 1}}}, false, long_backward},
    {"comm = 0, W <= F", {{"F", {1}}, {"I", {0, 1}}, {"W", {0, 0, 1}}, {"FB", {0, 0, 0, 1}}}, false, short_weight},
    {"comm = 0, W <= F <= I", {{"F", {1}}, {"I", {0, 1}}, {"W", {0, 0, 1}}, {"FB", {0, 0, 0, 1}}}, false, ordered},
    {"comm = 0, W <= F <= I, FB = F+B", {{"F", {1}}, {"I", {0, 1}}, {"W", {0, 0, 1}}}, true, ordered},
    {"comm = 0, I = F, W <= F", {{"F", {1, 1}}, {"W", {0, 0, 1}}, {"FB", {0, 0, 0, 1}}}, false, short_weight},
    {"comm = 0, I = F, W <= F, FB = F+B", {{"F", {1, 1}}, {"W", {0, 0, 1}}}, true, short_weight},
    {"comm = 0, B = F", {{"F/2", {2, 1, 1}}, {"FB", {0, 0, 0, 1}}}, false, all},
    {"comm = 0, F = I = W", {{"F", {1, 1, 1}}, {"FB", {0, 0, 0, 1}}}, false, all},
    {"comm = 0, F = I = W, FB = F+B", {{"F", {1, 1, 1}}}, true, all},
};

typedef struct SizeDomain {
    const char *text;
    int64_t times, less; /* M >= times*P - less */
    bool even, units;    /* P is even; P divides M */
    int64_t least;       /* smallest P */
} SizeDomain;

static const SizeDomain size_domains[] = {
    {"", 0, 0, false, false, 1},
    {"M >= P", 1, 0, false, false, 1},
    {"M >= 2P-1", 2, 1, false, false, 1},
    {"M >= 2P", 2, 0, false, false, 1},
    {"M >= 2P+2", 2, -2, false, false, 1},
    {"P divides M", 1, 0, false, true, 1},
    {"P >= 3, M >= 2P+2", 2, -2, false, false, 3},
    {"P even", 0, 0, true, false, 1},
    {"P even, M >= P", 1, 0, true, false, 1},
    {"P even, M >= 2P", 2, 0, true, false, 1},
    {"P even, P divides M", 1, 0, true, true, 1},
    {"P even, P >= 4, M >= 2P+2", 2, -2, true, false, 4},
    {"P even, P >= 4, P divides M", 1, 0, true, true, 4},
};

typedef struct Size {
    int64_t ranks, microbatches;
    bool other; /* fit_piece does not use it: it only checks formulas */
    Arena arena;
    Compilation c;
} Size;

typedef struct Piece {
    Polynomial of[VARIABLES];
} Piece;

typedef struct Fitter {
    const Options *options;
    const Source *source;
    Arena *arena;
    Size *sizes;
    uint32_t size_count;
    bool has_pairs, by_costs; /* by_costs: the order may depend on the costs */
    uint64_t seed;
    /* the formula that is being fitted */
    Quantity quantity;
    const CostDomain *costs;
    const SizeDomain *domain;
    int variables;
    Piece pieces[PIECES_MAX];
    int piece_count;
    uint64_t checked;
} Fitter;

/* --- points --- */

static bool inside(const SizeDomain *domain, const Size *size)
{
    return size->ranks >= domain->least && size->microbatches >= domain->times * size->ranks - domain->less &&
           (!domain->even || size->ranks % 2 == 0) && (!domain->units || size->microbatches % size->ranks == 0);
}

static void costs_of(const Fitter *f, const int64_t *values, int64_t costs[VARIABLES])
{
    memset(costs, 0, VARIABLES * sizeof *costs);
    for (int v = 0; v < f->variables; v++)
        for (int k = 0; k < VARIABLES; k++)
            costs[k] += values[v] * f->costs->variables[v].costs[k];
    if (f->costs->by_turns || !f->has_pairs)
        costs[3] = costs[0] + costs[1] + costs[2];
}

static Costs costs_at(const Fitter *f, const int64_t *values)
{
    int64_t costs[VARIABLES];
    Costs given = f->options->costs;
    costs_of(f, values, costs);
    for (int k = 0; k < MESSAGE; k++)
        given.all[keys[k]] = (double)costs[k];
    given.latency = (double)costs[MESSAGE];
    return given;
}

/* Compiles the size again under these costs if its order may depend on them. False: it does not compile. */
static bool take_order(const Fitter *f, Size *size, const int64_t *values)
{
    Error ignored;
    if (!f->by_costs)
        return true;
    const Costs given = costs_at(f, values);
    arena_free(&size->arena);
    Parameters *parameters = arena_allocate(&size->arena, sizeof *parameters);
    *parameters = f->options->parameters;
    parameters_set_ranks(parameters, size->ranks);
    parameters_set_microbatches(parameters, size->microbatches);
    size->c = (Compilation){.arena = &size->arena, .source = f->source, .parameters = parameters, .costs = &given};
    const bool good = compile(&size->c, &ignored) == STATUS_OK;
    size->c.costs = NULL;
    return good;
}

/* The quantity of the size's order, times the number of ranks: a whole number. */
static int64_t value_at(const Fitter *f, const Size *size, const int64_t *values)
{
    Timeline times;
    const Costs given = costs_at(f, values);
    const Schedule *schedule = &size->c.schedule;
    Arena *scratch = arena_scratch(f->arena);
    const Costs costs = costs_resolve(&given, schedule->pipes[0].stages, schedule->recipe, scratch);
    timeline_run(schedule, &size->c.table, &costs, scratch, &times);
    const Bubble bubble = timeline_bubble(schedule, &times);
    const double quantity = f->quantity == MAKESPAN ? times.makespan : bubble.cost - bubble.work;
    arena_free(scratch);
    return llround(quantity * (double)size->ranks);
}

static int64_t peak_at(const Size *size)
{
    uint32_t peak = 0;
    for (uint32_t r = 0; r < size->c.schedule.ranks; r++)
        peak = size->c.program->ranks[r].peak_activations > peak ? size->c.program->ranks[r].peak_activations : peak;
    return peak * size->ranks;
}

/* Draws values of the variables at random. The domain admits their costs, and an F&B takes at least its longer half and
   at most both halves. */
static void random_values(Fitter *f, int64_t values[VARIABLES])
{
    int64_t costs[VARIABLES];
    do {
        for (int v = 0; v < f->variables; v++)
            values[v] = 1 + random_of(&f->seed, f->costs->variables[v].costs[MESSAGE] ? LONGEST / 20 : LONGEST);
        costs_of(f, values, costs);
    } while (!f->costs->admits(costs) || costs[3] > costs[0] + costs[1] + costs[2] || costs[3] < costs[0] ||
             costs[3] < costs[1] + costs[2]);
}

/* --- pieces --- */

/* Finds the linear form that the quantity has near these costs. False: it is not linear there, or a coefficient is not
   a polynomial. */
static bool fit_piece(Fitter *f, const int64_t *values, Piece *piece)
{
    FitSystem systems[VARIABLES] = {{.points = 0}};
    for (uint32_t i = 0; i < f->size_count; i++) {
        Size *size = &f->sizes[i];
        if (size->other || !inside(f->domain, size))
            continue;
        if (!take_order(f, size, values))
            return false;
        const int64_t here = value_at(f, size, values);
        int64_t sum = 0;
        for (int v = 0; v < f->variables; v++) {
            int64_t moved[VARIABLES];
            memcpy(moved, values, sizeof moved);
            moved[v]++;
            const int64_t slope = value_at(f, size, moved) - here;
            sum += slope * values[v];
            if (!fit_point(&systems[v], size->ranks, size->microbatches, slope))
                return false;
        }
        if (sum != here)
            return false;
    }
    for (int v = 0; v < f->variables; v++)
        if (!fit_solve(&systems[v], &piece->of[v]))
            return false;
    return true;
}

static double formula_at(const Fitter *f, const Size *size, const int64_t *values)
{
    double most = -INFINITY;
    for (int p = 0; p < f->piece_count; p++) {
        double sum = 0;
        for (int v = 0; v < f->variables; v++)
            sum += polynomial_at(&f->pieces[p].of[v], size->ranks, size->microbatches) * (double)values[v];
        most = fmax(most, sum);
    }
    return most;
}

/* Checks the maximum of the pieces at all sizes and at new random costs. False: it is wrong at the costs `values`. */
static bool holds(Fitter *f, int64_t values[VARIABLES])
{
    f->checked = 0;
    for (int check = 0; check < CHECKS; check++) {
        random_values(f, values);
        for (uint32_t i = 0; i < f->size_count; i++) {
            Size *size = &f->sizes[i];
            if (!inside(f->domain, size))
                continue;
            if (!take_order(f, size, values))
                return false;
            const double value = (double)value_at(f, size, values) / (double)size->ranks;
            if (fabs(formula_at(f, size, values) - value) > 1e-6 * (1 + value))
                return false;
            f->checked++;
        }
    }
    return f->checked > 0;
}

static bool same_piece(const Fitter *f, const Piece *a, const Piece *b)
{
    for (int v = 0; v < f->variables; v++)
        if (memcmp(&a->of[v], &b->of[v], sizeof a->of[v]) != 0)
            return false;
    return true;
}

/* Adds pieces until their maximum passes the check. */
static bool fit_formula(Fitter *f)
{
    int64_t values[VARIABLES];
    f->piece_count = 0;
    random_values(f, values);
    while (f->piece_count < PIECES_MAX) {
        Piece *piece = &f->pieces[f->piece_count];
        if (!fit_piece(f, values, piece))
            return false;
        for (int p = 0; p < f->piece_count; p++)
            if (same_piece(f, &f->pieces[p], piece))
                return false;
        f->piece_count++;
        if (holds(f, values))
            return true;
    }
    return false;
}

static bool fit_peak(Fitter *f)
{
    FitSystem system = {.points = 0};
    f->checked = 0;
    if (f->by_costs) /* the order, and the peak with it, may change with the costs: no formula in the sizes alone */
        return false;
    for (uint32_t i = 0; i < f->size_count; i++) {
        const Size *size = &f->sizes[i];
        if (!inside(f->domain, size))
            continue;
        if (!fit_point(&system, size->ranks, size->microbatches, peak_at(size)))
            return false;
        f->checked += size->other;
    }
    return f->checked > 0 && fit_solve(&system, &f->pieces[0].of[0]);
}

/* --- output --- */

/* Writes the variables from `first` on whose coefficients are whole multiples of that of `first`, such as "F+I-W", and
   marks them in `written`. I and W with equal coefficients become B. */
static const char *group_text(const Fitter *f, const Piece *piece, int first, bool *written)
{
    const char *text = "";
    int count = 0;
    for (int v = first; v < f->variables; v++) {
        const Fraction ratio = polynomial_ratio(&piece->of[v], &piece->of[first]);
        if (written[v] || ratio.above == 0 || ratio.below != 1)
            continue;
        const int64_t times = ratio.above < 0 ? -ratio.above : ratio.above;
        const bool backward = strcmp(f->costs->variables[v].name, "I") == 0 && v + 1 < f->variables &&
                              memcmp(&piece->of[v], &piece->of[v + 1], sizeof piece->of[v]) == 0;
        const char *sign = ratio.above < 0 ? "-" : *text ? "+" : "";
        const char *name = backward ? "B" : f->costs->variables[v].name;
        text = times == 1 ? arena_format(f->arena, "%s%s%s", text, sign, name)
                          : arena_format(f->arena, "%s%s%" PRId64 "%s", text, sign, times, name);
        written[v] = true;
        written[v + 1 < f->variables ? v + 1 : v] |= backward;
        count++;
    }
    const bool alone = count == 1 || !*polynomial_text(&piece->of[first], true, f->arena);
    return alone ? text : arena_format(f->arena, "(%s)", text);
}

static const char *piece_text(const Fitter *f, const Piece *piece)
{
    bool written[VARIABLES] = {false};
    const char *text = "";
    for (int v = 0; v < f->variables; v++) {
        if (written[v] || polynomial_is_zero(&piece->of[v]))
            continue;
        const char *const factor = polynomial_text(&piece->of[v], true, f->arena);
        const char *const group = group_text(f, piece, v, written);
        const char *const blank = strchr("0123456789P", *group) ? " " : "";
        const bool subtracts = *text && *factor == '-';
        text = arena_format(f->arena, "%s%s%s%s%s", text,
                            subtracts ? " - "
                            : *text   ? " + "
                                      : "",
                            factor + subtracts, *factor ? blank : "", group);
    }
    return *text ? text : "0";
}

static void print_formula(const Fitter *f, FILE *stream)
{
    const char *text = "";
    for (int p = 0; p < f->piece_count; p++)
        text = arena_format(f->arena, "%s%s%s", text, p ? ", " : "", piece_text(f, &f->pieces[p]));
    if (f->piece_count > 1)
        text = arena_format(f->arena, "max(%s)", text);
    if (f->quantity == PEAK)
        text = polynomial_text(&f->pieces[0].of[0], false, f->arena);
    const char *const costs = f->quantity == PEAK ? "" : f->costs->text, *const sizes = f->domain->text;
    fprintf(stream, "%-8s  %s\n          %s%s%s; checked at %" PRIu64 " points\n", quantity_names[f->quantity], text,
            *costs || *sizes ? "where " : "for all sizes tried", costs,
            *costs && *sizes ? arena_format(f->arena, ", %s", sizes) : sizes, f->checked);
}

/* --- all of it --- */

static void take_domain(Fitter *f, const CostDomain *costs)
{
    f->costs = costs;
    f->variables = 0;
    while (f->variables < VARIABLES && costs->variables[f->variables].name)
        f->variables++;
}

/* Prints a formula for the widest domain of costs that has one, then those of narrower domains of costs that hold for
   more sizes. */
static void fit_quantity(Fitter *f, FILE *stream)
{
    const size_t cost_count = f->quantity == PEAK ? 1 : sizeof cost_domains / sizeof *cost_domains;
    size_t size_count = sizeof size_domains / sizeof *size_domains;
    const size_t all_sizes = size_count;
    for (size_t c = 0; c < cost_count; c++) {
        take_domain(f, &cost_domains[c]);
        for (size_t s = 0; s < size_count && (f->has_pairs || !f->costs->by_turns); s++) {
            f->domain = &size_domains[s];
            f->seed = 1;
            if (f->quantity == PEAK ? fit_peak(f) : fit_formula(f)) {
                print_formula(f, stream);
                size_count = s;
            }
        }
    }
    if (size_count == all_sizes)
        fprintf(stream, "%-8s  no formula found\n", quantity_names[f->quantity]);
}

/* Adds a size if the file admits it. */
static void add_size(Fitter *f, int64_t ranks, int64_t microbatches, bool other)
{
    Error ignored;
    if (f->size_count == SIZES_MAX)
        return;
    Size *size = &f->sizes[f->size_count];
    *size =
        (Size){.ranks = ranks, .microbatches = microbatches, .other = other, .arena.exhausted = f->arena->exhausted};
    Parameters *parameters = arena_allocate(&size->arena, sizeof *parameters);
    *parameters = f->options->parameters;
    parameters_set_ranks(parameters, ranks);
    parameters_set_microbatches(parameters, microbatches);
    size->c = (Compilation){
        .arena = &size->arena, .source = f->source, .parameters = parameters, .costs = &f->options->costs};
    if (compile(&size->c, &ignored) == STATUS_OK) {
        f->has_pairs |= (schedule_costs_used(&size->c.schedule) & 1u << COST_FB) != 0;
        f->size_count++;
    } else {
        arena_free(&size->arena);
    }
}

static void add_sizes(Fitter *f)
{
    static const int64_t ranks[] = {2, 3, 4, 5, 6, 8, 10};
    for (size_t i = 0; i < sizeof ranks / sizeof *ranks; i++)
        for (int64_t m = ranks[i] > 6 ? 2 : 1; m <= 3 * ranks[i] + 2; m += ranks[i] > 6 ? 2 : 1)
            add_size(f, ranks[i], m, false);
    for (int64_t p = 7; p <= 12; p += 5)
        for (int64_t m = p - 1; m <= 3 * p; m += p / 2)
            add_size(f, p, m, true);
    for (int64_t m = 12; m <= 48; m += 12)
        add_size(f, 12, m, true);
}

static void print_sizes(const Fitter *f, const char *name, FILE *stream)
{
    int64_t ranks[] = {INT64_MAX, 0}, microbatches[] = {INT64_MAX, 0}; /* least and most */
    for (uint32_t i = 0; i < f->size_count; i++) {
        const Size *size = &f->sizes[i];
        ranks[0] = size->ranks < ranks[0] ? size->ranks : ranks[0];
        ranks[1] = size->ranks > ranks[1] ? size->ranks : ranks[1];
        microbatches[0] = size->microbatches < microbatches[0] ? size->microbatches : microbatches[0];
        microbatches[1] = size->microbatches > microbatches[1] ? size->microbatches : microbatches[1];
    }
    fprintf(stream, "%s: for P ranks and M microbatches", name);
    if (f->size_count)
        fprintf(stream, "; tried at %s, P = %" PRId64 "..%" PRId64 ", M = %" PRId64 "..%" PRId64,
                counted(f->size_count, "size").text, ranks[0], ranks[1], microbatches[0], microbatches[1]);
    putc('\n', stream);
}

Status fit(const Options *options, Arena *arena, Diagnostics **diagnostics, FILE *stream, Error *error)
{
    Source *source = arena_allocate(arena, sizeof *source);
    TRY(source_read(options->input, arena, source, error));
    if (source_is_order(source))
        return error_set(error, STATUS_BAD_USAGE, "%s is an order of one size; fit takes a .dps file", source->path);
    Compilation own = {.arena = arena, .source = source, .parameters = &options->parameters, .costs = &options->costs};
    const Status status = compile(&own, error);
    *diagnostics = own.diagnostics;
    if (status != STATUS_OK)
        return status;
    if (own.tree->order)
        return error_set(error, STATUS_BAD_USAGE,
                         "%s searches its order, so it has no formula; fit takes files with steps", source->path);
    Fitter f = {.options = options, .source = source, .arena = arena};
    f.sizes = arena_array(arena, SIZES_MAX, sizeof *f.sizes);
    f.by_costs = own.tree->cost != NULL;
    add_sizes(&f);
    print_sizes(&f, own.schedule.name, stream);
    for (f.quantity = 0; f.quantity < QUANTITIES; f.quantity++)
        fit_quantity(&f, stream);
    for (uint32_t i = 0; i < f.size_count; i++)
        arena_free(&f.sizes[i].arena);
    return STATUS_OK;
}
