#include "study/trials/compare_table.h"

#include "base/counted.h"
#include "base/names.h"
#include "program/times/costs_parts.h"
#include "program/times/costs_resolve.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* --- columns --- */

/* The columns of the text, from the left: a name for this file, the title, the style and the value in a row. */
#define COLUMN_LIST                                                       \
    COLUMN(SCHEDULE, "schedule", WORDS, 0)                                \
    COLUMN(RANKS, "ranks", COUNT, row->ranks)                             \
    COLUMN(STAGES, "stages", COUNT, row->stages)                          \
    COLUMN(MAKESPAN, "makespan", TIME, row->makespan)                     \
    COLUMN(GAP, "gap", PERCENT, row->gap.gap)                             \
    COLUMN(MESSAGES, "messages", TIME, row->causes.messages)              \
    COLUMN(SUMS, "sums", TIME, row->sums.added)                           \
    COLUMN(HIDDEN, "hidden", PERCENT, gradient_sums_hidden(&row->sums))   \
    COLUMN(BUBBLE, "bubble", TIME, bubble_of(row))                        \
    COLUMN(RATE, "rate", PERCENT, row->bubble.rate)                       \
    COLUMN(IMBALANCE, "imbalance", PERCENT, row->causes.imbalance)        \
    COLUMN(ORDER, "order", PERCENT, row->causes.order)                    \
    COLUMN(PEAK, "peak", COUNT, row->peak)                                \
    COLUMN(MODELS, "models", HUNDREDTHS, (double)row->peak / row->stages) \
    COLUMN(COPIES, "copies", SHORT, row->copies)                          \
    COLUMN(SENT, "sent", COUNT, (double)row->messages)                    \
    COLUMN(BYTES, "bytes", SIZE, row->bytes)                              \
    COLUMN(SUMMED, "summed", SIZE, row->sums.bytes)                       \
    COLUMN(MEMORY, "memory", SIZE, row->memory)                           \
    COLUMN(LIMIT, "limit", WORDS, row->fit)

#define COLUMN(column, name, style, value) column,
typedef enum Column { COLUMN_LIST COLUMNS } Column;
#undef COLUMN

typedef enum Style { WORDS, COUNT, TIME, PERCENT, HUNDREDTHS, SHORT, SIZE } Style;

static const struct {
    const char *name;
    Style style;
} columns[COLUMNS] = {
#define COLUMN(column, name, style, value) {name, style},
    COLUMN_LIST
#undef COLUMN
};

static double bubble_of(const CompareRow *row) { return row->bubble.cost - row->bubble.work; }

uint32_t compare_derived_costs(const CompareRow *rows, size_t count)
{
    uint32_t derived = 0;
    for (size_t i = 0; i < count; i++)
        derived |= rows[i].derived;
    return derived;
}

static double value_of(const CompareRow *row, Column column)
{
    switch (column) {
#define COLUMN(column, name, style, value) \
    case column: return value;
        COLUMN_LIST
#undef COLUMN
    default: return 0;
    }
}

/* --- sorting --- */

enum { AS_GIVEN = COLUMNS };

Status compare_sort_named(const char *name, CompareSort *sort, Error *error)
{
    NearestWord nearest = nearest_to(name);
    char names[200] = "";
    for (Column column = 0; column < COLUMNS; column++) {
        *sort = (CompareSort)column;
        if (strcmp(name, columns[column].name) == 0)
            return STATUS_OK;
        nearest_consider(&nearest, columns[column].name);
        snprintf(names + strlen(names), sizeof names - strlen(names), "%s, ", columns[column].name);
    }
    *sort = AS_GIVEN;
    if (strcmp(name, "file") == 0)
        return STATUS_OK;
    return error_set(error, STATUS_BAD_USAGE, "--sort=%s: no such column%s%s%s: %sor file for the given order", name,
                     nearest.word ? "; did you mean " : "", nearest.word ? nearest.word : "",
                     nearest.word ? "? All of them" : "; there are", names);
}

static int compare_parameters(const CompareRow *a, const CompareRow *b)
{
    for (uint32_t i = 0; i < a->parameter_count && i < b->parameter_count; i++) {
        const int names = strcmp(a->parameters[i].name, b->parameters[i].name);
        if (names || a->parameters[i].value != b->parameters[i].value)
            return names ? names : a->parameters[i].value < b->parameters[i].value ? -1 : 1;
    }
    return (a->parameter_count > b->parameter_count) - (a->parameter_count < b->parameter_count);
}

static int compare_names(const CompareRow *a, const CompareRow *b)
{
    const int names = strcmp(a->name, b->name), parameters = compare_parameters(a, b);
    return names ? names : parameters ? parameters : strcmp(a->path, b->path);
}

