/* The command line of dprun. */
#include "runtime/vm/vm.h"

#include "runtime/base/file.h"
#include "runtime/base/names.h"
#include "runtime/launcher/launched.h"

#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

const char options_help[] =
    "usage: dprun [options] prog.bin               all ranks in this process\n"
    "       mpirun -n P dprun [options] prog.bin   one rank a process\n"
    "\n"
    "Trains a model by a pipeline schedule that dpc compiled.\n"
    "\n"
    "  --steps N          steps to run (default 400; with --forward-only 1, with --device sim 3)\n"
    "  --data FILE        train on the bytes of FILE (default: a text that every Debian has)\n"
    "  --model NAME|FILE  gpt (default), mlp, or a file of 'key = value' lines\n"
    "  --set KEY=VALUE    one setting of the model or the training, as in such a file; may be repeated\n"
    "  --held-out N|all   the loss at the end is over the first N tokens of the last tenth of the data (default "
    "65536)\n"
    "  --seed N           seed of the weights and the data order\n"
    "  --device KIND      auto, cpu, cuda (bfloat16 on GPUs), cuda-fp32; or sim: passes take the time that --cost says "
    "and\n"
    "                     compute nothing\n"
    "  --cost NAME=VALUE,...|@FILE  with --device sim: times as in dpc --cost, a unit being a millisecond unless unit= "
    "says\n"
    "                     its seconds\n"
    "  --transport KIND   auto (mpi under mpirun, else local), local, mpi or nccl\n"
    "  --rank-map LIST    process i runs rank LIST[i], such as 0,2,1,3; under mpirun\n"
    "  --deadline SECONDS the run is given up when no rank has moved for so long (default 60; 0: never)\n"
    "  --forward-only     run the schedule without its backward half\n"
    "  --in-turn          runs the halves of an F&B one after the other, for comparison\n"
    "  --reference        the whole model on one rank, microbatch after microbatch\n"
    "  --check            the program, then its --reference: are all numbers equal to the bit? (8 steps unless --steps "
    "says)\n"
    "  --outputs FILE     with --forward-only: the last stage's outputs, float32 little-endian, by microbatch number\n"
    "  --save FILE        the weights at the end\n"
    "  --load FILE        starts from weights that --save wrote, of any schedule; the optimizer begins anew\n"
    "  --trace FILE       the last steps as Chrome trace events\n"
    "  --trace-steps N    so many of them (default: up to 16)\n"
    "  --profile FILE     trains for 3 seconds (or --steps) and writes what each part of the model took and what a "
    "message\n"
    "                     took: costs for dpc --cost @FILE, of any schedule and any number of stages\n"
    "  --json             one JSON object a step on standard output\n"
    "  --overcommit       runs a plan of more memory than the machine, container or job has free\n"
    "  --help, --version\n"
    "\n"
    "Exit status: 0 good; 1 an input is wrong, or --check has found a difference; 2 the command line is wrong; 3 the "
    "run failed.\n";

enum { PROFILE_SECONDS = 3 };

static const char hint[] = "'dprun --help' lists the options";

static Status usage(Error *error, const char *option, const char *value, const char *wanted)
{
    return error_set(error, STATUS_BAD_USAGE, "%s: '%s' is not %s; %s", option, value, wanted, hint);
}

static Status parse_count(const char *option, const char *text, uint64_t least, uint64_t most, uint64_t *value,
                          Error *error)
{
    char *end;
    errno = 0;
    *value = strtoull(text, &end, 10);
    if (end == text || *end || errno || strchr(text, '-') || *value < least || *value > most) {
        char wanted[96];
        snprintf(wanted, sizeof wanted, "a whole number from %llu to %llu", (unsigned long long)least,
                 (unsigned long long)most);
        return usage(error, option, text, wanted);
    }
    return STATUS_OK;
}

static Status parse_held_out(const char *text, uint64_t *tokens, Error *error)
{
    *tokens = UINT64_MAX;
    if (strcmp(text, "all") == 0 || parse_count("--held-out", text, 1, UINT64_MAX - 1, tokens, error) == STATUS_OK)
        return STATUS_OK;
    return usage(error, "--held-out", text, "a number of tokens, or all");
}

static Status parse_seconds(const char *option, const char *text, double *seconds, Error *error)
{
    char *end;
    *seconds = strtod(text, &end);
    if (end == text || *end || (*seconds != 0 && !(*seconds >= 0.1 && *seconds <= 1e9)))
        return usage(error, option, text, "a number of seconds from 0.1 to 1e+09, or 0 for never");
    return STATUS_OK;
}

