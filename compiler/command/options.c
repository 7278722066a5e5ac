#include "compiler/command/options.h"

#include "compiler/output/emit.h"
#include "runtime/base/file.h"
#include "runtime/base/names.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char command_line_help[] =
    "dpc: compiles a pipeline schedule into a proven program\n"
    "usage: dpc [options] FILE.dps|FILE.csv\n"
    "       dpc show [options] FILE.dps|FILE.csv    the timeline in this terminal; the same as --emit=text\n"
    "       dpc compare [options] FILE...           a table of several schedules, the fastest first; --stages N, "
    "--memory-limit N,\n"
    "                                               --sort=COLUMN or file, --json; -D between files is for the next "
    "one only\n"
    "       dpc advise --ranks N --microbatches N [options] [FILE...]    tries all schedules that come with dpc, and "
    "FILEs, with the\n"
    "                                               parameters worth trying: which takes least time, and how to "
    "compile it;\n"
    "                                               --memory-limit N, --allow async,naive, --seconds N (60), --json\n"
    "       dpc fmt [--check] FILE.dps...           formats schedule files in place; - is a filter, --check lists "
    "those to be changed\n"
    "       dpc diff [options] FILE.dps|FILE.csv|TRACE TRACE    a prediction and a run of dprun --trace side by side; "
    "--step N\n"
    "                                                           which step of it, --emit=html or svg[:FILE] both "
    "timelines\n"
    "       dpc diff --map FILE [options] FILE.dps TRACE...     the same with traces of the PyTorch profiler: the "
    "inside "
    "of an F&B,\n"
    "                                                           or all passes, from a trace of each rank\n"
    "       dpc calibrate [options] TRACE...        costs from traces of dprun --trace, for --cost @FILE; -o FILE, and "
    "--fastest N\n"
    "                                               where others disturb the machine: of the N shortest steps only\n"
    "       dpc calibrate --map FILE TRACE...       the same from traces of the PyTorch profiler, for components of "
    "layers or\n"
    "                                               for stages; FILE says what the names in them mean (maps/)\n"
    "       dpc balance --replicas R --gpus N [options] LOADS.csv    replicas of experts placed on GPUs; dpc balance "
    "--help\n"
    "  -o FILE                 writes the program that dprun executes\n"
    "  --ranks N               ranks, instead of the file's own number\n"
    "  --microbatches N        microbatches of a step, all pipes together\n"
    "  -D NAME=VALUE           another parameter of the file\n"
    "  --cost NAME=VALUE,...   modelled times: F, I, W, B, FB (an F&B), U (an update), F[3] (of stage 3), comm (of a "
    "message), ...\n"
    "  --cost @FILE            the same from a file of lines NAME = VALUE; may be repeated, the last value counts\n"
    "  --slot-bytes NAME=N,... bytes of a message; of what F keeps for I (context) and W (stash), I for W (gradient); "
    "of a stage's\n"
    "                          weights, of a further version of them\n"
    "  --memory-limit N        refuses a program that needs more bytes on a rank (24G), or more than activations=N\n"
    "  --emit=KIND[:FILE]      writes, to stdout or a file: csv (compute order), comms (the same with messages),\n"
    "                          asm (instruction streams), stats (times and memory, JSON),\n"
    "                          svg, html, text and trace (the timeline; trace for Perfetto),\n"
    "                          overlap (the inside of an F&B)\n"
    "  --width N               of text in columns (160 into a pipe or a file), of svg in pixels\n"
    "  --dump=FORM             shows a form on the way: tokens, tree, schedule, order, times, comms, plan, program;\n"
    "                          or opcodes, the instruction set\n"
    "  --explain               what became of every step on every rank, and what it waits for; the same as "
    "--emit=explain\n"
    "  --sweep NAME=A..B,...   proves every combination that the file's requires admit; NAME is ranks, microbatches or "
    "a\n"
    "                          parameter; A..B..STEP goes in steps, A..4*ranks as far as the ranks before say. Over\n"
    "                          parameters alone it finds the best value\n"
    "  --help, --version\n"
    "Without -o, --emit and --dump it only proves the schedule and says so.\n"
    "Exit status: 0 good; 1 an input is wrong; 2 the command line is wrong; 3 the run failed (a file could not be "
    "written).\n";