static int compare_rows(const void *left, const void *right, void *context)
{
    const CompareRow *a = left, *b = right;
    const Column by[] = {(Column)(*(const CompareSort *)context), MAKESPAN, RATE, MEMORY, MODELS};
    if (!a->reason != !b->reason)
        return a->reason ? 1 : -1;
    for (size_t i = 0; !a->reason && by[0] != SCHEDULE && i < sizeof by / sizeof *by; i++) {
        const double first = value_of(a, by[i]), second = value_of(b, by[i]);
        if (first < second || first > second)
            return first < second ? -1 : 1;
    }
    return compare_names(a, b);
}

void compare_sort(CompareRow *rows, size_t count, CompareSort sort)
{
    if (sort != AS_GIVEN)
        qsort_r(rows, count, sizeof *rows, compare_rows, &sort);
}

/* --- published bubbles --- */

static double difference(const CompareRow *row)
{
    const double more = bubble_of(row) - row->published.value;
    return fabs(more) <= 1e-9 * row->makespan ? 0 : more;
}

static const char *verdict(const CompareRow *row, Arena *arena)
{
    const double more = difference(row);
    if (*row->published.breach)
        return arena_format(arena, "outside its domain: %s", row->published.breach);
    if (row->published.is_bound && more >= 0)
        return "a bound";
    return more == 0 ? "exact"
                     : arena_format(arena, "in its domain, yet the bubble here is %.5g %s", fabs(more),
                                    more > 0 ? "longer" : "shorter");
}

/* --- as text --- */

const char *bytes_text(double bytes, Arena *arena)
{
    static const char *const units[] = {"", "K", "M", "G", "T"};
    size_t unit = 0;
    for (; bytes >= 1024 && unit + 1 < sizeof units / sizeof *units; unit++)
        bytes /= 1024;
    return arena_format(arena, "%.4g%s", bytes, units[unit]);
}

static const char *text_of(double value, Style style, Arena *arena)
{
    switch (style) {
    case COUNT: return arena_format(arena, "%.0f", value);
    case TIME: return arena_format(arena, "%.6g", value);
    case PERCENT: return arena_format(arena, "%.2f %%", fabs(100 * value));
    case HUNDREDTHS: return arena_format(arena, "%.2f", value);
    case SHORT: return arena_format(arena, "%.3g", value);
    default: return bytes_text(value, arena);
    }
}

/* "interleaved-1f1b chunks=4" */
static const char *label(const CompareRow *row, const char *name, Arena *arena)
{
    for (uint32_t i = 0; i < row->parameter_count; i++)
        name = arena_format(arena, "%s %s=%" PRId64, name, row->parameters[i].name, row->parameters[i].value);
    return name;
}

/* The label of a row: the schedule's name and parameters. If another row has the same label, the file's path replaces
   the name. */
static const char *row_label(const CompareTable *table, size_t row, Arena *arena)
{
    const CompareRow *rows = table->rows;
    for (size_t i = 0; i < table->count; i++)
        if (i != row && strcmp(rows[i].name, rows[row].name) == 0 && compare_parameters(&rows[i], &rows[row]) == 0)
            return label(&rows[row], rows[row].path, arena);
    return label(&rows[row], rows[row].name, arena);
}

/* Whether some row with figures has a value other than 0 in this column. Values up to 1e-9 are rounding errors. */
static bool any(const CompareTable *table, Column column)
{
    for (size_t i = 0; i < table->count; i++)
        if (!table->rows[i].reason && fabs(value_of(&table->rows[i], column)) > 1e-9)
            return true;
    return false;
}

/* The sizes that some row with figures lacks (CompareRow.missing). */
static uint32_t missing_sizes(const CompareTable *table)
{
    uint32_t missing = 0;
    for (size_t i = 0; i < table->count; i++)
        missing |= table->rows[i].reason ? 0 : table->rows[i].missing;
    return missing;
}

/* Whether the table shows a column. It leaves out some columns if they are 0 in all rows, if they repeat another
   column, or if the option that they belong to is not given; the brief form leaves out more. */
static bool shows(const CompareTable *table, Column column)
{
    const bool brief = table->brief;
    switch (column) {
    case BUBBLE:
    case PEAK: return !brief;
    case MODELS: return !brief || !any(table, MEMORY);
    case RANKS: return table->by_stages;
    case STAGES: return !table->by_stages;
    case MESSAGES:
    case IMBALANCE:
    case MEMORY: return any(table, column) || (column == MEMORY && missing_sizes(table));
    case SUMS:
    case HIDDEN:
    case SUMMED: return table->replicas > 0;
    case BYTES: return !brief && any(table, column);
    case ORDER: return any(table, MESSAGES) || any(table, IMBALANCE);
    case LIMIT: return !brief && memory_is_limited(table->memory);
    default: return true;
    }
}