static Status parse_rank_map(const char *text, Arena *arena, RunOptions *options, Error *error)
{
    static const char wanted[] = "a list of all ranks, each once, such as 0,2,1,3";
    int count = 1;
    for (const char *next = text; *next; next++)
        count += *next == ',';
    int *map = arena_array(arena, (size_t)count, sizeof *map);
    bool *taken = arena_array(arena, (size_t)count, sizeof *taken);
    for (int i = 0; i < count; i++) {
        char *end;
        const long rank = *text >= '0' && *text <= '9' ? strtol(text, &end, 10) : -1;
        if (rank < 0 || rank >= count || taken[rank] || *end != (i + 1 < count ? ',' : '\0'))
            return usage(error, "--rank-map", optarg, wanted);
        taken[rank] = true;
        map[i] = (int)rank;
        text = end + 1;
    }
    options->rank_map = map;
    options->rank_map_count = count;
    return STATUS_OK;
}

static Status parse_device(const char *name, RunOptions *options, Error *error)
{
    static const char *const names[] = {"auto", "cpu", "cuda", "cuda-fp32", "sim"};
    options->device = name;
    options->simulated = strcmp(name, "sim") == 0;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(names[i], name) == 0)
            return STATUS_OK;
    return usage(error, "--device", name, "auto, cpu, cuda, cuda-fp32 or sim");
}

static Status parse_transport(const char *name, TransportChoice *choice, Error *error)
{
    if (strcmp(name, "auto") == 0)
        *choice = TRANSPORT_AUTO;
    else if (strcmp(name, "local") == 0)
        *choice = TRANSPORT_LOCAL;
    else if (strcmp(name, "mpi") == 0)
        *choice = TRANSPORT_MPI;
    else if (strcmp(name, "nccl") == 0)
        *choice = TRANSPORT_NCCL;
    else
        return usage(error, "--transport", name, "auto, local, mpi or nccl");
    return STATUS_OK;
}

/* A GPU's memory goes by NCCL between processes, which MPI started; and by copies between threads, or by NCCL there
   too. */
static void choose_transport(RunOptions *options)
{
    const bool gpu = strncmp(options->device, "cuda", 4) == 0;
    const bool launched = launched_processes() > 0;
    if (options->transport == TRANSPORT_AUTO)
        options->transport = !launched ? TRANSPORT_LOCAL : gpu ? TRANSPORT_NCCL : TRANSPORT_MPI;
    options->processes = options->transport == TRANSPORT_MPI || (options->transport == TRANSPORT_NCCL && launched);
    if (options->transport != TRANSPORT_LOCAL && strcmp(options->device, "auto") == 0)
        options->device = options->transport == TRANSPORT_NCCL ? "cuda" : "cpu";
}

/* What holds between options, once all are known. */
static Status check_together(const RunOptions *options, Error *error)
{
    if (options->outputs && !options->forward_only)
        return error_set(error, STATUS_BAD_USAGE, "--outputs goes with --forward-only; %s", hint);
    if (options->trace_steps && !options->trace)
        return error_set(error, STATUS_BAD_USAGE, "--trace-steps goes with --trace; %s", hint);
    if (options->save && options->forward_only)
        return error_set(error, STATUS_BAD_USAGE, "--save: with --forward-only no weights are learned; %s", hint);
    if (options->profile && options->forward_only)
        return error_set(error, STATUS_BAD_USAGE,
                         "--profile measures forward and backward: it goes with no --forward-only; %s", hint);
    if (options->transport == TRANSPORT_NCCL && strncmp(options->device, "cuda", 4) != 0)
        return error_set(error, STATUS_BAD_USAGE, "--transport nccl is for GPUs, not for --device %s", options->device);
    if (options->transport == TRANSPORT_MPI && strncmp(options->device, "cuda", 4) == 0)
        return error_set(error, STATUS_BAD_USAGE, "--transport mpi moves no memory of GPUs; nccl does");
    if (options->transport == TRANSPORT_LOCAL && launched_processes() > 1)
        return error_set(error, STATUS_BAD_USAGE,
                         "--transport local: each of the %d processes would run all ranks; leave it out, or start "
                         "dprun without mpirun",
                         launched_processes());
    if (options->check && options->processes)
        return error_set(error, STATUS_BAD_USAGE,
                         "--check runs the program and its reference in one process: start dprun without mpirun");
    if (options->check && (options->reference || options->simulated || options->outputs || options->save ||
                           options->trace || options->profile))
        return error_set(error, STATUS_BAD_USAGE,
                         "--check only compares: it goes with no --reference, --outputs, --save, --trace, --profile or "
                         "--device sim; %s",
                         hint);
    const char *const files[] = {options->outputs, options->save, options->trace, options->profile};
    int on_stdout = options->json;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        on_stdout += files[i] && strcmp(files[i], "-") == 0;
    if (on_stdout > 1)
        return error_set(error, STATUS_BAD_USAGE,
                         "standard output takes one of --json, --outputs, --save, --trace and --profile; %s", hint);
    if (options->rank_map && !options->processes)
        return error_set(error, STATUS_BAD_USAGE, "--rank-map says which process is which rank: start dprun by mpirun");
    const char *const read[] = {options->program, options->data, options->model_name};
    TRY(file_keep_apart(files, sizeof files / sizeof *files, read, sizeof read / sizeof *read, error));
    if (options->simulated && (options->data || options->load || options->save || options->outputs || options->profile))
        return error_set(
            error, STATUS_BAD_USAGE,
            "--device sim computes nothing: it goes with no --data, --load, --save, --outputs or --profile; %s", hint);
    return STATUS_OK;
}

