#include "compiler/placement/balance_options.h"

#include "base/file.h"
#include "base/option_table.h"

#include <stdlib.h>
#include <string.h>

#define TAKE(what) \
    static Status take_##what(const Option *option, const char *value, void *target, Arena *arena, Error *error)

TAKE(threshold)
{
    BalanceOptions *options = target;
    char *end;
    (void)arena;
    options->request.threshold = strtod(value, &end);
    if (end == value || *end || !(options->request.threshold >= 0 && options->request.threshold <= 1))
        return option_refuse(option, value, error, "a number from 0 to 1");
    return STATUS_OK;
}

TAKE(method)
{
    BalanceOptions *options = target;
    const char *method;
    TRY(option_choice(option, value, &method, arena, error));
    options->eplb = strcmp(method, "eplb") == 0;
    return STATUS_OK;
}

TAKE(format)
{
    (void)value, (void)arena, (void)error;
    ((BalanceOptions *)target)->format = strcmp(option->name, "csv") == 0 ? BALANCE_CSV : BALANCE_JSON;
    return STATUS_OK;
}

TAKE(emit)
{
    (void)arena;
    if (strcmp(value, "svg") != 0 && (strncmp(value, "svg:", 4) != 0 || !value[4]))
        return option_refuse(option, value, error, "svg or svg:FILE");
    ((BalanceOptions *)target)->svg = value[3] ? value + 4 : "-";
    return STATUS_OK;
}

TAKE(loads)
{
    BalanceOptions *options = target;
    (void)option, (void)arena;
    if (options->loads)
        return error_set(error, STATUS_BAD_USAGE, "one file of loads at a time: %s or %s", options->loads, value);
    options->loads = value;
    return STATUS_OK;
}

#define FIELD(name) .field = offsetof(BalanceOptions, name)
#define COUNT(name, from) option_number, FIELD(name), .least = (from), .most = BALANCE_REPLICAS_MAX

/* clang-format off */
static const Option rows[] = {
    {"replicas", "R", COUNT(shape.replicas, 1),
     .help = "physical experts of a layer, all GPUs together: each expert has one or more (EPLB's num_replicas)"},
    {"gpus", "N", COUNT(shape.gpus, 1), .help = "the GPUs that share them"},
    {"groups", "G", COUNT(shape.groups, 1), .help = "the experts are in G groups,"},
    {"nodes", "K", COUNT(shape.nodes, 1), .needs = "groups",
     .help = "the GPUs in K nodes; where K divides G, all replicas of a group's experts are on one node"},
    {"method", "best|eplb", take_method, .words = "best eplb", .excludes = "moves threshold distinct", .when = "eplb",
     .because = "is the published algorithm",
     .help = "best, the default: the least load on the fullest GPU that it finds, never more than eplb's; eplb: the "
             "published algorithm of DeepSeek's EPLB, to the bit"},
    {"from", "PLACEMENT", option_text, FIELD(from),
     .help = "the current placement, as --csv prints it; what stays on a GPU stays in its slot"},
    {"moves", "B", COUNT(request.moves, 0), .needs = "from",
     .help = "at most B moves a layer; a move is a physical expert that its GPU does not hold yet"},
    {"threshold", "T", take_threshold, .needs = "from",
     .help = "a layer whose balance would rise by less than T keeps its placement"},
    {"distinct", NULL, option_flag, FIELD(request.distinct), .help = "no expert twice on a GPU, and what that costs"},
    {"csv", NULL, take_format, .excludes = "json", .because = "prints the placement alone",
     .help = "prints the placement: a row a layer, the expert of each physical expert, GPU after GPU"},
    {"json", NULL, take_format, .help = "prints one object: placement, count, balance, bound, moves"},
    {"emit", "svg[:FILE]", take_emit, .help = "draws the loads of the GPUs before and after"},
    {"help", NULL, NULL, .help = "prints this"},
    {.name = NULL},
};

static const OptionTable table = {
    .program = "dpc balance",
    .column = 26,
    .usage =
        "dpc balance: places replicas of experts on GPUs, so that all GPUs have about the same load\n"
        "usage: dpc balance --replicas R --gpus N [options] LOADS.csv\n"
        "LOADS.csv has a row a layer and a column an expert: its load, such as a count of tokens. - reads standard "
        "input.\n",
    .after =
        "Without --csv and --json it prints a table: the balance of each layer, which is the mean load of a GPU, "
        "divided by the largest.\n",
    .rows = rows,
    .input = take_loads,
};
/* clang-format on */

void balance_help(FILE *stream) { options_print_help(&table, stream); }

static Status check_complete(const BalanceOptions *options, Error *error)
{
    const bool sized = options->shape.replicas && options->shape.gpus;
    if (!options->loads || !sized)
        return error_set(
            error, STATUS_BAD_USAGE, "%s: dpc balance --replicas R --gpus N LOADS.csv; dpc balance --help says more",
            options->loads ? "--replicas (the physical experts of a layer) and --gpus are needed" : "no loads given");
    if (options->from && strcmp(options->from, "-") == 0 && strcmp(options->loads, "-") == 0)
        return error_set(error, STATUS_BAD_USAGE,
                         "LOADS.csv and --from are both -: standard input can be only one of them");
    return STATUS_OK;
}

static Status parse(int argc, char **argv, Arena *arena, BalanceOptions *options, Error *error)
{
    OptionsGiven given;
    TRY(options_take(&table, argc, argv, options, arena, &given, error));
    options->help = options_given(&table, &given, "help");
    if (options->help)
        return STATUS_OK;
    TRY(check_complete(options, error));
    TRY(options_check(&table, 0, &given, error));
    if (options->svg && strcmp(options->svg, "-") == 0) {
        if (options->format != BALANCE_TEXT)
            return error_set(error, STATUS_BAD_USAGE,
                             "standard output cannot have both the picture and --csv or --json: write the picture to a "
                             "file with --emit=svg:FILE");
        options->format = BALANCE_NOTHING;
    }
    const char *const inputs[] = {options->loads, options->from};
    return file_keep_apart(&options->svg, 1, inputs, 2, error);
}

Status balance_options_parse(int argc, char **argv, Arena *arena, BalanceOptions *options, Error *error)
{
    *options = (BalanceOptions){.shape = {.groups = 1, .nodes = 1}, .request = {.moves = UINT32_MAX}};
    const Status status = parse(argc, argv, arena, options, error);
    if (status == STATUS_BAD_USAGE)
        error_prefix(error, "balance: ");
    return status;
}
