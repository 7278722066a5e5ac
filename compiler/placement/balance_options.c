#include "compiler/placement/balance_options.h"

#include "runtime/base/file.h"
#include "runtime/base/names.h"

#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

const char balance_help[] =
    "dpc balance: places replicas of experts on GPUs, so that all GPUs have about the same load\n"
    "usage: dpc balance --replicas R --gpus N [options] LOADS.csv\n"
    "LOADS.csv has a row a layer and a column an expert: its load, such as a count of tokens. - reads standard input.\n"
    "  --replicas R            physical experts of a layer, all GPUs together: each expert has one or more (EPLB's "
    "num_replicas)\n"
    "  --gpus N                the GPUs that share them\n"
    "  --groups G --nodes K    the experts are in G groups, the GPUs in K nodes; where K divides G, all replicas of a "
    "group's\n"
    "                          experts are on one node\n"
    "  --method best           the least load on the fullest GPU that it finds, never more than eplb's; the default\n"
    "           eplb           the published algorithm of DeepSeek's EPLB, to the bit\n"
    "  --from PLACEMENT        the placement in force, as --csv prints it; what stays on a GPU stays in its slot\n"
    "  --moves B               at most B moves a layer; a move is a physical expert that its GPU does not hold yet\n"
    "  --threshold T           a layer whose balance would rise by less than T keeps its placement\n"
    "  --distinct              no expert twice on a GPU, and what that costs\n"
    "  --csv                   prints the placement: a row a layer, the expert of each physical expert, GPU after GPU\n"
    "  --json                  prints one object: placement, count, balance, bound, moves\n"
    "  --emit=svg[:FILE]       draws the loads of the GPUs before and after\n"
    "  --help\n"
    "Without --csv and --json it prints a table: the balance of each layer, which is the mean load of a GPU over the "
    "largest.\n";

enum {
    AN_INPUT = 1,
    REPLICAS = 256,
    GPUS,
    GROUPS,
    NODES,
    FROM,
    MOVES,
    THRESHOLD,
    DISTINCT,
    METHOD,
    CSV,
    JSON,
    EMIT,
    HELP
};

static const struct option known[] = {{"replicas", required_argument, NULL, REPLICAS},
                                      {"gpus", required_argument, NULL, GPUS},
                                      {"groups", required_argument, NULL, GROUPS},
                                      {"nodes", required_argument, NULL, NODES},
                                      {"from", required_argument, NULL, FROM},
                                      {"moves", required_argument, NULL, MOVES},
                                      {"threshold", required_argument, NULL, THRESHOLD},
                                      {"distinct", no_argument, NULL, DISTINCT},
                                      {"method", required_argument, NULL, METHOD},
                                      {"csv", no_argument, NULL, CSV},
                                      {"json", no_argument, NULL, JSON},
                                      {"emit", required_argument, NULL, EMIT},
                                      {"help", no_argument, NULL, HELP},
                                      {NULL, 0, NULL, 0}};

static Status unknown_option(const char *written, Error *error)
{
    NearestWord nearest = nearest_to(written + strspn(written, "-"));
    for (const struct option *option = known; option->name; option++)
        nearest_consider(&nearest, option->name);
    return error_set(error, STATUS_BAD_USAGE, "balance: unknown option %s; %s%s%sdpc balance --help lists them",
                     written, nearest.word ? "did you mean --" : "", nearest.word ? nearest.word : "",
                     nearest.word ? "? " : "");
}

static Status parse_count(const char *option, const char *text, uint32_t least, uint32_t *value, Error *error)
{
    char *end;
    errno = 0;
    const long long read = strtoll(text, &end, 10);
    if (end == text || *end || errno || read < least || read > BALANCE_REPLICAS_MAX)
        return error_set(error, STATUS_BAD_USAGE, "balance: --%s needs a whole number from %u to %d, not '%s'", option,
                         least, BALANCE_REPLICAS_MAX, text);
    *value = (uint32_t)read;
    return STATUS_OK;
}

static Status parse_threshold(const char *text, double *value, Error *error)
{
    char *end;
    *value = strtod(text, &end);
    if (end == text || *end || !(*value >= 0 && *value <= 1))
        return error_set(error, STATUS_BAD_USAGE, "balance: --threshold needs a number from 0 to 1, not '%s'", text);
    return STATUS_OK;
}

static Status parse_method(const char *text, BalanceOptions *options, Error *error)
{
    options->eplb = strcmp(text, "eplb") == 0;
    if (!options->eplb && strcmp(text, "best") != 0)
        return error_set(error, STATUS_BAD_USAGE, "balance: --method %s: there are best and eplb", text);
    return STATUS_OK;
}

