#include "compiler/command/check.h"

#include "compiler/compile.h"
#include "base/counted.h"
#include "base/text.h"

#include <inttypes.h>

static Status check_order(const Options *options, Compilation *c, FILE *sweeps, FILE *errors, CheckedOrder *checked,
                          Error *error)
{
    const Sweep *ranges = &options->sweep;
    const Status status = ranges->text ? sweep(ranges, c, errors, &checked->swept, error) : compile_order(c, error);
    if (ranges->text && sweeps && (checked->swept.proven || checked->swept.failure_count))
        sweep_print(ranges, &checked->swept, c, sweeps, errors);
    if (status == STATUS_BAD_INPUT) {
        const SweepFailure *failure = checked->swept.failure_count ? checked->swept.failures : NULL;
        const char *words = *error->text ? arena_format(c->arena, "%s\n", error->text) : "";
        checked->refused =
            arena_format(c->arena, "%s%s", diag_text(failure ? failure->diagnostics : c->diagnostics, c->arena), words);
        *error->text = 0;
        return STATUS_OK;
    }
    checked->schedule = &c->schedule;
    if (status == STATUS_OK && !ranges->text)
        checked->weakest = channels_judge_all(&c->schedule, &c->table, c->arena, checked->verdicts);
    return status;
}

Status check_orders(const Options *options, Arena *arena, FILE *sweeps, FILE *errors, CheckedOrder *orders,
                    Error *error)
{
    Compilation *compilations = arena_array(arena, (size_t)options->trials.input_count, sizeof *compilations);
    Source *sources = arena_array(arena, (size_t)options->trials.input_count, sizeof *sources);
    for (int i = 0; i < options->trials.input_count; i++) {
        CheckedOrder *checked = &orders[i];
        TRY(source_read(options->trials.inputs[i], arena, &sources[i], error));
        compilations[i] = (Compilation){.arena = arena,
                                        .source = &sources[i],
                                        .parameters = &options->trials.parameters,
                                        .costs = &options->trials.costs};
        *checked = (CheckedOrder){.path = sources[i].path};
        TRY(check_order(options, &compilations[i], sweeps, errors, checked, error));
    }
    return STATUS_OK;
}

bool check_is_safe(const Options *options, const CheckedOrder *orders)
{
    const Channels asked = options->channels < CHANNEL_MODELS ? options->channels : CHANNELS_KIND;
    bool safe = true;
    for (int i = 0; i < options->trials.input_count; i++)
        safe = safe && !orders[i].refused && orders[i].weakest <= asked;
    return safe;
}

/* --- output --- */

static void put_verdict(const CheckedOrder *checked, Channels channels, const char *before, Arena *arena, FILE *stream)
{
    const ChannelVerdict *verdict = &checked->verdicts[channels];
    fprintf(stream, "%s%s with %s: %s\n", before, safety_names[verdict->safety], channel_names[channels],
            channel_verdict_text(checked->schedule, verdict, arena));
}

void check_put_text(const Options *options, const CheckedOrder *orders, Arena *arena, FILE *stream)
{
    for (int i = 0; i < options->trials.input_count; i++) {
        const CheckedOrder *checked = &orders[i];
        const Channels weakest = checked->weakest, asked = options->channels;
        if (checked->refused) {
            if (!options->sweep.text)
                fputs(checked->refused, stream);
            continue;
        }
        fprintf(stream, "%s: ", checked->path);
        if (asked < CHANNEL_MODELS && asked < weakest)
            put_verdict(checked, asked, "", arena, stream);
        else if (asked < CHANNEL_MODELS)
            fprintf(stream, "safe with %s\n", channel_names[asked]);
        else if (weakest == CHANNEL_MODELS)
            put_verdict(checked, CHANNELS_KIND, "safe with no channels; it ", arena, stream);
        else if (weakest == CHANNELS_RENDEZVOUS)
            fputs("safe on all channels, even if each send waits for its receive (rendezvous)\n", stream);
        else
            fprintf(stream, "needs %s (%s)\n", channel_words[weakest], channel_names[weakest]);
        if (asked == CHANNEL_MODELS && weakest > 0 && weakest < CHANNEL_MODELS)
            put_verdict(checked, weakest - 1, "  ", arena, stream);
        if (checked->schedule->resident)
            fprintf(stream, "  the weights of at most %s of a rank are gathered at once (UNSHARD)\n",
                    counted(checked->schedule->resident, "stage").text);
    }
}

