#include "compiler/output/emit.h"
#include "compiler/schedule/critical_path.h"
#include "compiler/schedule/rank_load.h"
#include "base/text.h"
#include "program/times/costs_parts.h"
#include "program/times/costs_resolve.h"
#include "program/times/recipe_times.h"

#include <inttypes.h>

static void put_rank(const Picture *picture, const Memory *memory, uint32_t rank, FILE *stream)
{
    const Schedule *schedule = picture->schedule;
    const Costs *costs = picture->times->costs;
    const RankTimes times = timeline_rank(schedule, picture->times, rank);
    const RankLoad load = rank_load(schedule, costs, rank);
    const RankProgram *program = &picture->program->ranks[rank];
    const uint32_t *slots = program->slots;
    fprintf(stream, "{\"start\": %.17g, \"end\": %.17g, \"busy\": %.17g, \"idle\": %.17g, \"peak_activations\": %u,\n",
            times.start, times.end, times.busy, times.end - times.start - times.busy, program->peak_activations);
    fprintf(stream,
            "   \"slots\": {\"message\": %u, \"context\": %u, \"stash\": %u, \"gradient\": %u, \"weights\": %u}",
            slots[SLOT_MESSAGE], slots[SLOT_CONTEXT], slots[SLOT_STASH], slots[SLOT_GRADIENT], slots[SLOT_WEIGHTS]);
    if (memory->given && !memory_missing(memory, picture->program))
        fprintf(stream, ", \"bytes\": %llu", (unsigned long long)memory_bytes(memory, program));
    fprintf(stream, ", \"messages_sent\": %llu", (unsigned long long)load.messages);
    if (costs->bytes > 0)
        fprintf(stream, ", \"bytes_sent\": %.17g", load.bytes_sent);
    if (load.peak_memory > 0)
        fprintf(stream, ", \"peak_memory\": %.17g", load.peak_memory);
    putc('}', stream);
}

/* Prints a pass, U or pair (F&B, F&F) of the critical path as a JSON object. Its name is that of its cell in
   --emit=csv, but without the version of an F. */
static void put_pass(const Picture *picture, const CriticalPass *at, FILE *stream)
{
    const Order *order = &picture->schedule->orders[at->rank];
    const bool second = at->position > 0 && order->actions[at->position - 1].overlap;
    const Action *first = &order->actions[second ? at->position - 1 : at->position];
    char text[64], other[64];
    action_text(picture->schedule, first, text, sizeof text);
    fprintf(stream, "\n  {\"rank\": %u, \"pass\": \"", at->rank);
    if (first->overlap) {
        action_text(picture->schedule, first + 1, other, sizeof other);
        fprintf(stream, "(%s;%s)%s", text, other, action_pair_name(first + 1));
    } else {
        fputs(text, stream);
    }
    fprintf(stream, "\", \"start\": %.17g, \"end\": %.17g, \"line\": %u}",
            picture->times->start[at->rank][at->position], picture->times->end[at->rank][at->position],
            source_line(picture->source, order->actions[at->position].span.begin));
}

static void put_recipe(const Schedule *schedule, const Costs *costs, const Recipe *recipe, const RecipeTimes *times,
                       FILE *stream)
{
    fprintf(stream, "\"makespan\": %.17g, \"in_turn\": %.17g, \"compute\": %.17g, \"comm\": %.17g, \"hidden\": %.17g",
            times->makespan, times->in_turn, times->busy[RECIPE_COMPUTE], times->busy[RECIPE_COMM], times->hidden);
    if (recipe->share)
        fprintf(stream, ", \"share\": %u, \"whole\": %u", recipe->share, recipe->whole);
    if (recipe_put_off(recipe))
        fprintf(stream, ", \"after\": %.17g", costs_longest_put_off(costs, schedule->pipes[0].stages, recipe));
    putc('}', stream);
}

