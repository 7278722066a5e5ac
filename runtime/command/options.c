#include "runtime/command/options.h"

#include "base/counted.h"
#include "base/file.h"
#include "base/option_table.h"
#include "runtime/launcher/launched.h"
#include "program/times/costs_parts.h"

#include <stdlib.h>
#include <string.h>

enum {
    PROFILE_SECONDS = 3,
    STEPS = 400, /* the default of --steps */
    FORWARD_STEPS = 1,
    SIMULATED_STEPS = 3,
    CHECKED_STEPS = 8,
    HELD_OUT_TOKENS = 1 << 16,
};

/* --- options whose values need code of their own --- */

#define TAKE(what) \
    static Status take_##what(const Option *option, const char *value, void *target, Arena *arena, Error *error)

TAKE(setting)
{
    CommandLine *line = target;
    (void)option, (void)arena, (void)error;
    line->settings[line->setting_count++] = value;
    return STATUS_OK;
}

TAKE(held_out)
{
    uint64_t *tokens = &((CommandLine *)target)->run.held_out;
    *tokens = UINT64_MAX;
    if (strcmp(value, "all") == 0 || option_count(option, value, target, arena, error) == STATUS_OK)
        return STATUS_OK;
    return option_refuse(option, value, error, "a number of tokens of at least 1, or all");
}

TAKE(costs)
{
    (void)option;
    return costs_set(&((CommandLine *)target)->run.costs, value, arena, error);
}

TAKE(deadline)
{
    char *end;
    double *seconds = &((CommandLine *)target)->run.deadline;
    (void)arena;
    *seconds = strtod(value, &end);
    if (end == value || *end || (*seconds != 0 && !(*seconds >= 0.1 && *seconds <= 1e9)))
        return option_refuse(option, value, error, "a number of seconds from 0.1 to 1e+09, or 0 for never");
    return STATUS_OK;
}

TAKE(expert_rows)
{
    char *end;
    double *factor = &((CommandLine *)target)->run.expert_rows;
    (void)arena;
    *factor = strtod(value, &end);
    if (end == value || *end || !(*factor > 0 && *factor <= 1e6))
        return option_refuse(option, value, error, "a factor above 0 and at most 1e6, such as 1.5");
    return STATUS_OK;
}

TAKE(link)
{
    (void)option, (void)arena;
    const Status status = link_read(value, &((CommandLine *)target)->run.link, error);
    if (status != STATUS_OK)
        error_prefix(error, "--link: ");
    return status;
}

TAKE(rank_map)
{
    CommandLine *line = target;
    const char *text = value;
    int count = 1;
    for (const char *next = text; *next; next++)
        count += *next == ',';
    int *map = arena_array(arena, (size_t)count, sizeof *map);
    bool *taken = arena_array(arena, (size_t)count, sizeof *taken);
    for (int i = 0; i < count; i++) {
        char *end;
        const long rank = *text >= '0' && *text <= '9' ? strtol(text, &end, 10) : -1;
        if (rank < 0 || rank >= count || taken[rank] || *end != (i + 1 < count ? ',' : '\0'))
            return option_refuse(option, value, error, "a list of all ranks, each once, such as 0,2,1,3");
        taken[rank] = true;
        map[i] = (int)rank;
        text = end + 1;
    }
    line->run.rank_map = map;
    line->run.rank_map_count = count;
    return STATUS_OK;
}

TAKE(program)
{
    CommandLine *line = target;
    (void)option, (void)arena;
    if (line->program)
        return error_set(error, STATUS_BAD_USAGE, "two programs are given, %s and %s: dprun runs one", line->program,
                         value);
    line->program = value;
    return STATUS_OK;
}

/* --- the table --- */

#define FIELD(name) .field = offsetof(CommandLine, name)

