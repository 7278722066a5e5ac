/* Fuzz target of dpc balance: any bytes as loads and a current placement. The result is a diagnostic, an error with a
   message, or a placement that meets its conditions; never a crash, a leak or a hang. The first line has the replicas,
   GPUs, groups, nodes, moves and whether --distinct is given. The loads follow, and after a line `from` the
   placement. */

#include "balance/balance.h"
#include "compiler/placement/balance_input.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { REPLICAS_MOST = 2000, CELLS_MOST = 20000 }; /* larger inputs only take time */

static void demand(bool good, const char *what)
{
    if (good)
        return;
    fprintf(stderr, "%s\n", what);
    abort();
}

static void print_diagnostics(const Table *table)
{
    char *text = NULL;
    size_t length = 0;
    FILE *stream = open_memstream(&text, &length);
    if (stream) {
        diag_print(table->diagnostics, stream);
        fclose(stream);
    }
    free(text);
}

static bool read_table(const char *text, size_t size, const TableCells *cells, Arena *arena, Table *table)
{
    *table = (Table){.source = {.path = "fuzz.csv", .text = arena_text(arena, text, size), .size = size}};
    source_lines(&table->source, arena);
    const Status status = table_parse(table, cells, arena);
    demand((status == STATUS_OK) == !diag_failed(table->diagnostics), "a diagnostic, but not refused");
    print_diagnostics(table);
    return status == STATUS_OK;
}

static void check(const BalanceShape *shape, const BalanceRequest *request, const double *loads, Arena *arena)
{
    Error error = {""};
    uint32_t *placement = arena_array(arena, shape->replicas, sizeof *placement), slot;
    double bound;
    if (balance_best(shape, request, loads, placement, &bound, arena, &error) != STATUS_OK) {
        demand(request->distinct && error.text[0], "refused without a reason");
        return;
    }
    const double balance = balance_of(shape, loads, placement, arena);
    demand(balance_check_placement(shape, placement, &slot, arena, &error) == STATUS_OK, error.text);
    demand(balance <= bound + 1e-9 && bound <= 1 && balance >= 0, "the balance is above the bound");
    if (request->from)
        demand(balance_moves(shape, request->from, placement, arena) <= request->moves, "too many moves");
    if (request->distinct)
        demand(balance_duplicates(shape, placement, arena) == 0, "an expert is twice on a GPU");
    if (!request->from && !request->distinct && balance_check(shape, true, &error) == STATUS_OK) {
        balance_eplb(shape, 1, loads, placement, arena);
        demand(balance >= balance_of(shape, loads, placement, arena) * (1 - 1e-12), "eplb is better");
    }
}

/* Places the layers one by one. `from`: the table of the current placement; without columns if there is none. */
static void place(BalanceShape shape, BalanceRequest request, const Table *loads, const Table *from, Arena *arena)
{
    Error error = {""};
    shape.experts = loads->columns;
    if (balance_check(&shape, false, &error) != STATUS_OK) {
        demand(error.text[0], "refused without a reason");
        return;
    }
    uint32_t *held = arena_array(arena, shape.replicas, sizeof *held), slot;
    for (uint32_t l = 0; l < loads->rows; l++) {
        if (from->columns == shape.replicas && l < from->rows) {
            for (uint32_t s = 0; s < shape.replicas; s++)
                held[s] = (uint32_t)from->values[(size_t)l * shape.replicas + s];
            request.from = balance_check_placement(&shape, held, &slot, arena, &error) == STATUS_OK ? held : NULL;
        }
        check(&shape, &request, loads->values + (size_t)l * shape.experts, arena);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const TableCells load = {.column = "expert", .value = "a load", .most = BALANCE_LOAD_MAX};
    static const TableCells expert = {.column = "slot", .value = "an expert", .most = REPLICAS_MOST, .whole = true};
    Arena arena = {0};
    BalanceShape shape = {0};
    BalanceRequest request = {0};
    unsigned distinct = 0;
    int used = 0;
    const char *text = arena_text(&arena, (const char *)data, size);
    const int numbers = sscanf(text, "%9u %9u %9u %9u %9u %9u%n", &shape.replicas, &shape.gpus, &shape.groups,
                               &shape.nodes, &request.moves, &distinct, &used);
    if (numbers == 6 && strlen(text) == size && shape.replicas <= REPLICAS_MOST && shape.groups && shape.nodes) {
        const char *end = strstr(text + used, "\nfrom\n"), *loads_end = end ? end : text + size;
        Table loads, from = {0};
        request.distinct = distinct != 0;
        const bool read = read_table(text + used, (size_t)(loads_end - text) - (size_t)used, &load, &arena, &loads);
        if (end)
            read_table(end + 6, size - (size_t)(end + 6 - text), &expert, &arena, &from);
        if (read && (size_t)loads.rows * shape.replicas < CELLS_MOST)
            place(shape, request, &loads, &from, &arena);
    }
    arena_free(&arena);
    return 0;
}