static const char *const emit_names[EMIT_KINDS] = {"csv",  "comms", "asm",   "stats",   "svg",
                                                   "html", "text",  "trace", "explain", "overlap"};
static const char *const dump_names[DUMP_FORMS] = {"tokens", "tree", "schedule", "order",  "times",
                                                   "comms",  "plan", "program",  "opcodes"};

static int find_name(const char *const *names, int count, const char *name, size_t length)
{
    for (int i = 0; i < count; i++)
        if (strlen(names[i]) == length && memcmp(names[i], name, length) == 0)
            return i;
    return -1;
}

static Status option_number(const char *option, const char *text, int64_t *value, Error *error)
{
    char *end;
    errno = 0;
    const long long read = strtoll(text, &end, 10);
    if (end == text || *end)
        return error_set(error, STATUS_BAD_USAGE, "%s needs a whole number, not '%s'", option, text);
    if (errno)
        return error_set(error, STATUS_BAD_USAGE, "%s: %s does not fit into 64 bits", option, text);
    *value = read;
    return STATUS_OK;
}

static Status parse_emit(const char *text, Options *options, Error *error)
{
    const size_t length = strcspn(text, ":");
    const int kind = find_name(emit_names, EMIT_KINDS, text, length);
    if (kind < 0)
        return error_set(
            error, STATUS_BAD_USAGE,
            "--emit=%s: no such kind; there are csv, comms, asm, stats, svg, html, text, trace, explain and overlap",
            text);
    if (options->emit_count == OUTPUTS_MAX)
        return error_set(error, STATUS_BAD_USAGE, "more than %d --emit", OUTPUTS_MAX);
    const char *file = text[length] ? text + length + 1 : "-";
    if (!*file)
        return error_set(error, STATUS_BAD_USAGE, "--emit=%s: no file name behind the colon", text);
    options->emit[options->emit_count].kind = (EmitKind)kind;
    options->emit[options->emit_count++].file = file;
    return STATUS_OK;
}

/* dpc advise --allow async,naive */
static Status parse_allow(const char *text, Options *options, Error *error)
{
    for (size_t length; *text; text += length + (text[length] == ',')) {
        length = strcspn(text, ",");
        const bool async = length == 5 && memcmp(text, "async", 5) == 0;
        if (!async && !(length == 5 && memcmp(text, "naive", 5) == 0))
            return error_set(error, STATUS_BAD_USAGE, "--allow: '%.*s' is neither async nor naive", (int)length, text);
        *(async ? &options->allow_async : &options->allow_naive) = true;
    }
    return STATUS_OK;
}

/* show is --emit=text; fmt and balance have their own command lines. */
static const char *const commands[] = {[COMMAND_COMPARE] = "compare",
                                       [COMMAND_ADVISE] = "advise",
                                       [COMMAND_DIFF] = "diff",
                                       [COMMAND_CALIBRATE] = "calibrate",
                                       "show",
                                       "fmt",
                                       "balance"};

static Status unknown_option(const char *written, const struct option *known, Error *error)
{
    NearestWord nearest = nearest_to(written);
    for (; known->name; known++)
        nearest_consider(&nearest, known->name);
    return error_set(error, STATUS_BAD_USAGE, "unknown option --%s; %s%s%sdpc --help lists them", written,
                     nearest.word ? "did you mean --" : "", nearest.word ? nearest.word : "", nearest.word ? "? " : "");
}

