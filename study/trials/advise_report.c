#include "study/trials/advise.h"

#include "study/trials/compare_table.h"
#include "base/text.h"
#include "program/times/costs_resolve.h"

#include <inttypes.h>
#include <string.h>

/* --- the command that compiles a row --- */

/* Quotes the text if a shell would split or change it. */
static const char *quoted(const char *word, Arena *arena)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./=,:@%+-";
    if (*word && !word[strspn(word, plain)])
        return word;
    const char *text = "'";
    for (size_t length; length = strcspn(word, "'"), word[length]; word += length + 1)
        text = arena_format(arena, "%s%.*s'\\''", text, (int)length, word);
    return arena_format(arena, "%s%s'", text, word);
}

/* The number of stages for which the costs are given (trial_costs_stages). *assumed: this number is a guess. */
static uint32_t costs_stages(const TrialSettings *options, bool *assumed)
{
    return trial_costs_stages(&options->costs, (uint32_t)options->parameters.ranks, assumed);
}

/* The --cost options of the command for a row. The command needs them if the program depends on the costs
   (CompareRow.by_costs). Adds stages=N if the costs do not say that they are for N stages, and the row has another
   number of stages. */
static const char *costs_text(const TrialSettings *options, const CompareRow *row, Arena *arena)
{
    const char *text = "";
    bool assumed;
    const uint32_t stages = costs_stages(options, &assumed);
    for (int i = 0; i < options->cost_count; i++)
        text = arena_format(arena, "%s --cost %s", text, quoted(options->cost_texts[i], arena));
    return stages == row->stages || options->costs.model_stages > 0
               ? text
               : arena_format(arena, "%s --cost stages=%u", text, stages);
}

static const char *command_text(const TrialSettings *options, const CompareRow *row, Arena *arena)
{
    const char *text = quoted(options->program, arena);
    if (!row->is_order)
        text = arena_format(arena, "%s --ranks %" PRId64 " --microbatches %" PRId64, text, options->parameters.ranks,
                            options->parameters.microbatches);
    for (uint32_t i = 0; i < row->parameter_count; i++)
        text = arena_format(arena, "%s -D %s=%" PRId64, text, row->parameters[i].name, row->parameters[i].value);
    return arena_format(arena, "%s%s %s -o prog.bin", text, row->by_costs ? costs_text(options, row, arena) : "",
                        quoted(row->path, arena));
}

/* --- as text --- */

void advice_put_text(const Advice *advice, Arena *arena, FILE *stream)
{
    const TrialSettings *options = advice->options;
    CompareTable table = {.rows = advice->rows, .count = advice->all_count, .brief = true};
    table.parts = (uint32_t)options->parameters.ranks;
    table.replicas = (uint32_t)options->replicas;
    table.memory = &options->memory;
    table.costs_stages = costs_stages(options, &table.stages_assumed);
    const Costs costs = costs_resolve(&options->costs, table.costs_stages, NULL, arena);
    table.costs = &costs;
    compare_put_text(&table, arena, stream);
    if (advice->row_count)
        fprintf(stream, "\n%s takes the least time of these; to compile it:\n  %s\n", advice->rows[0].name,
                command_text(options, &advice->rows[0], arena));
}

/* --- as JSON --- */

static void put_row(const TrialSettings *options, const CompareRow *row, Arena *arena, FILE *stream)
{
    json_put_member("{\"schedule\": ", row->name, stream);
    json_put_member(", \"file\": ", row->path, stream);
    fputs(", \"parameters\": ", stream);
    compare_put_parameters(row, stream);
    fprintf(stream, ",\n   \"makespan\": %.17g, \"bound\": %.17g, \"gap\": %.17g, \"bubble_rate\": %.17g, \"memory\": ",
            row->makespan, row->gap.bound, row->gap.gap, row->bubble.rate);
    fprintf(stream, row->memory > 0 && !row->missing ? "%.17g" : "null", row->memory);
    memory_put_missing(row->missing, stream);
    if (options->replicas)
        compare_put_sums(&row->sums, stream);
    fprintf(stream,
            ", \"imbalance\": %.17g, \"order_bubble\": %.17g,\n   \"messages_time\": %.17g, \"activations\": %.17g, "
            "\"copies\": %.17g, \"messages\": %" PRIu64 ",\n   \"command\": ",
            row->causes.imbalance, row->causes.order, row->causes.messages, (double)row->peak / row->stages,
            row->copies, row->messages);
    json_put_string(command_text(options, row, arena), stream);
    putc('}', stream);
}

void advice_put_json(const Advice *advice, Arena *arena, FILE *stream)
{
    bool assumed;
    const uint32_t stages = costs_stages(advice->options, &assumed);
    const Costs costs = costs_resolve(&advice->options->costs, stages, NULL, arena);
    const uint32_t used = compare_derived_costs(advice->rows, advice->row_count);
    fputs("{\"rows\": [", stream);
    for (size_t i = 0; i < advice->row_count; i++) {
        fputs(i ? ",\n  " : "\n  ", stream);
        put_row(advice->options, &advice->rows[i], arena, stream);
    }
    fputs("],\n \"left_out\": [", stream);
    for (size_t i = advice->row_count; i < advice->all_count; i++) {
        json_put_member(i > advice->row_count ? ",\n  {\"schedule\": " : "\n  {\"schedule\": ", advice->rows[i].name,
                        stream);
        json_put_member(", \"reason\": ", advice->rows[i].reason, stream);
        putc('}', stream);
    }
    putc(']', stream);
    if (costs_has_derived(&costs, used)) {
        fputs(",\n \"derived_costs\": ", stream);
        costs_put_derived_json(&costs, used, stream);
    }
    fputs("}\n", stream);
}