enum {
    OPTION_STEPS = 256,
    OPTION_DATA,
    OPTION_HELD_OUT,
    OPTION_MODEL,
    OPTION_SET,
    OPTION_SEED,
    OPTION_DEVICE,
    OPTION_COST,
    OPTION_TRANSPORT,
    OPTION_RANK_MAP,
    OPTION_DEADLINE,
    OPTION_FORWARD_ONLY,
    OPTION_IN_TURN,
    OPTION_REFERENCE,
    OPTION_CHECK,
    OPTION_OUTPUTS,
    OPTION_SAVE,
    OPTION_LOAD,
    OPTION_TRACE,
    OPTION_TRACE_STEPS,
    OPTION_PROFILE,
    OPTION_JSON,
    OPTION_OVERCOMMIT,
    OPTION_HELP,
    OPTION_VERSION
};

static const struct option long_options[] = {
    {"steps", required_argument, NULL, OPTION_STEPS},
    {"data", required_argument, NULL, OPTION_DATA},
    {"held-out", required_argument, NULL, OPTION_HELD_OUT},
    {"model", required_argument, NULL, OPTION_MODEL},
    {"set", required_argument, NULL, OPTION_SET},
    {"seed", required_argument, NULL, OPTION_SEED},
    {"device", required_argument, NULL, OPTION_DEVICE},
    {"cost", required_argument, NULL, OPTION_COST},
    {"transport", required_argument, NULL, OPTION_TRANSPORT},
    {"rank-map", required_argument, NULL, OPTION_RANK_MAP},
    {"deadline", required_argument, NULL, OPTION_DEADLINE},
    {"forward-only", no_argument, NULL, OPTION_FORWARD_ONLY},
    {"in-turn", no_argument, NULL, OPTION_IN_TURN},
    {"reference", no_argument, NULL, OPTION_REFERENCE},
    {"check", no_argument, NULL, OPTION_CHECK},
    {"outputs", required_argument, NULL, OPTION_OUTPUTS},
    {"save", required_argument, NULL, OPTION_SAVE},
    {"load", required_argument, NULL, OPTION_LOAD},
    {"trace", required_argument, NULL, OPTION_TRACE},
    {"trace-steps", required_argument, NULL, OPTION_TRACE_STEPS},
    {"profile", required_argument, NULL, OPTION_PROFILE},
    {"json", no_argument, NULL, OPTION_JSON},
    {"overcommit", no_argument, NULL, OPTION_OVERCOMMIT},
    {"help", no_argument, NULL, OPTION_HELP},
    {"version", no_argument, NULL, OPTION_VERSION},
    {0},
};

static Status unknown_option(const char *written, Error *error)
{
    NearestWord nearest = nearest_to(written);
    for (const struct option *known = long_options; known->name; known++)
        nearest_consider(&nearest, known->name);
    return error_set(error, STATUS_BAD_USAGE, "unknown option '--%s'; %s%s%s%s", written,
                     nearest.word ? "did you mean --" : "", nearest.word ? nearest.word : "", nearest.word ? "? " : "",
                     hint);
}