/* Reports that there is not exactly one file; the user may have misspelt or misplaced a command. */
static Status not_one_schedule(char *const *inputs, int count, Error *error)
{
    if (count == 0)
        return error_set(error, STATUS_BAD_USAGE, "no schedule given: dpc FILE.dps; dpc --help says more");
    NearestWord nearest = nearest_to(inputs[0]);
    for (size_t c = COMMAND_COMPARE; c < sizeof commands / sizeof *commands; c++) {
        nearest_consider(&nearest, commands[c]);
        for (int i = 0; i < count; i++)
            if (strcmp(inputs[i], commands[c]) == 0)
                return error_set(error, STATUS_BAD_USAGE, "%s comes first: dpc %s ...", commands[c], commands[c]);
    }
    if (nearest.word && access(inputs[0], F_OK) != 0)
        return error_set(error, STATUS_BAD_USAGE, "no command %s; did you mean %s?", inputs[0], nearest.word);
    return error_set(error, STATUS_BAD_USAGE, "one schedule at a time; dpc compare takes several");
}

/* No output may overwrite an input, and -o must not take a schedule, which a shell pattern may put there. */
static Status check_outputs(const Options *options, Error *error)
{
    const char *outputs[OUTPUTS_MAX + 1];
    size_t count = 0;
    if (options->output)
        outputs[count++] = options->output;
    for (int i = 0; i < options->emit_count; i++)
        outputs[count++] = options->emit[i].file;
    TRY(file_keep_apart(outputs, count, (const char *const *)options->inputs, (size_t)options->input_count, error));
    const char *dot = options->output ? strrchr(options->output, '.') : NULL;
    if (dot && strcmp(dot, ".dps") == 0)
        return error_set(error, STATUS_BAD_USAGE, "-o %s: a program is no schedule; name it %.*s.bin", options->output,
                         (int)(dot - options->output), options->output);
    return STATUS_OK;
}

enum { ADVISE_SECONDS = 60 };
enum {
    AN_INPUT = 1,
    OUTPUT = 'o',
    DEFINE = 'D',
    RANKS = 256,
    MICROBATCHES,
    STAGES,
    COST,
    EMIT,
    DUMP,
    EXPLAIN,
    SWEEP,
    SLOT_BYTES,
    MEMORY_LIMIT,
    JSON,
    STEP,
    FASTEST,
    MAP,
    SORT,
    WIDTH,
    ALLOW,
    SECONDS,
    HELP,
    VERSION
};

/* A set of options. */
typedef uint32_t OptionSet;

static OptionSet bit(int option) { return 1u << (option == OUTPUT ? 0 : option == DEFINE ? 1 : option - RANKS + 2); }

/* --width is in columns or in pixels, so it fits only one kind of picture. */
static Status check_width(const Options *options, Error *error)
{
    bool text = false, svg = false;
    for (int i = 0; i < options->emit_count; i++) {
        text = text || options->emit[i].kind == EMIT_TEXT;
        svg = svg || options->emit[i].kind == EMIT_SVG;
    }
    if (text == svg)
        return error_set(error, STATUS_BAD_USAGE,
                         "--width goes with dpc show and --emit=text, in columns, or with --emit=svg, in pixels");
    if (text && (options->width < TEXT_LEAST_WIDTH || options->width > INT32_MAX))
        return error_set(error, STATUS_BAD_USAGE, "--width %" PRId64 ": text is at least %d columns wide",
                         options->width, TEXT_LEAST_WIDTH);
    if (svg && (options->width < SVG_LEAST_WIDTH || options->width > SVG_MOST_WIDTH))
        return error_set(error, STATUS_BAD_USAGE, "--width %" PRId64 ": an svg is %d to %d pixels wide", options->width,
                         SVG_LEAST_WIDTH, SVG_MOST_WIDTH);
    return STATUS_OK;
}