static Status parse_emit(const char *text, BalanceOptions *options, Error *error)
{
    if (strcmp(text, "svg") != 0 && (strncmp(text, "svg:", 4) != 0 || !text[4]))
        return error_set(error, STATUS_BAD_USAGE, "balance: --emit=%s: there is svg, or svg:FILE", text);
    options->svg = text[3] ? text + 4 : "-";
    return STATUS_OK;
}

static Status take_input(const char *path, BalanceOptions *options, Error *error)
{
    if (options->loads)
        return error_set(error, STATUS_BAD_USAGE, "balance: one file of loads at a time: %s or %s", options->loads,
                         path);
    options->loads = path;
    return STATUS_OK;
}

static Status take_format(BalanceFormat format, BalanceOptions *options, Error *error)
{
    if (options->format != BALANCE_TEXT && options->format != format)
        return error_set(error, STATUS_BAD_USAGE, "balance: --csv or --json, not both");
    options->format = format;
    return STATUS_OK;
}

static Status take_option(int option, BalanceOptions *options, Error *error)
{
    switch (option) {
    case AN_INPUT: return take_input(optarg, options, error);
    case REPLICAS: return parse_count("replicas", optarg, 1, &options->shape.replicas, error);
    case GPUS: return parse_count("gpus", optarg, 1, &options->shape.gpus, error);
    case GROUPS: return parse_count("groups", optarg, 1, &options->shape.groups, error);
    case NODES: return parse_count("nodes", optarg, 1, &options->shape.nodes, error);
    case FROM: options->from = optarg; return STATUS_OK;
    case MOVES: options->limited = true; return parse_count("moves", optarg, 0, &options->request.moves, error);
    case THRESHOLD: options->limited = true; return parse_threshold(optarg, &options->request.threshold, error);
    case DISTINCT: options->request.distinct = true; return STATUS_OK;
    case METHOD: return parse_method(optarg, options, error);
    case CSV: return take_format(BALANCE_CSV, options, error);
    case EMIT: return parse_emit(optarg, options, error);
    case JSON: return take_format(BALANCE_JSON, options, error);
    default: options->help = true; return STATUS_OK;
    }
}

static Status check_complete(const BalanceOptions *options, Error *error)
{
    if (!options->loads)
        return error_set(error, STATUS_BAD_USAGE,
                         "balance: no loads given: dpc balance --replicas R --gpus N LOADS.csv");
    if (!options->shape.replicas || !options->shape.gpus)
        return error_set(error, STATUS_BAD_USAGE,
                         "balance: --replicas, the physical experts of a layer, and --gpus are needed");
    if (options->limited && !options->from)
        return error_set(error, STATUS_BAD_USAGE,
                         "balance: --moves and --threshold go with --from, the placement in force");
    if (options->eplb && (options->limited || options->request.distinct))
        return error_set(error, STATUS_BAD_USAGE, "balance: --moves, --threshold and --distinct go with --method best");
    if (options->from && strcmp(options->from, "-") == 0 && strcmp(options->loads, "-") == 0)
        return error_set(error, STATUS_BAD_USAGE, "balance: standard input is either the loads or the placement");
    return STATUS_OK;
}

Status balance_options_parse(int argc, char **argv, BalanceOptions *options, Error *error)
{
    *options = (BalanceOptions){.shape = {.groups = 1, .nodes = 1}, .request = {.moves = UINT32_MAX}};
    opterr = 0;
    optind = 0;
    for (int option; (option = getopt_long(argc, argv, "-:", known, NULL)) != -1;) {
        if (option == ':')
            return error_set(error, STATUS_BAD_USAGE, "balance: %s needs a value", argv[optind - 1]);
        if (option == '?')
            return unknown_option(argv[optind - 1], error);
        TRY(take_option(option, options, error));
        if (options->help)
            return STATUS_OK;
    }
    while (optind < argc) /* after -- */
        TRY(take_input(argv[optind++], options, error));
    TRY(check_complete(options, error));
    if (options->svg && strcmp(options->svg, "-") == 0) {
        if (options->format != BALANCE_TEXT)
            return error_set(error, STATUS_BAD_USAGE, "balance: standard output is for one of them: --emit=svg:FILE");
        options->format = BALANCE_NOTHING;
    }
    const char *const inputs[] = {options->loads, options->from};
    return file_keep_apart(&options->svg, 1, inputs, 2, error);
}