Status options_parse(int argc, char **argv, Arena *arena, RunOptions *options, Error *error)
{
    *options = (RunOptions){
        .deadline = 60,
        .device = "auto",
        .costs = costs_unit,
    };
    const char **assignments = arena_array(arena, (size_t)argc + 1, sizeof *assignments);
    int assignment_count = 0;
    const char *seed = NULL;
    bool has_costs = false;
    optind = 0; /* glibc: start afresh, for callers that parse more than once */
    opterr = 0;
    for (int option; (option = getopt_long(argc, argv, ":", long_options, NULL)) != -1;) {
        switch (option) {
        case OPTION_STEPS: TRY(parse_count("--steps", optarg, 1, UINT32_MAX - 1, &options->steps, error)); break;
        case OPTION_DATA: options->data = optarg; break;
        case OPTION_HELD_OUT: TRY(parse_held_out(optarg, &options->held_out, error)); break;
        case OPTION_MODEL: options->model_name = optarg; break;
        case OPTION_SET: assignments[assignment_count++] = optarg; break;
        case OPTION_SEED: seed = optarg; break;
        case OPTION_DEVICE: TRY(parse_device(optarg, options, error)); break;
        case OPTION_COST:
            TRY(costs_set(&options->costs, optarg, arena, error));
            has_costs = true;
            break;
        case OPTION_TRANSPORT: TRY(parse_transport(optarg, &options->transport, error)); break;
        case OPTION_RANK_MAP: TRY(parse_rank_map(optarg, arena, options, error)); break;
        case OPTION_DEADLINE: TRY(parse_seconds("--deadline", optarg, &options->deadline, error)); break;
        case OPTION_FORWARD_ONLY: options->forward_only = true; break;
        case OPTION_IN_TURN: options->in_turn = true; break;
        case OPTION_REFERENCE: options->reference = true; break;
        case OPTION_CHECK: options->check = true; break;
        case OPTION_OUTPUTS: options->outputs = optarg; break;
        case OPTION_SAVE: options->save = optarg; break;
        case OPTION_LOAD: options->load = optarg; break;
        case OPTION_TRACE: options->trace = optarg; break;
        case OPTION_TRACE_STEPS:
            TRY(parse_count("--trace-steps", optarg, 1, UINT32_MAX - 1, &options->trace_steps, error));
            break;
        case OPTION_PROFILE: options->profile = optarg; break;
        case OPTION_JSON: options->json = true; break;
        case OPTION_OVERCOMMIT: options->overcommit = true; break;
        case OPTION_HELP: options->help = true; return STATUS_OK;
        case OPTION_VERSION: options->version = true; return STATUS_OK;
        case ':': return error_set(error, STATUS_BAD_USAGE, "%s needs a value; %s", argv[optind - 1], hint);
        default:
            if (optopt > 0 && optopt < OPTION_STEPS) /* one of several letters: getopt has not moved on */
                return error_set(error, STATUS_BAD_USAGE, "unknown option '-%c'; %s", optopt, hint);
            return unknown_option(argv[optind - 1] + 2, error);
        }
    }
    if (argc - optind != 1)
        return error_set(error, STATUS_BAD_USAGE, "%s; %s",
                         argc == optind ? "no program: dprun runs the prog.bin that dpc made" : "more than one program",
                         hint);
    options->program = argv[optind];
    choose_transport(options);
    if (has_costs && !options->simulated)
        return error_set(error, STATUS_BAD_USAGE, "--cost goes with --device sim; %s", hint);
    TRY(check_together(options, error));
    TRY(model_config_load(options->model_name, &options->model, error));
    for (int i = 0; i < assignment_count; i++)
        TRY(model_config_set(&options->model, assignments[i], error));
    if (seed)
        TRY(parse_count("--seed", seed, 0, UINT64_MAX, &options->model.seed, error));
    if (options->steps == 0 && options->profile)
        options->seconds = PROFILE_SECONDS;
    if (options->held_out && (options->forward_only || options->simulated || !model_reads_text(&options->model)))
        return error_set(
            error, STATUS_BAD_USAGE,
            "--held-out goes with a model that trains on text, such as gpt, and with neither --forward-only nor "
            "--device sim; %s",
            hint);
    if (options->held_out == 0)
        options->held_out = 1 << 16;
    if (options->steps == 0)
        options->steps = options->profile        ? UINT32_MAX - 1
                         : options->simulated    ? 3
                         : options->forward_only ? 1
                         : options->check        ? 8
                                                 : 400;
    return STATUS_OK;
}