static const Option rows[] = {
    {"steps", "N", option_count, FIELD(run.steps), .least = 1, .most = UINT32_MAX - 1,
     .help = "steps to run (default 400; with --forward-only 1, with --device sim 3, with --check 8)"},
    {"data", "FILE", option_text, FIELD(run.data),
     .help = "train on the bytes of FILE (default: a text that every Debian has)"},
    {"model", "NAME|FILE", option_text, FIELD(run.model_name),
     .help = "gpt (default), mlp, moe (with experts), or a file of 'key = value' lines"},
    {"set", "KEY=VALUE", take_setting,
     .help = "one setting of the model or the training, as in such a file; may be repeated"},
    {"held-out", "N|all", take_held_out, FIELD(run.held_out), .least = 1, .most = UINT64_MAX - 1,
     .help = "the loss at the end is over the first N tokens of the last tenth of the data (default 65536)"},
    {"seed", "N", option_count, FIELD(seed), .most = UINT64_MAX, .help = "seed of the weights and the data order"},
    {"device", "KIND", option_choice, FIELD(run.device), .words = "auto cpu cuda cuda-fp32 sim",
     .excludes = "data held-out load save outputs profile", .when = "sim", .because = "computes nothing",
     .help = "auto, cpu, cuda (bfloat16 on GPUs), cuda-fp32; or sim: passes take the time that --cost says and compute "
             "nothing"},
    {"cost", "NAME=VALUE,...|@FILE", take_costs, .needs = "device=sim",
     .help = "times as in dpc --cost, a unit being a millisecond unless unit= says its seconds"},
    {"transport", "KIND", option_choice, FIELD(transport), .words = "auto local mpi nccl",
     .help = "auto (mpi under mpirun, else local), local, mpi or nccl"},
    {"replicas", "D", option_count, FIELD(replicas), .least = 1, .most = PROGRAM_RANKS_MAX,
     .help = "D copies of the pipeline train together, each on its own microbatches (default 1)"},
    {"expert-parallel", "E", option_count, FIELD(shards), .least = 1, .most = PROGRAM_RANKS_MAX,
     .excludes = "device=sim", .because = "needs all-to-alls, which the simulator does not have",
     .help = "every E replicas divide the experts of a layer among them (default 1)"},
    {"expert-rows", "FACTOR", take_expert_rows, .needs = "expert-parallel",
     .help = "plans room for FACTOR times the rows of equal load instead of the worst case"},
    {"link", "KEY=VALUE,...", take_link,
     .help = "no transfer between ranks arrives earlier than over such a network: latency=20us, bandwidth=2G bytes a "
             "second, ranks=A-B (default: all)"},
    {"expert-replicas", "R", option_number, FIELD(run.expert_replicas), .least = 1, .most = UINT16_MAX,
     .needs = "expert-parallel", .excludes = "reference check",
     .because = "divides the rows of an expert among its copies, which rounds differently",
     .help = "each layer has R copies of experts in addition, and the ranks that hold an expert share its rows; for "
             "--forward-only"},
    {"rebalance", "N", option_number, FIELD(run.rebalance), .least = 1, .most = UINT32_MAX - 1,
     .needs = "expert-parallel", .excludes = "reference", .because = "moves experts between ranks",
     .help = "after every N steps experts move between ranks so that all get about as many rows; for --forward-only"},
    {"moves", "M", option_number, FIELD(run.moves), .least = 1, .most = UINT16_MAX, .needs = "rebalance",
     .help = "at most M experts of a layer move at a time (default: any number)"},
    {"rank-map", "LIST", take_rank_map, .help = "process i runs rank LIST[i], such as 0,2,1,3; under mpirun"},
    {"deadline", "SECONDS", take_deadline,
     .help = "the run is given up when no rank has made progress for so long (default 60; 0: never)"},
    {"forward-only", NULL, option_flag, FIELD(forward_only), .excludes = "save profile held-out",
     .because = "learns nothing", .help = "run the schedule without its backward half"},
    {"in-turn", NULL, option_flag, FIELD(run.in_turn),
     .help = "runs the halves of an F&B or F&F one after the other, for comparison"},
    {"reference", NULL, option_flag, FIELD(reference),
     .help = "the whole model on one rank, microbatch after microbatch"},
    {"check", NULL, option_flag, FIELD(check), .excludes = "reference outputs save trace profile device=sim",
     .because = "only compares", .help = "the program, then its --reference: are all numbers equal to the bit?"},
    {"outputs", "FILE", option_text, FIELD(run.outputs),
     .help = "the last stage's outputs, float32 little-endian, by microbatch number (with --forward-only or a program "
             "without backward passes)"},
    {"save", "FILE", option_text, FIELD(run.save), .help = "the weights at the end"},
    {"load", "FILE", option_text, FIELD(run.load),
     .help = "starts from weights that --save wrote, of any schedule; the optimizer begins anew"},
    {"trace", "FILE", option_text, FIELD(run.trace), .help = "the last steps as Chrome trace events"},
    {"trace-steps", "N", option_count, FIELD(run.trace_steps), .least = 1, .most = UINT32_MAX - 1, .needs = "trace",
     .help = "so many of them, by default up to 16"},
    {"profile", "FILE", option_text, FIELD(run.profile),
     .help = "trains for 3 seconds (or --steps) and writes what each part of the model took and what a message took: "
             "costs for dpc --cost @FILE, of any schedule and any number of stages"},
    {"json", NULL, option_flag, FIELD(json), .help = "one JSON object a step on standard output"},
    {"overcommit", NULL, option_flag, FIELD(run.overcommit),
     .help = "runs a plan of more memory than the machine, container or job has free"},
    {"help", NULL, NULL, .help = "prints this"},
    {"version", NULL, NULL, .help = "prints the version"},
    {.name = NULL},
};

