#include "compiler/command/compare_table.h"

#include "compiler/output/json.h"

#include <math.h>
#include <string.h>

/* --- what is published beside what is --- */

static double difference(const CompareRow *row)
{
    const double more = row->bubble.cost - row->bubble.work - row->published.value;
    return fabs(more) <= 1e-9 * row->makespan ? 0 : more;
}

static const char *verdict(const CompareRow *row, Arena *arena)
{
    const double more = difference(row);
    if (*row->published.breach)
        return arena_format(arena, "outside its domain: %s", row->published.breach);
    if (row->published.is_bound && more >= 0)
        return "a bound";
    return more == 0 ? "exact" : arena_format(arena, "in its domain, yet %.5g %s", fabs(more), more > 0 ? "more" : "less");
}

/* --- as text --- */

static const char *bytes_text(double bytes, Arena *arena)
{
    static const char *const units[] = {"", "K", "M", "G", "T"};
    size_t unit = 0;
    for (; bytes >= 1024 && unit + 1 < sizeof units / sizeof *units; unit++)
        bytes /= 1024;
    return arena_format(arena, "%.4g%s", bytes, units[unit]);
}

typedef enum Column {
    SCHEDULE, RANKS, STAGES, MICROBATCHES, MAKESPAN, BUBBLE, RATE, PEAK, MODELS, COPIES, MESSAGES, SENT, MEMORY, LIMIT, PUBLISHED, VERDICT, COLUMNS
} Column;

static const char *const heads[COLUMNS] = {"schedule", "ranks",  "stages",  "microbatches", "makespan", "bubble", "rate",     "peak",
                                           "models",   "copies", "messages", "sent",         "memory",   "limit",  "published", ""};

static bool to_the_left(Column column) { return column == SCHEDULE || column >= LIMIT; }

/* Two schedules of one name are told apart by their files. */
static const char *row_name(const CompareTable *table, size_t row)
{
    for (size_t i = 0; i < table->count; i++)
        if (i != row && strcmp(table->rows[i].name, table->rows[row].name) == 0)
            return table->rows[row].path;
    return table->rows[row].name;
}

static void fill_cells(const CompareTable *table, size_t i, const char **cells, Arena *arena)
{
    const CompareRow *row = &table->rows[i];
    cells[SCHEDULE] = row_name(table, i);
    if (row->reason)
        return;
    cells[RANKS] = arena_format(arena, "%u", row->ranks);
    cells[STAGES] = arena_format(arena, "%u", row->stages);
    cells[MICROBATCHES] = arena_format(arena, "%u", row->microbatches);
    cells[MAKESPAN] = arena_format(arena, "%.6g", row->makespan);
    cells[BUBBLE] = arena_format(arena, "%.6g", row->bubble.cost - row->bubble.work);
    cells[RATE] = arena_format(arena, "%.2f %%", 100 * row->bubble.rate);
    cells[PEAK] = arena_format(arena, "%u", row->peak);
    cells[MODELS] = arena_format(arena, "%.2f", (double)row->peak / row->stages);
    cells[COPIES] = arena_format(arena, "%.3g", row->copies);
    cells[MESSAGES] = arena_format(arena, "%llu", (unsigned long long)row->messages);
    if (row->bytes > 0)
        cells[SENT] = bytes_text(row->bytes, arena);
    if (row->memory > 0)
        cells[MEMORY] = bytes_text(row->memory, arena);
    if (memory_is_limited(table->memory))
        cells[LIMIT] = row->fits ? "fits" : "over";
    if (row->has_published) {
        cells[PUBLISHED] = arena_format(arena, "%s%.6g = %s", row->published.is_bound ? "at least " : "", row->published.value,
                                        row->published.formula);
        cells[VERDICT] = verdict(row, arena);
    }
}

static void put_row(const char *const *cells, const size_t *widths, const char *reason, FILE *stream)
{
    fprintf(stream, "%-*s", (int)widths[SCHEDULE], cells[SCHEDULE]);
    if (reason) {
        fprintf(stream, "  %s\n", reason);
        return;
    }
    Column last = SCHEDULE;
    for (Column column = RANKS; column < COLUMNS; column++)
        last = cells[column] && *cells[column] && widths[column] ? column : last;
    for (Column column = RANKS; column <= last; column++)
        if (widths[column]) {
            const int width = column == last && to_the_left(column) ? 0 : (int)widths[column];
            fprintf(stream, to_the_left(column) ? "  %-*s" : "  %*s", width, cells[column] ? cells[column] : "");
        }
    putc('\n', stream);
}