static void put_overlap(const Schedule *schedule, const Costs *costs, Arena *arena, FILE *stream)
{
    const Recipes *recipes = &schedule->recipes;
    if (recipes->common) {
        const RecipeTimes times = recipe_times(recipes->common, costs, arena);
        if (times.makespan > 0) {
            fputs(",\n \"overlap\": {", stream);
            put_recipe(schedule, costs, recipes->common, &times, stream);
        }
    }
    uint32_t listed = 0;
    for (uint32_t i = 0; i < recipes->count; i++) {
        const ChunkRecipe *own = &recipes->own[i];
        const RecipeTimes times = recipe_times(&own->recipe, costs, arena);
        if (times.makespan <= 0)
            continue;
        fprintf(stream, "%s\n  {\"first\": %u, \"second\": %u, ", listed++ ? "," : ",\n \"overlap_of_chunks\": [",
                own->first, own->second);
        put_recipe(schedule, costs, &own->recipe, &times, stream);
    }
    if (listed)
        putc(']', stream);
}

static void put_derived(const Picture *picture, FILE *stream)
{
    const uint32_t used = schedule_costs_used(picture->schedule);
    if (!costs_has_derived(picture->times->costs, used))
        return;
    fputs(",\n \"derived_costs\": ", stream);
    costs_put_derived_json(picture->times->costs, used, stream);
}

static void put_chosen(const Schedule *schedule, FILE *stream)
{
    if (!schedule->chosen_count)
        return;
    fputs(",\n \"chosen\": {", stream);
    for (uint32_t i = 0; i < schedule->chosen_count; i++)
        fprintf(stream, "%s\"%s\": %" PRId64, i ? ", " : "", schedule->chosen[i].name, schedule->chosen[i].value);
    putc('}', stream);
}

static void put_proven(const Proven *proven, double makespan, FILE *stream)
{
    const Gap gap = gap_to(makespan, proven->bound);
    fprintf(stream, ",\n \"proven\": {\"bound\": %.17g, \"gap\": %.17g, \"shortest\": %.17g}", gap.bound, gap.gap,
            proven->shortest);
}

void emit_stats(const Picture *picture, const Memory *memory, Arena *arena, FILE *stream)
{
    const Schedule *schedule = picture->schedule;
    const Bubble bubble = timeline_bubble(schedule, picture->times);
    const BubbleCauses causes = timeline_bubble_causes(schedule, picture->table, picture->times, arena);
    json_put_member("{\"schedule\": ", schedule->name, stream);
    fprintf(stream,
            ", \"ranks\": %u, \"microbatches\": %u, \"makespan\": %.17g, \"bound\": %.17g, \"gap\": %.17g, \"cost\": "
            "%.17g, "
            "\"bubble_rate\": %.17g,\n \"imbalance\": %.17g, \"order_bubble\": %.17g, \"messages_time\": %.17g, "
            "\"per_rank\": [",
            schedule->ranks, schedule->microbatches, picture->times->makespan, picture->gap.bound, picture->gap.gap,
            bubble.cost, bubble.rate, causes.imbalance, causes.order, causes.messages);
    for (uint32_t r = 0; r < schedule->ranks; r++) {
        fputs(r ? ",\n  " : "\n  ", stream);
        put_rank(picture, memory, r, stream);
    }
    fputs("],\n \"critical_path\": [", stream);
    CriticalPass *path;
    const uint32_t count = critical_path(schedule, picture->table, picture->times, arena, &path);
    for (uint32_t i = 0; i < count; i++) {
        fputs(i ? "," : "", stream);
        put_pass(picture, &path[i], stream);
    }
    putc(']', stream);
    memory_put_missing(memory->given ? memory_missing(memory, picture->program) : 0, stream);
    put_overlap(schedule, picture->times->costs, arena, stream);
    put_derived(picture, stream);
    put_chosen(schedule, stream);
    if (picture->proven)
        put_proven(picture->proven, picture->times->makespan, stream);
    fputs("}\n", stream);
}
