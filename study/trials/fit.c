#include "study/trials/fit.h"

#include "study/trials/fit_sizes.h"
#include "study/trials/fit_text.h"
#include "compiler/search/random.h"
#include "base/counted.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum { PIECES_MAX = 8, CHECKS = 24, ENDS = 3, FEW = 5, PEAK_DRAWS = 6, LONGEST = 2000 };

typedef enum Quantity { MAKESPAN, BUBBLE, PEAK, QUANTITIES } Quantity;
static const char *const quantity_names[QUANTITIES] = {"makespan", "bubble", "peak"};

static const StageCost keys[] = {COST_F, COST_I, COST_W, COST_FB};
enum { MESSAGE = 4 }; /* index of comm in arrays of FIT_COSTS; before it come the costs that `keys` lists */

typedef struct Fitter {
    Arena *arena;
    FitSizes sizes;
    bool by_costs; /* the order may depend on the costs */
    bool searched; /* the file has `order auto` */
    uint64_t seed;
    /* the following fields describe the formula that is being fitted */
    Quantity quantity;
    const CostDomain *costs;
    const SizeDomain *domain;
    int64_t rest; /* the class of sizes that is being fitted: those with P % domain->modulus == rest */
    int variables;
    Piece pieces[PIECES_MAX];
    int piece_count;
    uint64_t checked;
} Fitter;

/* --- points --- */

static bool inside(const Fitter *f, const FitSize *size)
{
    return size_domain_has(f->domain, f->rest, size->ranks, size->microbatches);
}

static void costs_of(const Fitter *f, const int64_t *values, int64_t costs[FIT_VARIABLES])
{
    memset(costs, 0, FIT_VARIABLES * sizeof *costs);
    for (int v = 0; v < f->variables; v++)
        for (int k = 0; k < FIT_VARIABLES; k++)
            costs[k] += values[v] * f->costs->variables[v].costs[k];
    if (f->costs->pairs == PAIRS_IN_TURN || !f->sizes.has_pairs)
        costs[3] = costs[0] + costs[1] + costs[2];
}

static Costs costs_at(const Fitter *f, const int64_t *values)
{
    int64_t costs[FIT_VARIABLES];
    Costs given = f->sizes.options->costs;
    costs_of(f, values, costs);
    for (int k = 0; k < MESSAGE; k++)
        given.all[keys[k]] = (double)costs[k];
    given.latency = (double)costs[MESSAGE];
    return given;
}

/* Makes sure that the size has the order that dpc gives it under the costs at `values`: if orders may depend on costs,
   compiles the size again, unless it was last compiled under these costs. A compilation ends at the messages, which
   suffice for times; for a peak it goes on to the program. False: the size does not compile, or its order was searched
   and takes longer than the search's lower bound of the makespan. */
static bool take_order(const Fitter *f, FitSize *size, const int64_t *values)
{
    int64_t costs[FIT_COSTS];
    const bool lowered = f->quantity == PEAK;
    if (!f->by_costs)
        return true;
    costs_of(f, values, costs);
    if (memcmp(size->costs, costs, sizeof costs) == 0 && size->lowered >= lowered)
        return true;
    const Costs given = costs_at(f, values);
    const bool compiled = fit_size_compile(&f->sizes, size, &given, lowered) && fit_size_at_bound(size);
    memcpy(size->costs, costs, sizeof costs);
    size->costs[0] = compiled ? costs[0] : 0;
    return compiled;
}

/* The makespan or bubble of the size's order, times the number of ranks, which makes it a whole number. `values`: the
   values of the variables, from which the costs follow. */
static int64_t value_at(const Fitter *f, const FitSize *size, const int64_t *values)
{
    Timeline times;
    const Costs given = costs_at(f, values);
    const Schedule *schedule = &size->c.schedule;
    Arena *scratch = arena_scratch(f->arena);
    const Costs costs = costs_resolve(&given, schedule->pipes[0].stages, &schedule->recipes, scratch);
    timeline_run(schedule, &size->c.table, &costs, scratch, &times);
    const Bubble bubble = timeline_bubble(schedule, &times);
    const double quantity = f->quantity == MAKESPAN ? times.makespan : bubble.cost - bubble.work;
    arena_free(scratch);
    return llround(quantity * (double)size->ranks);
}