/* A table as text; a cell that is NULL is empty. */
typedef struct Grid {
    const char *(*cells)[COLUMNS];
    size_t rows;
    Column numbers, after_numbers; /* columns numbers..after_numbers-1 are aligned right */
} Grid;

static void put_grid(const Grid *grid, FILE *stream)
{
    /* width of each column in characters; 0: all its cells are empty, and it is not printed */
    int widths[COLUMNS] = {0};
    for (size_t r = 0; r < grid->rows; r++)
        for (Column column = 0; column < COLUMNS; column++)
            if (grid->cells[r][column] && (int)strlen(grid->cells[r][column]) > widths[column])
                widths[column] = (int)strlen(grid->cells[r][column]);
    for (size_t r = 0; r < grid->rows; r++) {
        const char *const *cells = grid->cells[r];
        Column last = COLUMNS - 1;
        while (last > 0 && !cells[last])
            last--;
        for (Column column = 0; column <= last; column++) {
            const bool right = column >= grid->numbers && column < grid->after_numbers;
            if (widths[column])
                fprintf(stream, "%s%*s", column ? "  " : "",
                        right           ? widths[column]
                        : column < last ? -widths[column]
                                        : 0,
                        cells[column] ? cells[column] : "");
        }
        putc('\n', stream);
    }
}

static Grid grid_new(const CompareTable *table, Arena *arena)
{
    return (Grid){.cells = arena_array(arena, table->count + 1, sizeof(const char *[COLUMNS]))};
}

static void put_figures(const CompareTable *table, Arena *arena, FILE *stream)
{
    Grid grid = grid_new(table, arena);
    grid.numbers = RANKS;
    grid.after_numbers = LIMIT;
    for (Column column = 0; column < COLUMNS; column++)
        grid.cells[0][column] = shows(table, column) ? columns[column].name : NULL;
    grid.rows = 1;
    for (size_t i = 0; i < table->count; i++) {
        const CompareRow *row = &table->rows[i];
        if (row->reason)
            continue;
        const char **cells = grid.cells[grid.rows++];
        for (Column column = 0; column < COLUMNS; column++)
            if (columns[column].style != WORDS && shows(table, column))
                cells[column] = text_of(value_of(row, column), columns[column].style, arena);
        cells[SCHEDULE] = row_label(table, i, arena);
        if (row->gap.gap <= 0)
            cells[GAP] = "optimal";
        if (shows(table, HIDDEN) && row->sums.time <= 0)
            cells[HIDDEN] = "-";
        if (shows(table, LIMIT))
            cells[LIMIT] = row->fit == FITS ? "fits" : row->fit == EXCEEDS ? "over" : "unknown";
        if (shows(table, MEMORY) && row->missing)
            cells[MEMORY] = "unknown";
    }
    if (grid.rows > 1)
        put_grid(&grid, stream);
}

static void put_reasons(const CompareTable *table, Arena *arena, FILE *stream)
{
    Grid grid = grid_new(table, arena);
    for (size_t i = 0; i < table->count; i++)
        if (table->rows[i].reason) {
            grid.cells[grid.rows][0] = row_label(table, i, arena);
            grid.cells[grid.rows++][1] = table->rows[i].reason;
        }
    if (grid.rows && grid.rows < table->count)
        fputs(table->brief ? "\nleft out:\n" : "\n", stream);
    put_grid(&grid, stream);
}

static void put_published_rows(const CompareTable *table, Arena *arena, FILE *stream)
{
    Grid grid = grid_new(table, arena);
    for (size_t i = 0; i < table->count; i++) {
        const CompareRow *row = &table->rows[i];
        if (row->reason || !row->has_published)
            continue;
        const char **cells = grid.cells[grid.rows++];
        cells[0] = row_label(table, i, arena);
        cells[1] = arena_format(arena, "%s%.6g", row->published.is_bound ? "at least " : "", row->published.value);
        cells[2] = arena_format(arena, "= %s", row->published.formula);
        cells[3] = verdict(row, arena);
    }
    grid.numbers = 1;
    grid.after_numbers = 2;
    if (grid.rows)
        fputs("\npublished bubbles, for P ranks, S stages, M microbatches, k activations at the peak\n", stream);
    put_grid(&grid, stream);
}

/* Prints the number of ranks (or of stages) and of microbatches, which all rows have in common. */
static void put_title(const CompareTable *table, Arena *arena, FILE *stream)
{
    const CompareRow *row = table->rows;
    while (row->reason)
        row++;
    const char *unit = costs_unit_text(table->costs);
    fprintf(stream, "%s, %s%s%s%s%s\n",
            table->by_stages ? counted(row->stages, "stage").text : counted(row->ranks, "rank").text,
            counted(row->microbatches, "microbatch").text,
            table->replicas ? arena_format(arena, " in each of %s", counted(table->replicas, "replica").text) : "",
            table->sizes_differ ? ": chosen from the files' own numbers, which differ" : "", *unit ? "; times in" : "",
            unit);
}

