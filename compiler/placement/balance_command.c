#include "compiler/placement/balance_command.h"

#include "compiler/placement/balance_input.h"
#include "compiler/placement/balance_options.h"
#include "compiler/placement/balance_report.h"
#include "base/counted.h"
#include "base/file.h"

/* Reads the file of the loads into `table`. Prints the errors in it to stderr. */
static Status read_loads(const BalanceOptions *options, Arena *arena, Table *table, Error *error)
{
    static const TableCells cells = {.column = "expert", .value = "a load", .least = 0, .most = BALANCE_LOAD_MAX};
    Status status = table_read(options->loads, &cells, arena, table, error);
    const uint32_t replicas = options->shape.replicas;
    if (status == STATUS_OK && table->columns > replicas) {
        diag_error(table->diagnostics, table->cells[replicas],
                   "%u experts, but --replicas %u: each needs at least one physical expert", table->columns, replicas);
        if (table->columns > BALANCE_REPLICAS_MAX)
            diag_help(table->diagnostics, "a layer can have at most %d experts", BALANCE_REPLICAS_MAX);
        else
            diag_help(table->diagnostics, "give --replicas %u or more", table->columns);
        status = STATUS_BAD_INPUT;
    }
    if (status != STATUS_OK && table->diagnostics)
        diag_print(table->diagnostics, stderr);
    return status;
}

/* Reads the file of the current placement into `before`, [layers][replicas]. Prints the errors in it to stderr. */
static Status read_from(const BalanceOptions *options, uint32_t layers, uint32_t *before, Arena *arena, Error *error)
{
    const BalanceShape *shape = &options->shape;
    const TableCells cells = {.column = "slot", .value = "an expert", .most = shape->experts - 1, .whole = true};
    Table table;
    Status status = table_read(options->from, &cells, arena, &table, error);
    if (status == STATUS_OK && table.columns != shape->replicas)
        diag_error(table.diagnostics,
                   table.cells[table.columns < shape->replicas ? table.columns - 1 : shape->replicas],
                   "a layer of this placement has %s, but --replicas is %u",
                   counted(table.columns, "physical expert").text, shape->replicas);
    else if (status == STATUS_OK && table.rows != layers)
        diag_error(table.diagnostics,
                   table.cells[(size_t)(table.rows < layers ? table.rows - 1 : layers) * table.columns],
                   "this placement has %s, but the loads have %u", counted(table.rows, "layer").text, layers);
    else
        for (uint32_t l = 0; status == STATUS_OK && l < layers; l++) {
            uint32_t *layer = before + (size_t)l * shape->replicas, slot;
            for (uint32_t s = 0; s < shape->replicas; s++)
                layer[s] = (uint32_t)table.values[(size_t)l * shape->replicas + s];
            Error fault;
            if (balance_check_placement(shape, layer, &slot, arena, &fault) != STATUS_OK)
                diag_error(table.diagnostics, table.cells[(size_t)l * shape->replicas + slot], "layer %u: %s", l,
                           fault.text);
        }
    if (table.diagnostics && diag_failed(table.diagnostics)) {
        diag_print(table.diagnostics, stderr);
        return STATUS_BAD_INPUT;
    }
    return status;
}

static Status place(const BalanceOptions *options, BalancePlan *plan, Arena *arena, Error *error)
{
    const BalanceShape *shape = &options->shape;
    const size_t slots = (size_t)plan->layers * shape->replicas;
    uint32_t *before = arena_array(arena, slots, sizeof *before), *after = arena_array(arena, slots, sizeof *after);
    uint32_t *from = arena_array(arena, slots, sizeof *from);
    LayerBalance *layers = arena_array(arena, plan->layers, sizeof *layers);
    LayerBalance *free = arena_array(arena, plan->layers, sizeof *free);
    if (options->from)
        TRY(read_from(options, plan->layers, from, arena, error));
    for (uint32_t l = 0; l < plan->layers; l++) {
        const size_t first = (size_t)l * shape->replicas;
        const double *loads = plan->loads + (size_t)l * shape->experts;
        BalanceRequest request = options->request;
        request.from = options->from ? from + first : NULL;
        BalanceRequest any = request;
        any.distinct = false;
        Status status = STATUS_OK;
        if (request.distinct)
            status = balance_layer(shape, &any, false, loads, before + first, after + first, &free[l], arena, error);
        if (status == STATUS_OK)
            status = balance_layer(shape, &request, options->eplb, loads, before + first, after + first, &layers[l],
                                   arena, error);
        if (status == STATUS_BAD_INPUT)
            error_prefix(error, "layer %u: ", l);
        TRY(status);
    }
    plan->before = before;
    plan->placement = after;
    plan->layer = layers;
    plan->free = free;
    return STATUS_OK;
}

static Status draw(const BalancePlan *plan, const char *path, Arena *arena, Error *error)
{
    OutputFile file;
    TRY(file_begin_text(path, &file, error));
    balance_put_svg(plan, arena, file.stream);
    return file_finish(&file, error);
}

Status balance_command(int argc, char **argv, Arena *arena, Error *error)
{
    BalanceOptions options;
    Table table;
    TRY(balance_options_parse(argc, argv, arena, &options, error));
    if (options.help) {
        balance_help(stdout);
        return STATUS_OK;
    }
    TRY(read_loads(&options, arena, &table, error));
    options.shape.experts = table.columns;
    TRY(balance_check(&options.shape, options.eplb, error));
    BalancePlan plan = {.shape = options.shape,
                        .eplb = options.eplb,
                        .from = options.from != NULL,
                        .distinct = options.request.distinct,
                        .layers = table.rows,
                        .loads = table.values};
    TRY(place(&options, &plan, arena, error));
    if (options.svg)
        TRY(draw(&plan, options.svg, arena, error));
    if (options.format == BALANCE_CSV)
        balance_put_csv(&plan, stdout);
    else if (options.format == BALANCE_JSON)
        balance_put_json(&plan, arena, stdout);
    else if (options.format == BALANCE_TEXT)
        balance_put_text(&plan, stdout);
    return STATUS_OK;
}
