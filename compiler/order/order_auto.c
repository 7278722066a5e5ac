#include "compiler/order/order_auto.h"

#include "compiler/source/rank_errors.h"

enum { UNITS_MAX = 1 << 30 }; /* the largest value of the settings `input` and `weight` */

typedef struct Settings {
    const Ast *ast;
    Arena *arena;
    int64_t *values;
    RankErrors errors;
} Settings;

static const char *here(const Settings *s, const Expression *expression)
{
    return values_help(s->ast, expression, s->values, s->arena);
}

/* Evaluates a setting that is the same for all ranks; it is `usual` if the file does not give it. False, with a
   diagnostic: it has no value, or one outside low..high. */
static bool setting_of(Settings *s, Setting setting, int64_t usual, int64_t low, int64_t high, Diagnostics *diagnostics,
                       int64_t *value)
{
    const Expression *expression = s->ast->order->order.settings[setting];
    Fault fault = {.expression = expression};
    *value = usual;
    if (!expression)
        return true;
    if (!evaluate(expression, s->values, value, &fault))
        diag_error(diagnostics, fault.expression->span, "%s", fault_text(&fault, s->arena));
    else if (*value >= low && *value <= high)
        return true;
    else {
        diag_error(diagnostics, expression->span, "`%s` is %lld: it must be %lld to %lld", setting_names[setting],
                   (long long)*value, (long long)low, (long long)high);
        diag_refuses(diagnostics);
    }
    const char *help = here(s, fault.expression);
    if (help)
        diag_help(diagnostics, "%s", help);
    return false;
}

static void memory_of(Settings *s, const Schedule *schedule, uint32_t rank, int64_t forward, int64_t *memory)
{
    const Expression *expression = s->ast->order->order.settings[SETTING_MEMORY];
    const int64_t least = search_least_memory(schedule, rank, forward);
    Fault fault;
    RankError *error;
    /* values_for_rank succeeds: place() has evaluated the same values */
    values_for_rank(s->ast, rank, s->values, &fault);
    if (!evaluate(expression, s->values, memory, &fault)) {
        error = rank_error(&s->errors, rank, fault.expression->span, "%s", fault_text(&fault, s->arena));
        if (error)
            error->help = here(s, fault.expression);
    } else if (*memory < least) {
        const char *help = here(s, expression);
        error = rank_error(&s->errors, rank, expression->span,
                           "memory %lld is too small for one microbatch, which takes %lld", (long long)*memory,
                           (long long)least);
        if (error) {
            error->refuses = true;
            error->help = arena_format(s->arena, "%s%sthe least that works on this rank is %lld", help ? help : "",
                                       help ? "; " : "", (long long)least);
        }
    }
}

/* Checks that each stage of a pipe is on a single rank: the search cannot divide the microbatches of a pipe between
   copies of a stage. False, with a diagnostic: some stage is on several. */
static bool has_one_home(const Schedule *schedule, Diagnostics *diagnostics)
{
    for (uint32_t p = 0; p < schedule->pipe_count; p++)
        if (schedule->pipes[p].replicated) {
            diag_error(diagnostics, schedule->pipes[p].span,
                       "`order auto` cannot be used if a stage of a pipe lives on several ranks");
            diag_help(diagnostics, "write the steps, or let the rank of a stage not depend on the microbatch");
            return false;
        }
    return true;
}

bool order_auto(const Ast *ast, const Parameters *parameters, const Costs *costs, const SearchControl *control,
                Arena *arena, Diagnostics *diagnostics, Schedule *schedule, SearchProgress *found, MemoryLimits *limits)
{
    Settings settings = {
        .ast = ast, .arena = arena, .values = values_new(ast, parameters, arena), .errors = {.arena = arena}};
    Fault fault;
    int64_t input, weight, effort, *memory = arena_array(arena, schedule->ranks, sizeof *memory);
    if (!values_for_all(ast, parameters, settings.values, &fault) || !has_one_home(schedule, diagnostics) ||
        !setting_of(&settings, SETTING_INPUT, -SEARCH_INPUT, 0, UNITS_MAX, diagnostics, &input) ||
        !setting_of(&settings, SETTING_WEIGHT, -SEARCH_WEIGHT, 0, UNITS_MAX, diagnostics, &weight) ||
        !setting_of(&settings, SETTING_EFFORT, 1, 1, SEARCH_EFFORT_MAX, diagnostics, &effort))
        return false;
    if (input + weight == 0) {
        diag_error(diagnostics, ast->order->span,
                   "a microbatch takes no memory: `input` and `weight` are both 0, but one must be at least 1");
        return false;
    }
    for (uint32_t rank = 0; rank < schedule->ranks; rank++)
        memory_of(&settings, schedule, rank, input + weight, &memory[rank]);
    rank_errors_report(&settings.errors, diagnostics);
    if (settings.errors.first)
        return false;
    const SearchTask task = {.costs = costs,
                             .forward = input + weight,
                             .input = -input,
                             .weight = -weight,
                             .memory = memory,
                             .effort = (uint32_t)effort,
                             .overlap = ast->order->order.overlap};
    double *most = arena_array(arena, schedule->ranks, sizeof *most);
    for (uint32_t rank = 0; rank < schedule->ranks; rank++)
        most[rank] = (double)memory[rank];
    *limits = (MemoryLimits){.input = (double)input, .weight = (double)weight, .most = most};
    search_order(schedule, &task, control, ast->order->span, arena, found);
    return true;
}
