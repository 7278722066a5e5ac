/* Calls on several schedules: compare, advise and check. */

#include "library/internal.h"

#include "study/trials/advise.h"
#include "compiler/command/check.h"
#include "study/trials/compare.h"
#include "study/trials/trial.h"

#include <string.h>

typedef struct Request {
    const char *const *paths;
    size_t count;
    const dps_options *options;
    uint32_t seconds, allow; /* arguments of dps_advise */
    char **json;
    size_t *length;
} Request;

/* Translates a request of the caller into the settings of dpc's trials. */
static Status take_request(dps *d, const Request *request, TrialSettings *taken)
{
    dps_options options = {0};
    Arena *const arena = &d->working;
    if (request->options && !STRUCT_IN(&options, request->options))
        return error_set(&d->error, STATUS_BAD_USAGE, STRUCT_REFUSED, "dps_options");
    if (!request->count)
        return error_set(&d->error, STATUS_BAD_USAGE, "paths: name at least one schedule");
    TRY(texts_check("paths", request->paths, request->count, &d->error));
    TRY(texts_check("costs", options.costs, options.cost_count, &d->error));
    if (options.replicas > PROGRAM_RANKS_MAX)
        return error_set(&d->error, STATUS_BAD_USAGE, "replicas is %u; there can be at most %d", options.replicas,
                         PROGRAM_RANKS_MAX);
    if (request->allow & ~(uint32_t)(DPS_ALLOW_ASYNC | DPS_ALLOW_NAIVE))
        return error_set(&d->error, STATUS_BAD_USAGE, "allow is %u; it is made of DPS_ALLOW_ASYNC and DPS_ALLOW_NAIVE",
                         request->allow);
    char **const inputs = arena_array(arena, request->count, sizeof *inputs);
    for (size_t i = 0; i < request->count; i++)
        inputs[i] = arena_format(arena, "%s", host_path(request->paths[i]));
    *taken = (TrialSettings){.inputs = inputs,
                             .input_count = (int)request->count,
                             .own = arena_array(arena, request->count + 1, sizeof *taken->own),
                             .program = "dpc",
                             .allow_async = request->allow & DPS_ALLOW_ASYNC,
                             .allow_naive = request->allow & DPS_ALLOW_NAIVE,
                             .seconds = request->seconds ? request->seconds : DPS_ADVISE_SECONDS,
                             .replicas = options.replicas,
                             .costs = costs_unit,
                             .cost_count = (int)options.cost_count,
                             .cost_texts = arena_array(arena, options.cost_count, sizeof *taken->cost_texts)};
    taken->costs.front_end = taken->parameters.front_end = taken->memory.front_end = d->front_end;
    for (uint32_t i = 0; i < options.cost_count; i++)
        taken->cost_texts[i] = options.costs[i];
    TRY(options_take(&options, arena, &taken->parameters, &taken->costs, &taken->memory, &d->error));
    return trial_check_replicas(options.replicas, &taken->costs, &d->error);
}

/* Returns `status` of a failed call. Sets the error text to `diagnostics` without the last line break, unless these are
   NULL or empty. */
static Status fail(dps *d, Status status, const char *diagnostics)
{
    if (diagnostics && *diagnostics)
        d->words = arena_text(&d->report, diagnostics, strlen(diagnostics) - 1);
    return status;
}

static Status give_text(dps *d, const Request *request)
{
    size_t length;
    const char *const text = text_end(d, &length);
    *request->json = host_text(d, text, length);
    if (request->length)
        *request->length = length;
    return STATUS_OK;
}

static Status compare_body(dps *d, void *arguments)
{
    const Request *request = arguments;
    TrialSettings settings;
    CompareTable table;
    TRY(take_request(d, request, &settings));
    const Status status = compare(&settings, &d->working, &table, &d->error);
    if (status != STATUS_OK)
        return fail(d, status, table.diagnostics);
    compare_put_json(&table, text_begin(d));
    return give_text(d, request);
}

dps_status dps_compare(dps *d, const char *const *paths, size_t count, const dps_options *options, char **json,
                       size_t *length)
{
    Request request = {.paths = paths, .count = count, .options = options, .json = json, .length = length};
    return CALL(d, compare_body, &request, NEEDED(paths), RESULT(json));
}

static Status check_body(dps *d, void *arguments)
{
    const Request *request = arguments;
    Options options = {.channels = CHANNELS_RENDEZVOUS};
    TRY(take_request(d, request, &options.trials));
    CheckedOrder *orders = arena_array(&d->working, request->count, sizeof *orders);
    TRY(check_orders(&options, &d->working, NULL, NULL, orders, &d->error));
    check_put_json(&options, orders, &d->working, text_begin(d));
    return give_text(d, request);
}

dps_status dps_check(dps *d, const char *const *paths, size_t count, const dps_options *options, char **json,
                     size_t *length)
{
    Request request = {.paths = paths, .count = count, .options = options, .json = json, .length = length};
    return CALL(d, check_body, &request, NEEDED(paths), RESULT(json));
}

static Status advise_body(dps *d, void *arguments)
{
    const Request *request = arguments;
    const TrialsControl control = {.installed = false};
    TrialSettings settings;
    Advice advice = {.diagnostics = NULL};
    TRY(take_request(d, request, &settings));
    if (!settings.parameters.has_ranks || !settings.parameters.has_microbatches)
        return error_set(&d->error, STATUS_BAD_USAGE,
                         "dps_advise needs `ranks` and `microbatches`: the numbers for which to compare the schedules");
    const Status status = advise(&settings, &control, &d->working, &advice, &d->error);
    if (status != STATUS_OK)
        return fail(d, status, advice.diagnostics);
    advice_put_json(&advice, &d->working, text_begin(d));
    return give_text(d, request);
}

dps_status dps_advise(dps *d, const char *const *paths, size_t count, const dps_options *options, uint32_t seconds,
                      uint32_t allow, char **json, size_t *length)
{
    Request request = {.paths = paths,
                       .count = count,
                       .options = options,
                       .seconds = seconds,
                       .allow = allow,
                       .json = json,
                       .length = length};
    return CALL(d, advise_body, &request, NEEDED(paths), RESULT(json));
}