void compare_put_text(const CompareTable *table, Arena *arena, FILE *stream)
{
    const char *(*cells)[COLUMNS] = arena_array(arena, table->count, sizeof *cells);
    size_t widths[COLUMNS] = {0}; /* 0: nobody has anything there */
    bool figures = false, recut = false;
    for (size_t i = 0; i < table->count; i++) {
        fill_cells(table, i, cells[i], arena);
        figures = figures || !table->rows[i].reason;
        recut = recut || (!table->rows[i].reason && table->rows[i].stages != table->cut);
        for (Column column = 0; column < COLUMNS; column++)
            if (cells[i][column] && strlen(cells[i][column]) > widths[column])
                widths[column] = strlen(cells[i][column]);
    }
    for (Column column = 0; column < COLUMNS; column++)
        if (widths[column] && strlen(heads[column]) > widths[column])
            widths[column] = strlen(heads[column]);
    if (figures)
        put_row(heads, widths, NULL, stream);
    for (size_t i = 0; i < table->count; i++)
        put_row(cells[i], widths, table->rows[i].reason, stream);
    if (!figures)
        return;
    fputs("\nbubble: the longest rank's time without work; copies: of the weights, versions included\n"
          "peak: most activations of a stage on a rank; models: these as microbatches of the whole model\n",
          stream);
    if (widths[PUBLISHED])
        fputs("published: the bubble for P ranks, S stages, M microbatches, k activations at the peak\n", stream);
    if (widths[MEMORY])
        fprintf(stream, "memory: of the rank that needs most, %s\n",
                table->memory->has_sizes ? "weights and messages included" : "what its microbatches hold");
    if (recut)
        fprintf(stream, "%s are of a stage of %u: where the model is cut into more, a stage takes less\n",
                widths[MEMORY] || widths[LIMIT] ? "times and memory" : "times", table->cut);
}

/* --- as JSON --- */

static void put_text(const char *text, FILE *stream) { json_put_text(text, strlen(text), stream); }

static void put_published(const PublishedBubble *published, FILE *stream)
{
    fputs(",\n   \"published\": {\"formula\": ", stream);
    put_text(published->formula, stream);
    fputs(", \"source\": ", stream);
    put_text(published->source, stream);
    fprintf(stream, ", \"bound\": %s, \"bubble\": %.17g, \"outside_domain\": ", published->is_bound ? "true" : "false", published->value);
    if (*published->breach)
        put_text(published->breach, stream);
    else
        fputs("null", stream);
    putc('}', stream);
}

void compare_put_json(const CompareTable *table, FILE *stream)
{
    fprintf(stream, "{\"stages_of_times\": %u, \"schedules\": [", table->cut);
    for (size_t i = 0; i < table->count; i++) {
        const CompareRow *row = &table->rows[i];
        fputs(i ? ",\n  {\"file\": " : "\n  {\"file\": ", stream);
        put_text(row->path, stream);
        fputs(", \"schedule\": ", stream);
        put_text(row->name, stream);
        if (row->reason) {
            fputs(", \"refused\": ", stream);
            put_text(row->reason, stream);
            putc('}', stream);
            continue;
        }
        fprintf(stream,
                ", \"ranks\": %u, \"stages\": %u, \"microbatches\": %u, \"makespan\": %.17g,\n   \"cost\": %.17g, \"bubble\": %.17g, "
                "\"bubble_rate\": %.17g, \"peak_activations\": %u, \"weight_copies\": %.17g, \"messages_sent\": %llu",
                row->ranks, row->stages, row->microbatches, row->makespan, row->bubble.cost, row->bubble.cost - row->bubble.work,
                row->bubble.rate, row->peak, row->copies, (unsigned long long)row->messages);
        if (row->bytes > 0)
            fprintf(stream, ", \"bytes_sent\": %.17g", row->bytes);
        if (row->memory > 0)
            fprintf(stream, ", \"peak_memory\": %.17g", row->memory);
        if (memory_is_limited(table->memory))
            fprintf(stream, ", \"fits\": %s", row->fits ? "true" : "false");
        if (row->has_published)
            put_published(&row->published, stream);
        putc('}', stream);
    }
    fputs("]}\n", stream);
}