/* Checks that the options belong to the command. */
static Status check_given(Command command, OptionSet given, Error *error)
{
    const OptionSet of_parameters = bit(RANKS) | bit(MICROBATCHES) | bit(DEFINE) | bit(COST);
    switch (command) {
    case COMMAND_COMPARE:
        if (given & ~(of_parameters | bit(STAGES) | bit(SLOT_BYTES) | bit(MEMORY_LIMIT) | bit(SORT) | bit(JSON)))
            return error_set(error, STATUS_BAD_USAGE,
                             "dpc compare goes with --ranks, --stages, --microbatches, -D, --cost, --slot-bytes, "
                             "--memory-limit, --sort and --json only");
        if (given & bit(STAGES) && given & bit(RANKS))
            return error_set(error, STATUS_BAD_USAGE,
                             "--ranks and --stages: schedules are compared at the same number of ranks or of stages");
        return STATUS_OK;
    case COMMAND_ADVISE:
        if (given & ~(of_parameters | bit(SLOT_BYTES) | bit(MEMORY_LIMIT) | bit(JSON) | bit(ALLOW) | bit(SECONDS)))
            return error_set(error, STATUS_BAD_USAGE,
                             "dpc advise goes with --ranks, --microbatches, -D, --cost, --slot-bytes, "
                             "--memory-limit, --allow, --seconds and --json only");
        if (!(given & bit(RANKS)) || !(given & bit(MICROBATCHES)))
            return error_set(error, STATUS_BAD_USAGE,
                             "dpc advise needs to know the sizes: dpc advise --ranks 16 --microbatches 64");
        return STATUS_OK;
    case COMMAND_DIFF:
        if (given & ~(of_parameters | bit(EMIT) | bit(STEP) | bit(WIDTH) | bit(MAP)))
            return error_set(
                error, STATUS_BAD_USAGE,
                "dpc diff goes with --ranks, --microbatches, -D, --cost, --step, --map, --width, --emit=html "
                "and --emit=svg only");
        return STATUS_OK;
    case COMMAND_CALIBRATE:
        if (given & ~(bit(OUTPUT) | bit(FASTEST) | bit(MAP)))
            return error_set(error, STATUS_BAD_USAGE, "dpc calibrate goes with -o, --fastest and --map only");
        return STATUS_OK;
    default:
        if (given & (bit(STAGES) | bit(SORT)))
            return error_set(error, STATUS_BAD_USAGE, "--stages and --sort are for dpc compare");
        if (given & bit(JSON))
            return error_set(error, STATUS_BAD_USAGE, "--json is for dpc compare and dpc advise");
        if (given & (bit(ALLOW) | bit(SECONDS)))
            return error_set(error, STATUS_BAD_USAGE, "--allow and --seconds go with dpc advise");
        if (given & bit(STEP))
            return error_set(error, STATUS_BAD_USAGE, "--step goes with dpc diff");
        if (given & bit(FASTEST))
            return error_set(error, STATUS_BAD_USAGE, "--fastest goes with dpc calibrate");
        if (given & bit(MAP))
            return error_set(error, STATUS_BAD_USAGE, "--map goes with dpc calibrate and dpc diff");
        if (given & bit(SWEEP) && given & (bit(OUTPUT) | bit(EMIT) | bit(EXPLAIN) | bit(DUMP)))
            return error_set(error, STATUS_BAD_USAGE, "--sweep only proves: it goes with no -o, --emit or --dump");
        return STATUS_OK;
    }
}

static Status check_inputs(const Options *options, Error *error)
{
    switch (options->command) {
    case COMMAND_COMPARE:
    case COMMAND_ADVISE:
        if (options->input_count < 1 && options->command == COMMAND_COMPARE)
            return error_set(error, STATUS_BAD_USAGE, "no schedules given: dpc compare A.dps B.dps ...");
        if (options->own[options->input_count].count)
            return error_set(error, STATUS_BAD_USAGE,
                             "-D %s: no schedule comes after it; before the first one it holds for all, before another "
                             "one for that one only",
                             options->own[options->input_count].others[0].name);
        return STATUS_OK;
    case COMMAND_DIFF:
        if (options->input_count < 2 || (options->input_count > 2 && !options->map))
            return error_set(error, STATUS_BAD_USAGE,
                             "dpc diff needs two files: a schedule or a modelled trace, and a trace of dprun");
        for (int i = 0; i < options->emit_count; i++)
            if (options->emit[i].kind != EMIT_HTML && options->emit[i].kind != EMIT_SVG)
                return error_set(error, STATUS_BAD_USAGE, "dpc diff writes a table, --emit=html and --emit=svg");
        return STATUS_OK;
    case COMMAND_CALIBRATE:
        if (options->input_count < 1)
            return error_set(
                error, STATUS_BAD_USAGE,
                "no trace given: dpc calibrate [-o FILE] [--fastest N] TRACE..., a trace being one of dprun --trace; "
                "or, of the PyTorch profiler, dpc calibrate --map FILE [-o FILE] TRACE...");
        return STATUS_OK;
    default:
        return options->input_count == 1 ? STATUS_OK : not_one_schedule(options->inputs, options->input_count, error);
    }
}