static int64_t peak_at(const FitSize *size)
{
    uint32_t peak = 0;
    for (uint32_t r = 0; r < size->c.schedule.ranks; r++)
        peak = size->c.program->ranks[r].peak_activations > peak ? size->c.program->ranks[r].peak_activations : peak;
    return peak * size->ranks;
}

static bool admits(const Fitter *f, const int64_t *costs)
{
    const int64_t backward = costs[1] + costs[2], together = costs[0] + backward;
    const int64_t longer = costs[0] > backward ? costs[0] : backward;
    if (f->costs->pairs == PAIRS_BETWEEN && (costs[3] == longer || costs[3] == together))
        return false;
    return f->costs->admits(costs) && costs[3] >= longer && costs[3] <= together;
}

/* The value of the variable of cost `key` at an end of a domain: 0 or a value at which two times are equal. `costs`:
   the costs that follow from the other variables; end: 0..ENDS-1. */
static int64_t end_of(int key, uint32_t end, const int64_t *costs)
{
    const int64_t forward = costs[0], backward = costs[1] + costs[2];
    const int64_t longer = forward > backward ? forward : backward, shorter = forward + backward - longer;
    const int64_t ends[FIT_COSTS][ENDS] = {[1] = {0, forward, forward > costs[2] ? forward - costs[2] : 0},
                                           [2] = {0, forward, forward > costs[1] ? forward - costs[1] : 0},
                                           [3] = {forward + backward, longer, longer + 1},
                                           [4] = {0, forward / 5, shorter / 5}};
    return ends[key][end];
}

/* Draws values of the variables. Digit v of `ends`, a number with base ENDS + 1, is for variable v + 1: 0: a random
   value, else end_of with the digit - 1. Variable 0 is random. False: the costs that follow from the values are not in
   the domain, or an F&B takes less time than its longer half or more than both halves together. */
static bool draw_values(Fitter *f, uint32_t ends, int64_t values[FIT_VARIABLES])
{
    int64_t costs[FIT_VARIABLES];
    memset(values, 0, FIT_VARIABLES * sizeof *values);
    for (int v = 0; v < f->variables; v++) {
        const int *all = f->costs->variables[v].costs;
        const uint32_t digit = v ? ends % (ENDS + 1) : 0;
        int key = 0;
        while (!all[key])
            key++;
        costs_of(f, values, costs);
        values[v] =
            digit ? end_of(key, digit - 1, costs) : 1 + random_of(&f->seed, all[MESSAGE] ? LONGEST / 20 : LONGEST);
        ends /= v ? ENDS + 1 : 1;
    }
    costs_of(f, values, costs);
    return admits(f, costs);
}

static void random_values(Fitter *f, int64_t values[FIT_VARIABLES])
{
    while (!draw_values(f, 0, values))
        ;
}

/* --- pieces --- */

/* Finds the linear form in the variables that equals the quantity near `values`, the values of the variables. False:
   the quantity is not linear there, some coefficient is not a polynomial in P and M, there are too few sizes, or
   take_order fails. */