static const OptionTable table = {
    .program = "dprun",
    .column = 21,
    .usage = "usage: dprun [options] prog.bin               all ranks in this process\n"
             "       mpirun -n P dprun [options] prog.bin   one rank a process (P*D with --replicas D)\n"
             "\n"
             "Trains a model by a pipeline schedule that dpc compiled.\n"
             "\n",
    .after = "\n"
             "Exit status: 0 good; 1 an input is wrong, or --check has found a difference; 2 the command line is "
             "wrong;\n"
             "3 the run failed.\n",
    .rows = rows,
    .input = take_program,
};

void options_help(FILE *stream) { options_print_help(&table, stream); }

/* --- checks and defaults after all options are read --- */

static bool on_gpu(const RunOptions *run) { return strncmp(run->device, "cuda", 4) == 0; }

/* A transport `auto` becomes one that connects processes if mpirun started this process, otherwise threads, and that
   can transfer the memory of the named device; of the CPU, if the device is `auto`. Then a device `auto` becomes `cpu`
   or `cuda` if the transport can transfer only the memory of this one. */
static void choose_transport(CommandLine *line)
{
    RunOptions *run = &line->run;
    const bool launched = launched_processes() > 0;
    run->transport = strcmp(line->transport, "auto") == 0 ? transport_for(launched, on_gpu(run))
                                                          : transport_named(line->transport, launched);
    if (strcmp(run->device, "auto") == 0 && !run->transport->gpu_memory)
        run->device = "cpu";
    if (strcmp(run->device, "auto") == 0 && !run->transport->host_memory)
        run->device = "cuda";
}

/* Checks that the transport works with the other options, and with how many processes mpirun started. */
static Status check_transport(const CommandLine *line, Error *error)
{
    const RunOptions *run = &line->run;
    const Transport *transport = run->transport;
    if (!transport->host_memory && !on_gpu(run))
        return error_set(error, STATUS_BAD_USAGE, "--transport %s is for GPUs, not for --device %s", transport->name,
                         run->device);
    if (!transport->gpu_memory && on_gpu(run))
        return error_set(error, STATUS_BAD_USAGE,
                         "--transport %s cannot transfer the memory of GPUs; use --transport nccl", transport->name);
    if (!transport->processes && launched_processes() > 1)
        return error_set(
            error, STATUS_BAD_USAGE,
            "--transport %s: each of the %d processes would run all ranks; leave out --transport, or start dprun "
            "without mpirun",
            transport->name, launched_processes());
    if (line->reference && launched_processes() > 1)
        return error_set(error, STATUS_BAD_USAGE, "--reference runs in one process: start dprun without mpirun");
    if (line->check && transport->processes)
        return error_set(error, STATUS_BAD_USAGE,
                         "--check runs the program and its reference in one process: start dprun without mpirun and "
                         "without --transport %s",
                         transport->name);
    if (run->rank_map && !transport->processes)
        return error_set(error, STATUS_BAD_USAGE, "--rank-map says which process is which rank: start dprun by mpirun");
    return STATUS_OK;
}

/* Checks that no output goes to the file of an input or of another output, and that at most one output goes to standard
   output. */
