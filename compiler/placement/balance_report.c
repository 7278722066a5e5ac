#include "compiler/placement/balance_report.h"

#include "base/counted.h"

/* --- the table --- */

static void put_head(const BalancePlan *plan, FILE *stream)
{
    const BalanceShape *shape = &plan->shape;
    fprintf(stream, "%s, %s: %s on %s", counted(plan->layers, "layer").text, counted(shape->experts, "expert").text,
            counted(shape->replicas, "replica").text, counted(shape->gpus, "GPU").text);
    if (balance_is_hierarchical(shape))
        fprintf(stream, " of %s, %s on each", counted(shape->nodes, "node").text,
                counted(shape->groups / shape->nodes, "group").text);
    fputs("\n", stream);
}

static void put_row(const char *name, double before, double after, double bound, double moves, int digits, FILE *stream)
{
    fprintf(stream, "%5s  %8.4f  %6.4f  %6.4f  %6.4f  %5.*f\n", name, before, after, bound, bound - after, digits,
            moves);
}

static void put_cost(const BalancePlan *plan, FILE *stream)
{
    double mean = 0, most = 0;
    uint32_t layer = 0;
    for (uint32_t l = 0; l < plan->layers; l++) {
        const double cost = plan->free[l].after - plan->layer[l].after;
        mean += cost / plan->layers;
        layer = cost > most ? l : layer;
        most = cost > most ? cost : most;
    }
    if (most < 0.00005)
        fputs("\n--distinct does not lower the balance\n", stream);
    else
        fprintf(stream, "\n--distinct lowers the balance by %.4f on average and by at most %.4f, in layer %u\n", mean,
                most, layer);
}

void balance_put_text(const BalancePlan *plan, FILE *stream)
{
    double before = 0, after = 0, bound = 0, moves = 0;
    char name[16];
    put_head(plan, stream);
    fprintf(stream, "%5s  %8s  %6s  %6s  %6s  %5s\n", "layer", plan->from ? "before" : "in order",
            plan->eplb ? "eplb" : "best", "bound", "gap", "moves");
    for (uint32_t l = 0; l < plan->layers; l++) {
        const LayerBalance *layer = &plan->layer[l];
        snprintf(name, sizeof name, "%u", l);
        put_row(name, layer->before, layer->after, layer->bound, layer->moves, 0, stream);
        before += layer->before / plan->layers;
        after += layer->after / plan->layers;
        bound += layer->bound / plan->layers;
        moves += (double)layer->moves / plan->layers;
    }
    if (plan->layers > 1)
        put_row("mean", before, after, bound, moves, 1, stream);
    if (plan->distinct)
        put_cost(plan, stream);
    fputs("\nbalance of a layer: mean load of a GPU, divided by the largest; 1: all loads are equal\n", stream);
    fputs(plan->from ? "before: the current placement\n"
                     : "in order: experts 0, 1, 2, ... repeatedly, GPU after GPU, as frameworks place them at first\n",
          stream);
    fprintf(stream,
            "bound: no placement%s has a higher balance; gap: how far the balance is below the bound\n"
            "moves: physical experts that their GPU did not hold before\n",
            plan->distinct ? " without an expert twice on a GPU" : "");
}

/* --- for programs --- */

static void put_numbers(const uint32_t *numbers, uint32_t count, FILE *stream)
{
    for (uint32_t i = 0; i < count; i++)
        fprintf(stream, "%s%u", i ? "," : "", numbers[i]);
}

void balance_put_csv(const BalancePlan *plan, FILE *stream)
{
    for (uint32_t l = 0; l < plan->layers; l++) {
        put_numbers(plan->placement + (size_t)l * plan->shape.replicas, plan->shape.replicas, stream);
        putc('\n', stream);
    }
}

static const char *separator(uint32_t layer) { return layer ? ",\n  " : "\n  "; }

void balance_put_json(const BalancePlan *plan, Arena *arena, FILE *stream)
{
    const BalanceShape *shape = &plan->shape;
    uint32_t *count = arena_array(arena, shape->experts, sizeof *count);
    fputs("{\"placement\": [", stream);
    for (uint32_t l = 0; l < plan->layers; l++) {
        fprintf(stream, "%s[", separator(l));
        put_numbers(plan->placement + (size_t)l * shape->replicas, shape->replicas, stream);
        putc(']', stream);
    }
    fputs("],\n \"count\": [", stream);
    for (uint32_t l = 0; l < plan->layers; l++) {
        balance_counts(shape, plan->placement + (size_t)l * shape->replicas, count);
        fprintf(stream, "%s[", separator(l));
        put_numbers(count, shape->experts, stream);
        putc(']', stream);
    }
    fputs("],\n \"balance\": [", stream);
    for (uint32_t l = 0; l < plan->layers; l++)
        fprintf(stream, "%s%.17g", l ? ", " : "", plan->layer[l].after);
    fputs("],\n \"bound\": [", stream);
    for (uint32_t l = 0; l < plan->layers; l++)
        fprintf(stream, "%s%.17g", l ? ", " : "", plan->layer[l].bound);
    if (plan->distinct)
        fputs("],\n \"without_distinct\": [", stream);
    for (uint32_t l = 0; plan->distinct && l < plan->layers; l++)
        fprintf(stream, "%s%.17g", l ? ", " : "", plan->free[l].after);
    fputs("],\n \"moves\": [", stream);
    for (uint32_t l = 0; l < plan->layers; l++)
        fprintf(stream, "%s%u", l ? ", " : "", plan->layer[l].moves);
    fputs("]}\n", stream);
}
