#include "study/trials/compare_table.h"

#include "base/text.h"
#include "program/times/costs_resolve.h"

#include <inttypes.h>

static void put_published(const PublishedBubble *published, FILE *stream)
{
    json_put_member(",\n   \"published\": {\"formula\": ", published->formula, stream);
    json_put_member(", \"source\": ", published->source, stream);
    fprintf(stream, ", \"bound\": %s, \"bubble\": %.17g, \"outside_domain\": ", published->is_bound ? "true" : "false",
            published->value);
    if (*published->breach)
        json_put_string(published->breach, stream);
    else
        fputs("null", stream);
    putc('}', stream);
}

void compare_put_parameters(const CompareRow *row, FILE *stream)
{
    putc('{', stream);
    for (uint32_t i = 0; i < row->parameter_count; i++) {
        json_put_member(i ? ", " : "", row->parameters[i].name, stream);
        fprintf(stream, ": %" PRId64, row->parameters[i].value);
    }
    putc('}', stream);
}

void compare_put_sums(const GradientSums *sums, FILE *stream)
{
    fprintf(stream, ",\n   \"sums_time\": %.17g, \"sums_hidden\": %.17g, \"sums_bytes\": %.17g", sums->added,
            gradient_sums_hidden(sums), sums->bytes);
}

static void put_figures(const CompareTable *table, const CompareRow *row, FILE *stream)
{
    fprintf(stream,
            ", \"ranks\": %u, \"stages\": %u, \"microbatches\": %u, \"makespan\": %.17g,\n   \"bound\": %.17g, "
            "\"gap\": %.17g, \"cost\": %.17g, "
            "\"bubble\": %.17g, "
            "\"bubble_rate\": %.17g, \"imbalance\": %.17g, \"order_bubble\": %.17g, \"messages_time\": %.17g,\n   "
            "\"peak_activations\": %u, \"weight_copies\": %.17g, \"messages_sent\": %llu",
            row->ranks, row->stages, row->microbatches, row->makespan, row->gap.bound, row->gap.gap, row->bubble.cost,
            row->bubble.cost - row->bubble.work, row->bubble.rate, row->causes.imbalance, row->causes.order,
            row->causes.messages, row->peak, row->copies, (unsigned long long)row->messages);
    if (row->bytes > 0)
        fprintf(stream, ", \"bytes_sent\": %.17g", row->bytes);
    if (table->replicas)
        compare_put_sums(&row->sums, stream);
    if (row->memory > 0 && !row->missing)
        fprintf(stream, ", \"peak_memory\": %.17g", row->memory);
    memory_put_missing(row->missing, stream);
    if (memory_is_limited(table->memory))
        fprintf(stream, ", \"fits\": %s", row->fit == FITS ? "true" : row->fit == EXCEEDS ? "false" : "null");
    if (row->has_published)
        put_published(&row->published, stream);
}

void compare_put_json(const CompareTable *table, FILE *stream)
{
    fprintf(stream, "{\"stages_of_times\": %u, \"stages_of_bytes\": %u, ", table->costs_stages, table->parts);
    const uint32_t used = compare_derived_costs(table->rows, table->count);
    if (costs_has_derived(table->costs, used)) {
        fputs("\"derived_costs\": ", stream);
        costs_put_derived_json(table->costs, used, stream);
        fputs(",\n ", stream);
    }
    fputs("\"schedules\": [", stream);
    for (size_t i = 0; i < table->count; i++) {
        const CompareRow *row = &table->rows[i];
        json_put_member(i ? ",\n  {\"file\": " : "\n  {\"file\": ", row->path, stream);
        json_put_member(", \"schedule\": ", row->name, stream);
        fputs(", \"parameters\": ", stream);
        compare_put_parameters(row, stream);
        if (row->reason) {
            json_put_member(", \"refused\": ", row->reason, stream);
            putc('}', stream);
            continue;
        }
        put_figures(table, row, stream);
        putc('}', stream);
    }
    fputs("]}\n", stream);
}