Status command_line_parse(int argc, char **argv, Arena *arena, Options *options, Error *error)
{
    static const struct option known[] = {{"ranks", required_argument, NULL, RANKS},
                                          {"microbatches", required_argument, NULL, MICROBATCHES},
                                          {"cost", required_argument, NULL, COST},
                                          {"emit", required_argument, NULL, EMIT},
                                          {"dump", required_argument, NULL, DUMP},
                                          {"sweep", required_argument, NULL, SWEEP},
                                          {"slot-bytes", required_argument, NULL, SLOT_BYTES},
                                          {"memory-limit", required_argument, NULL, MEMORY_LIMIT},
                                          {"stages", required_argument, NULL, STAGES},
                                          {"json", no_argument, NULL, JSON},
                                          {"step", required_argument, NULL, STEP},
                                          {"fastest", required_argument, NULL, FASTEST},
                                          {"map", required_argument, NULL, MAP},
                                          {"width", required_argument, NULL, WIDTH},
                                          {"sort", required_argument, NULL, SORT},
                                          {"allow", required_argument, NULL, ALLOW},
                                          {"seconds", required_argument, NULL, SECONDS},
                                          {"explain", no_argument, NULL, EXPLAIN},
                                          {"help", no_argument, NULL, HELP},
                                          {"version", no_argument, NULL, VERSION},
                                          {NULL, 0, NULL, 0}};
    OptionSet given = 0;
    char **inputs = arena_array(arena, (size_t)argc, sizeof *inputs);
    Parameters *own = arena_array(arena, (size_t)argc, sizeof *own);
    *options = (Options){.costs = costs_unit,
                         .inputs = inputs,
                         .own = own,
                         .program = argv[0],
                         .seconds = ADVISE_SECONDS,
                         .cost_texts = arena_array(arena, (size_t)argc, sizeof *options->cost_texts)};
    const bool shows = argc > 1 && strcmp(argv[1], "show") == 0;
    for (Command command = COMMAND_COMPARE; argc > 1 && command <= COMMAND_CALIBRATE; command++)
        if (strcmp(argv[1], commands[command]) == 0)
            options->command = command;
    if (shows) {
        given |= bit(EMIT);
        TRY(parse_emit("text", options, error));
    }
    if (shows || options->command != COMMAND_COMPILE) {
        argc--;
        argv++;
    }
    opterr = 0;
    optind = 0; /* resets getopt: the tests call this more than once */
    for (int option; (option = getopt_long(argc, argv, "-:o:D:", known, NULL)) != -1;) {
        int64_t value = 0;
        if (option == AN_INPUT) {
            inputs[options->input_count++] = optarg;
            continue;
        }
        if (option != '?' && option != ':')
            given |= bit(option);
        switch (option) {
        case OUTPUT: options->output = optarg; break;
        case DEFINE: {
            const char *equals = strchr(optarg, '=');
            if (!equals || equals == optarg)
                return error_set(error, STATUS_BAD_USAGE, "-D %s: write -D NAME=VALUE", optarg);
            const char *name = arena_text(arena, optarg, (size_t)(equals - optarg));
            TRY(option_number("-D", equals + 1, &value, error));
            const bool several = options->command == COMMAND_COMPARE || options->command == COMMAND_ADVISE;
            const bool for_next = several && options->input_count > 0;
            parameters_set(for_next ? &own[options->input_count] : &options->parameters, arena, name, value);
            break;
        }
        case RANKS:
        case MICROBATCHES:
            TRY(option_number(option == RANKS ? "--ranks" : "--microbatches", optarg, &value, error));
            if (value < 1)
                return error_set(error, STATUS_BAD_USAGE, "%s needs at least 1",
                                 option == RANKS ? "--ranks" : "--microbatches");
            if (option == RANKS)
                parameters_set_ranks(&options->parameters, value);
            else
                parameters_set_microbatches(&options->parameters, value);
            break;
        case STAGES:
            TRY(option_number("--stages", optarg, &options->stages, error));
            if (options->stages < 1)
                return error_set(error, STATUS_BAD_USAGE, "--stages needs at least 1");
            break;
        case SORT: options->sort = optarg; break;
        case JSON: options->json = true; break;
        case COST:
            TRY(costs_set(&options->costs, optarg, arena, error));
            options->cost_texts[options->cost_count++] = optarg;
            break;
        case EMIT: TRY(parse_emit(optarg, options, error)); break;
        case DUMP: {
            const int form = find_name(dump_names, DUMP_FORMS, optarg, strlen(optarg));
            if (form < 0)
                return error_set(error, STATUS_BAD_USAGE,
                                 "--dump=%s: no such form; there are tokens, tree, schedule, order, times, "
                                 "comms, plan, program and opcodes",
                                 optarg);
            options->dump[form] = options->dumps = true;
            break;
        }
        case SLOT_BYTES: TRY(memory_set_sizes(&options->memory, optarg, error)); break;
        case MEMORY_LIMIT: TRY(memory_set_limit(&options->memory, optarg, error)); break;
        case STEP: TRY(option_number("--step", optarg, &options->step, error)); break;
        case MAP: options->map = optarg; break;
        case FASTEST:
            TRY(option_number("--fastest", optarg, &options->fastest, error));
            if (options->fastest < 1 || options->fastest > UINT32_MAX)
                return error_set(error, STATUS_BAD_USAGE, "--fastest %s: so many steps are not possible", optarg);
            break;
        case WIDTH: TRY(option_number("--width", optarg, &options->width, error)); break;
        case ALLOW: TRY(parse_allow(optarg, options, error)); break;
        case SECONDS:
            TRY(option_number("--seconds", optarg, &options->seconds, error));
            if (options->seconds < 1 || options->seconds > INT32_MAX)
                return error_set(error, STATUS_BAD_USAGE, "--seconds %s: there can be 1 to %d", optarg, INT32_MAX);
            break;
        case EXPLAIN: TRY(parse_emit("explain", options, error)); break;
        case SWEEP:
            if (options->sweep.text)
                return error_set(error, STATUS_BAD_USAGE,
                                 "--sweep stands twice: one takes several ranges, --sweep %s,%s", options->sweep.text,
                                 optarg);
            TRY(sweep_parse(optarg, arena, &options->sweep, error));
            break;
        case HELP: options->help = true; return STATUS_OK;
        case VERSION: options->version = true; return STATUS_OK;
        case ':': return error_set(error, STATUS_BAD_USAGE, "%s needs a value", argv[optind - 1]);
        default:
            if (optopt > 0 && optopt < 256) /* one of several joined letters: getopt has not moved on */
                return error_set(error, STATUS_BAD_USAGE, "unknown option -%c; dpc --help lists them", optopt);
            return unknown_option(argv[optind - 1] + 2, known, error);
        }
    }
    while (optind < argc) /* after -- */
        inputs[options->input_count++] = argv[optind++];
    if (!options->input_count && options->dump[DUMP_OPCODES])
        return STATUS_OK;
    TRY(check_given(options->command, given, error));
    TRY(check_inputs(options, error));
    TRY(check_outputs(options, error));
    if (given & bit(WIDTH))
        TRY(check_width(options, error));
    options->input = options->input_count ? options->inputs[0] : NULL;
    return memory_check_options(&options->memory, error);
}