static bool some_recut(const CompareTable *table)
{
    for (size_t i = 0; i < table->count; i++)
        if (!table->rows[i].reason && table->rows[i].stages != table->parts)
            return true;
    return false;
}

/* Prints for which part of the model the times are given, unless it is the stage of every row. */
static void put_unit(const CompareTable *table, FILE *stream)
{
    if (costs_of_whole_model(table->costs))
        fprintf(stream, "the time of a stage is the sum of the times of its parts; the model has %s\n",
                counted((uint64_t)table->costs->model_layers, "layer").text);
    else if (table->costs_stages != table->parts)
        fprintf(stream, "times are given for a model in %s%s; those of larger and smaller stages are in proportion\n",
                counted(table->costs_stages, "stage").text,
                table->stages_assumed
                    ? " (costs of single stages, such as F[0], name this many; --cost stages=N sets another number)"
                    : "");
    else if (some_recut(table))
        fprintf(
            stream,
            "times and bytes are given for 1/%u of the model; those of larger and smaller stages are in proportion\n",
            table->parts);
}

static void put_sums_words(const CompareTable *table, FILE *stream)
{
    fputs("sums: time that the sums of gradients over all copies of each stage add to the makespan; hidden: share of "
          "their time\nbefore the last pass ends; summed: bytes that the ranks of one replica send for them\n",
          stream);
    if (table->costs->bandwidth < 0)
        fputs("the costs have no bandwidth, so a sum takes only the latency of two messages: --cost bandwidth=N\n",
              stream);
}

/* Whether some row with figures is of a schedule with `order auto`. */
static bool any_searched(const CompareTable *table)
{
    for (size_t i = 0; i < table->count; i++)
        if (!table->rows[i].reason && table->rows[i].searched)
            return true;
    return false;
}

static void put_words(const CompareTable *table, FILE *stream)
{
    fputs(shows(table, BUBBLE) ? "\nbubble: time of the longest rank beyond the mean work of a rank; rate: its share "
                                 "of the time of that rank\n"
                               : "\nrate: bubble, as a share of the time of the longest rank\n",
          stream);
    if (shows(table, ORDER))
        fprintf(stream, "%s from waiting%s computed as if messages took no time\n",
                any(table, IMBALANCE) ? "imbalance: the part of the rate from uneven work; order: the part"
                                      : "order: the part of the rate",
                any(table, IMBALANCE) ? "; both are" : ",");
    const bool limited = gap_is_limited(table->memory);
    fprintf(stream, "gap: excess of the makespan%s over a lower bound of all orders of the same placement %s%s%s\n",
            table->replicas ? " without the sums" : "",
            limited ? "within the memory limit" : "with as much memory on each rank",
            limited && any_searched(table) ? "; with order auto, also within its memory" : "",
            !limited || !any(table, LIMIT) ? ""
            : missing_sizes(table)         ? "; if over the limit or unknown, with as much memory on each rank"
                                           : "; if over the limit, with as much memory on each rank");
    if (any(table, MESSAGES))
        fputs("messages: time that they add to the makespan\n", stream);
    else if (table->brief)
        fputs("messages take no time under these costs, so more chunks always look better: --cost comm=... says their "
              "time\n",
              stream);
    if (table->replicas)
        put_sums_words(table, stream);
    if (shows(table, PEAK))
        fputs("peak: most activations on a rank, each of one stage; models: the same, counted in microbatches of the "
              "whole model\n",
              stream);
    else if (shows(table, MODELS))
        fputs("models: most activations that a rank holds, counted in microbatches of the whole model\n", stream);
    fputs("copies: of the model's weights on all ranks, versions included; sent: messages of all ranks\n", stream);
    if (any(table, MEMORY) || missing_sizes(table))
        fprintf(stream, "memory: of the rank that needs most, %s\n",
                table->memory->given ? "weights and messages included" : "what its microbatches hold");
    if (missing_sizes(table))
        fprintf(stream, "unknown: " MEMORY_LACKS "\n", front_name(table->memory->front_end, SET_SLOT_BYTES),
                memory_names(missing_sizes(table)).text);
    put_unit(table, stream);
    costs_put_derived(table->costs, compare_derived_costs(table->rows, table->count), "derived cost: ", stream);
}

void compare_put_text(const CompareTable *table, Arena *arena, FILE *stream)
{
    bool figures = false;
    for (size_t i = 0; i < table->count; i++)
        figures = figures || !table->rows[i].reason;
    if (figures)
        put_title(table, arena, stream);
    put_figures(table, arena, stream);
    if (table->brief && figures)
        put_words(table, stream);
    put_reasons(table, arena, stream);
    if (table->brief || !figures)
        return;
    put_published_rows(table, arena, stream);
    put_words(table, stream);
}
