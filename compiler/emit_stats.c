#include "compiler/emit.h"

/* Names come from the source's identifiers and file names: quotes, backslashes and control characters have to be escaped. */
static void put_json_text(const char *text, FILE *stream)
{
    putc('"', stream);
    for (const char *c = text; *c; c++) {
        if (*c == '"' || *c == '\\')
            fprintf(stream, "\\%c", *c);
        else if ((unsigned char)*c < 0x20)
            fprintf(stream, "\\u%04x", (unsigned)(unsigned char)*c);
        else
            putc(*c, stream);
    }
    putc('"', stream);
}

void emit_stats(const Schedule *schedule, const Timeline *timeline, const RankPlan *plans, const Memory *memory, FILE *stream)
{
    double cost = 0, work = 0;
    for (uint32_t r = 0; r < schedule->ranks; r++) {
        const RankTimes times = timeline_rank(schedule, timeline, r);
        if (times.end - times.start > cost)
            cost = times.end - times.start;
        work += times.busy / schedule->ranks;
    }
    fputs("{\"schedule\": ", stream);
    put_json_text(schedule->name, stream);
    fprintf(stream, ", \"ranks\": %u, \"microbatches\": %u, \"makespan\": %.17g, \"cost\": %.17g, \"bubble_rate\": %.17g, \"per_rank\": [",
            schedule->ranks, schedule->microbatches, timeline->makespan, cost, cost > 0 ? (cost - work) / cost : 0);
    for (uint32_t r = 0; r < schedule->ranks; r++) {
        const RankTimes times = timeline_rank(schedule, timeline, r);
        fprintf(stream, "%s\n  {\"start\": %.17g, \"end\": %.17g, \"busy\": %.17g, \"peak_activations\": %u,\n", r ? "," : "", times.start,
                times.end, times.busy, plans[r].peak_activations);
        const uint32_t *slots = plans[r].slots;
        fprintf(stream, "   \"slots\": {\"message\": %u, \"context\": %u, \"stash\": %u, \"gradient\": %u, \"weights\": %u}",
                slots[SLOT_MESSAGE], slots[SLOT_CONTEXT], slots[SLOT_STASH], slots[SLOT_GRADIENT], slots[SLOT_WEIGHTS]);
        if (memory->has_sizes)
            fprintf(stream, ", \"bytes\": %llu", (unsigned long long)memory_bytes(memory, schedule, plans, r));
        putc('}', stream);
    }
    fputs("]}\n", stream);
}