static Status check_files(const CommandLine *line, Error *error)
{
    const RunOptions *run = &line->run;
    const char *const written[] = {run->outputs, run->save, run->trace, run->profile};
    const char *const model = run->model_name && !model_is_built_in(run->model_name) ? run->model_name : NULL;
    const char *const read[] = {line->program, run->data, model};
    int on_stdout = line->json;
    for (size_t i = 0; line->check && i < 2; i++) /* --check reads the program and the data twice */
        if (read[i] && !file_is_kept(read[i]))
            return error_set(error, STATUS_BAD_USAGE, "--check reads %s twice: put it into a regular file",
                             strcmp(read[i], "-") == 0 ? "standard input" : read[i]);
    for (size_t i = 0; i < sizeof written / sizeof *written; i++)
        on_stdout += written[i] && strcmp(written[i], "-") == 0;
    if (on_stdout > 1)
        return error_set(error, STATUS_BAD_USAGE,
                         "only one of --json, --outputs, --save, --trace and --profile can go to standard output");
    return file_keep_apart(written, sizeof written / sizeof *written, read, sizeof read / sizeof *read, error);
}

static Status set_model(ModelConfig *model, const char *setting, Error *error)
{
    const Status status = model_config_set(model, setting, error);
    if (status != STATUS_OK)
        error_prefix(error, "--set: ");
    return status;
}

static Status configure_model(CommandLine *line, const OptionsGiven *given, Error *error)
{
    ModelConfig *model = &line->run.model;
    TRY(model_config_load(line->run.model_name, model, error));
    for (int i = 0; i < line->setting_count; i++)
        TRY(set_model(model, line->settings[i], error));
    if (options_given(&table, given, "seed"))
        model->seed = line->seed;
    if (line->run.held_out && !model_reads_text(model))
        return error_set(error, STATUS_BAD_USAGE, "--held-out needs a model that trains on text, such as gpt");
    return STATUS_OK;
}

static void choose_length(CommandLine *line)
{
    RunOptions *run = &line->run;
    if (run->held_out == 0)
        run->held_out = HELD_OUT_TOKENS;
    if (run->steps)
        return;
    run->seconds = run->profile ? PROFILE_SECONDS : 0;
    run->steps = run->profile         ? UINT32_MAX - 1
                 : run->simulated     ? SIMULATED_STEPS
                 : line->forward_only ? FORWARD_STEPS
                 : line->check        ? CHECKED_STEPS
                                      : STEPS;
}

LoadOptions options_loading(const CommandLine *line, bool reference)
{
    return (LoadOptions){
        .replicas = (uint32_t)line->replicas,
        .shards = (uint32_t)line->shards,
        .reference = reference,
        .forward_only = line->forward_only,
        .in_order = line->run.transport->in_order,
    };
}

Status options_parse(int argc, char **argv, Arena *arena, CommandLine *line, Error *error)
{
    static const char *const of_groups[] = {"expert-rows", "expert-replicas", "rebalance"};
    OptionsGiven given;
    *line = (CommandLine){
        .settings = arena_array(arena, (size_t)argc + 1, sizeof *line->settings),
        .transport = "auto",
        .run = {.deadline = 60, .device = "auto", .costs = costs_unit},
    };
    TRY(options_take(&table, argc, argv, line, arena, &given, error));
    line->help = options_given(&table, &given, "help");
    line->version = options_given(&table, &given, "version");
    if (line->help || line->version)
        return STATUS_OK;
    if (!line->program)
        return error_set(
            error, STATUS_BAD_USAGE,
            "no program given: dprun prog.bin (dpc -o prog.bin FILE.dps makes one); dprun --help says more");
    TRY(options_check(&table, 0, &given, error));
    for (size_t i = 0; i < sizeof of_groups / sizeof *of_groups; i++)
        if (options_given(&table, &given, of_groups[i]) && line->shards < 2)
            return error_set(error, STATUS_BAD_USAGE, "--%s needs --expert-parallel of 2 or more", of_groups[i]);
    line->run.simulated = options_given(&table, &given, "device=sim");
    choose_transport(line);
    TRY(costs_check_parts(&line->run.costs, error));
    TRY(check_transport(line, error));
    TRY(check_files(line, error));
    TRY(configure_model(line, &given, error));
    choose_length(line);
    if (line->run.moves == 1 && !line->run.expert_replicas)
        return error_set(error, STATUS_BAD_USAGE,
                         "--moves 1 can never move an expert: without --expert-replicas each has one place in a layer, "
                         "so two must change places; use --moves 2 or more");
    if (line->run.rebalance >= line->run.steps)
        return error_set(error, STATUS_BAD_USAGE,
                         "--rebalance %u: a run of %s ends before experts move; use more --steps", line->run.rebalance,
                         counted(line->run.steps, "step").text);
    return STATUS_OK;
}