static void put_action(const CheckedOrder *checked, uint32_t rank, uint32_t position, FILE *stream)
{
    char text[48];
    action_text(checked->schedule, &checked->schedule->orders[rank].actions[position], text, sizeof text);
    json_put_string(text, stream);
}

/* The two messages or the cycle of a verdict that is not SAFE, and its words. */
static void put_detail(const CheckedOrder *checked, Channels channels, Arena *arena, FILE *stream)
{
    const ChannelVerdict *verdict = &checked->verdicts[channels];
    if (verdict->safety == SAFE)
        return;
    fprintf(stream, ", \"%s_why\": ", channel_names[channels]);
    json_put_string(channel_verdict_text(checked->schedule, verdict, arena), stream);
    if (verdict->safety == SWAPS) {
        fprintf(stream, ", \"%s_swap\": {\"message\": %u, \"sender\": %u, \"sent\": ", channel_names[channels],
                verdict->number, verdict->sender);
        put_action(checked, verdict->sender, verdict->sent, stream);
        fprintf(stream, ", \"receiver\": %u, \"received\": ", verdict->receiver);
        put_action(checked, verdict->receiver, verdict->received, stream);
        putc('}', stream);
    }
    for (uint32_t i = 0; verdict->safety == DEADLOCKS && i < verdict->deadlock.cycle; i++) {
        const Wait *wait = &verdict->deadlock.waits[i];
        fprintf(stream, i ? ", " : ", \"%s_cycle\": [", channel_names[channels]);
        fprintf(stream, "{\"rank\": %u, \"at\": ", wait->rank);
        put_action(checked, wait->rank, wait->at, stream);
        fprintf(stream, ", \"waits_for\": %u, \"until\": ", wait->on);
        put_action(checked, wait->on, wait->until, stream);
        fputs(i + 1 == verdict->deadlock.cycle ? "}]" : "}", stream);
    }
}

void check_put_json(const Options *options, const CheckedOrder *orders, Arena *arena, FILE *stream)
{
    fputs("{\"orders\": [", stream);
    for (int i = 0; i < options->trials.input_count; i++) {
        const CheckedOrder *checked = &orders[i];
        json_put_member(i ? ",\n  {\"file\": " : "\n  {\"file\": ", checked->path, stream);
        if (options->sweep.text)
            fprintf(stream, ", \"proven\": %" PRIu64 ", \"failed\": %" PRIu64, checked->swept.proven,
                    checked->swept.failed);
        if (checked->refused) {
            json_put_member(", \"refused\": ", checked->refused, stream);
        }
        for (Channels channels = 0; !checked->refused && channels < CHANNEL_MODELS; channels++) {
            fprintf(stream, ", \"%s\": \"%s\"", channel_names[channels],
                    safety_names[checked->verdicts[channels].safety]);
            put_detail(checked, channels, arena, stream);
        }
        if (!checked->refused && checked->weakest == CHANNEL_MODELS)
            fputs(", \"weakest\": null, \"needs\": null", stream);
        else if (!checked->refused)
            fprintf(stream, ", \"weakest\": \"%s\", \"needs\": \"%s\"", channel_names[checked->weakest],
                    channel_words[checked->weakest]);
        if (!checked->refused && checked->schedule->resident)
            fprintf(stream, ", \"resident_stages\": %u", checked->schedule->resident);
        putc('}', stream);
    }
    fputs("]}\n", stream);
}