static bool fit_piece(Fitter *f, const int64_t *values, Piece *piece)
{
    FitSystem systems[FIT_VARIABLES] = {{.points = 0}};
    for (uint32_t i = 0; i < f->sizes.count; i++) {
        FitSize *size = &f->sizes.all[i];
        if (size->other || !inside(f, size))
            continue;
        if (!take_order(f, size, values))
            return false;
        const int64_t here = value_at(f, size, values);
        int64_t sum = 0;
        for (int v = 0; v < f->variables; v++) {
            int64_t moved[FIT_VARIABLES];
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

static double formula_at(const Fitter *f, const FitSize *size, const int64_t *values)
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

/* Whether the maximum of the pieces equals the quantity at all sizes of the domain under the costs at `values`, with
   `few` at those to which formulas are fitted and which have at most FEW ranks. False also if take_order fails. */
static bool holds_at(Fitter *f, bool few, const int64_t *values)
{
    for (uint32_t i = 0; i < f->sizes.count; i++) {
        FitSize *size = &f->sizes.all[i];
        if (!inside(f, size) || (few && (size->other || size->ranks > FEW)))
            continue;
        if (!take_order(f, size, values))
            return false;
        const double value = (double)value_at(f, size, values) / (double)size->ranks;
        if (fabs(formula_at(f, size, values) - value) > 1e-6 * (1 + value))
            return false;
        f->checked++;
    }
    return true;
}

/* Checks the maximum of the pieces under CHECKS random costs. False: at `values`, which the function sets, it does not
   hold; or the domain has no size. */
static bool holds(Fitter *f, int64_t values[FIT_VARIABLES])
{
    f->checked = 0;
    for (int check = 0; check < CHECKS; check++) {
        random_values(f, values);
        if (!holds_at(f, false, values))
            return false;
    }
    return f->checked > 0;
}

/* Checks the maximum of the pieces at the ends of the domain: with each variable but the first at each of its ends and
   at a random value, in every combination that the domain admits. */
static bool holds_at_ends(Fitter *f)
{
    int64_t values[FIT_VARIABLES];
    uint32_t combinations = 1;
    for (int v = 1; v < f->variables; v++)
        combinations *= ENDS + 1;
    for (uint32_t ends = 1; ends < combinations; ends++)
        if (draw_values(f, ends, values) && !holds_at(f, true, values))
            return false;
    return true;
}

static bool same_piece(const Fitter *f, const Piece *a, const Piece *b)
{
    for (int v = 0; v < f->variables; v++)
        if (memcmp(&a->of[v], &b->of[v], sizeof a->of[v]) != 0)
            return false;
    return true;
}

/* Adds pieces until their maximum passes the check within the domain (holds). False: some piece cannot be fitted, a
   piece would be added twice, PIECES_MAX pieces do not pass the check, or they do not pass it at the domain's ends. */
static bool fit_formula(Fitter *f)
{
    int64_t values[FIT_VARIABLES];
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
            return holds_at_ends(f);
    }
    return false;
}

/* Fits a polynomial in P and M to the peaks (most saved activations on a rank) of all sizes of the domain. If orders
   may depend on costs, the peaks must be the same under several random costs. */
static bool fit_peak(Fitter *f)
{
    FitSystem system = {.points = 0};
    int64_t values[FIT_VARIABLES];
    f->checked = 0;
    for (int draw = 0; draw < (f->by_costs ? PEAK_DRAWS : 1); draw++) {
        random_values(f, values);
        for (uint32_t i = 0; i < f->sizes.count; i++) {
            FitSize *size = &f->sizes.all[i];
            if (!inside(f, size))
                continue;
            if (!take_order(f, size, values) || !fit_point(&system, size->ranks, size->microbatches, peak_at(size)))
                return false;
            f->checked += size->other;
        }
    }
    return f->checked > 0 && fit_solve(&system, &f->pieces[0].of[0]);
}

/* --- output --- */

static void print_formula(const Fitter *f, FILE *stream)
{
    const char *text = "";
    for (int p = 0; p < f->piece_count; p++)
        text = arena_format(f->arena, "%s%s%s", text, p ? ", " : "",
                            piece_text(&f->pieces[p], f->costs, f->variables, f->arena));
    if (f->piece_count > 1)
        text = arena_format(f->arena, "max(%s)", text);
    if (f->quantity == PEAK)
        text = polynomial_product_text(&f->pieces[0].of[0], "", f->arena);
    const char *const costs = f->quantity == PEAK && !f->by_costs ? "" : f->costs->text;
    const char *const sizes = size_domain_text(f->domain, f->rest, f->arena);
    fprintf(stream, "%-8s  %s\n          %s%s%s; checked at %s\n", quantity_names[f->quantity], text,
            *costs || *sizes ? "where " : "for all sizes tried", costs,
            *costs && *sizes ? arena_format(f->arena, ", %s", sizes) : sizes, counted(f->checked, "point").text);
}

/* --- all formulas --- */

static void take_domain(Fitter *f, const CostDomain *costs)
{
    f->costs = costs;
    f->variables = 0;
    while (f->variables < FIT_VARIABLES && costs->variables[f->variables].name)
        f->variables++;
}

/* Whether to look for a formula for the current domain and class of sizes. If the domain is a single class, some of its
   sizes must still be without a formula. If it has several classes, all sizes of this class must be without a formula.
   */
static bool needs_formula(const Fitter *f)
{
    uint32_t all = 0, known = 0;
    for (uint32_t i = 0; i < f->sizes.count; i++) {
        all += inside(f, &f->sizes.all[i]);
        known += inside(f, &f->sizes.all[i]) && !(f->costs->pairs & ~f->sizes.all[i].has_formula);
    }
    return f->domain->modulus > 1 ? known == 0 : known < all;
}

static void mark_sizes(Fitter *f)
{
    for (uint32_t i = 0; i < f->sizes.count; i++)
        f->sizes.all[i].has_formula |= inside(f, &f->sizes.all[i]) ? f->costs->pairs : 0;
}

static void clear_sizes(Fitter *f)
{
    for (uint32_t i = 0; i < f->sizes.count; i++)
        f->sizes.all[i].has_formula = 0;
}

/* Prints a formula for each class of sizes of the domain that needs one (needs_formula) and for which one is found.
   Returns the number of formulas. */
static uint32_t fit_domain(Fitter *f, FILE *stream)
{
    uint32_t found = 0;
    for (f->rest = 0; f->rest < f->domain->modulus; f->rest++) {
        f->seed = 1;
        if (!needs_formula(f) || !(f->quantity == PEAK ? fit_peak(f) : fit_formula(f)))
            continue;
        print_formula(f, stream);
        mark_sizes(f);
        found++;
    }
    return found;
}

/* Prints a formula for each domain of costs and sizes that has one and needs one (needs_formula). The domains are in
   the order of their tables: for each domain of costs that applies, all domains of sizes. A peak is fitted in one
   domain of costs only. */
static void fit_quantity(Fitter *f, FILE *stream)
{
    uint32_t found = 0;
    clear_sizes(f);
    for (size_t c = 0; c < cost_domain_count; c++) {
        if (f->searched && !cost_domains[c].searched)
            continue;
        take_domain(f, &cost_domains[c]);
        for (size_t s = 0; s < size_domain_count && (f->sizes.has_pairs || f->costs->pairs == PAIRS_ALL); s++) {
            f->domain = &size_domains[s];
            found += fit_domain(f, stream);
        }
        if (f->quantity == PEAK) /* peaks are fitted only in the first domain of costs that is tried */
            break;
    }
    if (!found)
        fprintf(stream, "%-8s  no formula found\n", quantity_names[f->quantity]);
}

Status fit(const TrialSettings *options, Arena *arena, Diagnostics **diagnostics, FILE *stream, Error *error)
{
    Source *source = arena_allocate(arena, sizeof *source);
    TRY(source_read(options->inputs[0], arena, source, error));
    if (source_is_order(source))
        return error_set(error, STATUS_BAD_USAGE, "%s is an order of one size; fit takes a .dps file", source->path);
    Compilation own = {.arena = arena, .source = source, .parameters = &options->parameters, .costs = &options->costs};
    const Status status = compile(&own, error);
    *diagnostics = own.diagnostics;
    if (status != STATUS_OK)
        return status;
    Fitter f = {.arena = arena, .sizes = {.options = options, .source = source}};
    f.searched = own.tree->order != NULL;
    f.by_costs = own.tree->cost || f.searched;
    fit_sizes_compile(&f.sizes, arena);
    fit_sizes_print(&f.sizes, own.schedule.name, stream);
    for (f.quantity = 0; f.quantity < QUANTITIES; f.quantity++)
        fit_quantity(&f, stream);
    fit_sizes_free(&f.sizes);
    return STATUS_OK;
}
