#include "compiler/placement/balance_command.h"

#include "compiler/placement/balance_input.h"
#include "compiler/placement/balance_options.h"
#include "compiler/placement/balance_report.h"

/* The loads' own diagnostics are printed here. */
static Status read_loads(const BalanceOptions *options, Arena *arena, Table *table, Error *error)
{
    static const TableCells cells = {.column = "expert", .value = "a load", .least = 0, .most = BALANCE_LOAD_MAX};
    Status status = table_read(options->loads, &cells, arena, table, error);
    const uint32_t replicas = options->shape.replicas;
    if (status == STATUS_OK && table->columns > replicas) {
        diag_error(table->diagnostics, table->cells[replicas],
                   "%u experts, but --replicas %u: each needs at least one physical expert", table->columns, replicas);
        diag_help(table->diagnostics, "--replicas %u or more", table->columns);
        status = STATUS_BAD_INPUT;
    }
    if (status != STATUS_OK && table->diagnostics)
        diag_print(table->diagnostics, stderr);
    return status;
}

static Status place(BalancePlan *plan, uint32_t *placement, LayerBalance *layers, Arena *arena, Error *error)
{
    const BalanceShape *shape = &plan->shape;
    for (uint32_t l = 0; l < plan->layers; l++) {
        const double *loads = plan->loads + (size_t)l * shape->experts;
        const uint32_t *before = plan->before + (size_t)l * shape->replicas;
        uint32_t *after = placement + (size_t)l * shape->replicas;
        TRY(balance_best(shape, &(BalanceRequest){.distinct = false}, loads, after, &layers[l].bound, arena, error));
        if (plan->eplb)
            balance_eplb(shape, 1, loads, after, arena);
        layers[l].before = balance_of(shape, loads, before, arena);
        layers[l].after = balance_of(shape, loads, after, arena);
        layers[l].moves = balance_moves(shape, before, after, arena);
    }
    return STATUS_OK;
}

Status balance_command(int argc, char **argv, Arena *arena, Error *error)
{
    BalanceOptions options;
    Table table;
    TRY(balance_options_parse(argc, argv, &options, error));
    if (options.help) {
        fputs(balance_help, stdout);
        return STATUS_OK;
    }
    TRY(read_loads(&options, arena, &table, error));
    options.shape.experts = table.columns;
    TRY(balance_check(&options.shape, options.eplb, error));
    const BalanceShape *shape = &options.shape;
    const size_t slots = (size_t)table.rows * shape->replicas;
    uint32_t *before = arena_array(arena, slots, sizeof *before),
             *placement = arena_array(arena, slots, sizeof *placement);
    BalancePlan plan = {.shape = *shape,
                        .eplb = options.eplb,
                        .layers = table.rows,
                        .loads = table.values,
                        .before = before,
                        .placement = placement};
    for (uint32_t l = 0; l < table.rows; l++)
        balance_in_order(shape, before + (size_t)l * shape->replicas);
    LayerBalance *layers = arena_array(arena, table.rows, sizeof *layers);
    plan.layer = layers;
    TRY(place(&plan, placement, layers, arena, error));
    if (options.format == BALANCE_CSV)
        balance_put_csv(&plan, stdout);
    else if (options.format == BALANCE_JSON)
        balance_put_json(&plan, arena, stdout);
    else
        balance_put_text(&plan, stdout);
    return STATUS_OK;
}
