#include "compiler/command/options.h"

#include "study/trials/installed.h"
#include "study/trials/trial.h"
#include "compiler/output/emit.h"
#include "base/file.h"
#include "base/names.h"
#include "base/option_table.h"
#include "program/times/costs_parts.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const emit_names[EMIT_KINDS] = {
#define EMIT(kind, name, help, write) name,
#include "compiler/output/kinds.def"
#undef EMIT
};
/* What --help says of the kinds, and their names with a comma before each. */
#define EMIT(kind, name, help, write) "; " name ": " help
static const char emit_help[] = "writes to stdout or a file (dpc diff: html and svg)"
#include "compiler/output/kinds.def"
    ;
#undef EMIT
#define EMIT(kind, name, help, write) ", " name
static const char emit_list[] =
#include "compiler/output/kinds.def"
    ;
#undef EMIT
static const char *const dump_names[DUMP_FORMS] = {"tokens", "tree", "schedule", "order",  "times",
                                                   "comms",  "plan", "program",  "opcodes"};

static int find_name(const char *const *names, int count, const char *name, size_t length)
{
    for (int i = 0; i < count; i++)
        if (strlen(names[i]) == length && memcmp(names[i], name, length) == 0)
            return i;
    return -1;
}

static Status parse_emit(const char *text, Options *options, Error *error)
{
    const size_t length = strcspn(text, ":");
    const int kind = find_name(emit_names, EMIT_KINDS, text, length);
    if (kind < 0)
        return error_set(error, STATUS_BAD_USAGE, "--emit=%s: no such kind; there are %s", text,
                         options->command == COMMAND_DIFF ? "html and svg" : emit_list + 2);
    if (options->emit_count == OUTPUTS_MAX)
        return error_set(error, STATUS_BAD_USAGE, "--emit can be given at most %d times", OUTPUTS_MAX);
    const char *file = text[length] ? text + length + 1 : "-";
    if (!*file)
        return error_set(error, STATUS_BAD_USAGE, "--emit=%s: no file name after the colon", text);
    options->emit[options->emit_count].kind = (EmitKind)kind;
    options->emit[options->emit_count++].file = file;
    return STATUS_OK;
}

/* Reads the value of dpc advise --allow, such as "async,naive". */
static Status parse_allow(const char *text, Options *options, Error *error)
{
    for (size_t length; *text; text += length + (text[length] == ',')) {
        length = strcspn(text, ",");
        const bool async = length == 5 && memcmp(text, "async", 5) == 0;
        if (!async && !(length == 5 && memcmp(text, "naive", 5) == 0))
            return error_set(error, STATUS_BAD_USAGE, "--allow: '%.*s' is neither async nor naive", (int)length, text);
        *(async ? &options->trials.allow_async : &options->trials.allow_naive) = true;
    }
    return STATUS_OK;
}

/* The commands that argv[1] may name; "": a compilation, which has no command word. Those up to "check" are in the
   order of enum Command, and only they have rows in the table of options. `show` means --emit=text; fmt and balance
   have command lines of their own. */
static const char *const commands[] = {"",      "compare", "advise", "diff",    "calibrate", "fit",
                                       "check", "show",    "fmt",    "balance", NULL};

/* Reports a command line that lacks something or has too many files; `usage`: a right command line. */
static Status missing(const char *what, const char *usage, Error *error)
{
    return error_set(error, STATUS_BAD_USAGE, "%s: dpc %s; dpc --help says more", what, usage);
}

/* Reports an input that is the word of a command, and no file: the user has not put the command first. */
static Status refuse_commands(char *const *inputs, int count, Error *error)
{
    for (int i = 0; i < count; i++)
        for (size_t c = COMMAND_COMPARE; commands[c]; c++)
            if (strcmp(inputs[i], commands[c]) == 0 && access(inputs[i], F_OK) != 0)
                return error_set(error, STATUS_BAD_USAGE, "%s comes first: dpc %s ...", commands[c], commands[c]);
    return STATUS_OK;
}

/* Reports that a command line without a command does not have exactly one file: a command may be misspelt. */
static Status not_one_schedule(char *const *inputs, int count, Error *error)
{
    if (count == 0)
        return missing("no schedule given", "FILE.dps", error);
    NearestWord nearest = nearest_to(inputs[0]);
    for (size_t c = COMMAND_COMPARE; commands[c]; c++)
        nearest_consider(&nearest, commands[c]);
    const bool is_file = access(inputs[0], F_OK) == 0;
    if (nearest.word && !is_file)
        return error_set(error, STATUS_BAD_USAGE, "no command %s; did you mean %s?", inputs[0], nearest.word);
    if (!is_file && !strpbrk(inputs[0], "./"))
        return error_set(error, STATUS_BAD_USAGE, "%s is neither a file nor a command; dpc --help lists the commands",
                         inputs[0]);
    return error_set(error, STATUS_BAD_USAGE, "give one schedule; dpc compare takes several");
}

/* Refuses two outputs to one file and an output that is also an input. Refuses a program (-o) that is named like a
   schedule, since a shell expands `-o *.dps` to `-o A.dps B.dps`, or like a kind of --emit (`-o 1f1b.svg`). */
static Status check_outputs(const Options *options, Error *error)
{
    const char *outputs[OUTPUTS_MAX + 2];
    size_t count = 0;
    if (options->output)
        outputs[count++] = options->output;
    if (options->prove.file)
        outputs[count++] = options->prove.file;
    for (int i = 0; i < options->emit_count; i++)
        outputs[count++] = options->emit[i].file;
    TRY(file_keep_apart(outputs, count, (const char *const *)options->trials.inputs,
                        (size_t)options->trials.input_count, error));
    const char *dot = options->output ? strrchr(options->output, '.') : NULL;
    if (dot && strcmp(dot, ".dps") == 0)
        return error_set(error, STATUS_BAD_USAGE, "-o %s: the output would be named like a schedule; name it %.*s.%s",
                         options->output, (int)(dot - options->output), options->output,
                         options->command == COMMAND_CALIBRATE ? "cost" : "bin");
    if (dot && options->command == COMMAND_COMPILE && find_name(emit_names, EMIT_KINDS, dot + 1, strlen(dot + 1)) >= 0)
        return error_set(error, STATUS_BAD_USAGE, "-o %s: -o writes the program; for the %s: --emit=%s:%s",
                         options->output, dot + 1, dot + 1, options->output);
    return STATUS_OK;
}

/* Checks that --width is in range, and that it is given either with a picture as text (in columns) or with one as svg
   (in pixels), not with both. */
static Status check_width(const Options *options, Error *error)
{
    bool text = false, svg = false;
    for (int i = 0; i < options->emit_count; i++) {
        text = text || options->emit[i].kind == EMIT_TEXT;
        svg = svg || options->emit[i].kind == EMIT_SVG;
    }
    if (text == svg)
        return error_set(error, STATUS_BAD_USAGE,
                         options->command == COMMAND_DIFF ? "dpc diff --width needs --emit=svg"
                                                          : "--width needs either dpc show or --emit=text (a width in "
                                                            "columns) or --emit=svg (in pixels), not both");
    if (text && (options->width < TEXT_LEAST_WIDTH || options->width > INT32_MAX))
        return error_set(error, STATUS_BAD_USAGE, "--width %" PRId64 ": text is %d to %d columns wide", options->width,
                         TEXT_LEAST_WIDTH, INT32_MAX);
    if (svg && (options->width < SVG_LEAST_WIDTH || options->width > SVG_MOST_WIDTH))
        return error_set(error, STATUS_BAD_USAGE, "--width %" PRId64 ": an svg is %d to %d pixels wide", options->width,
                         SVG_LEAST_WIDTH, SVG_MOST_WIDTH);
    return STATUS_OK;
}

/* Reports a schedule that does not exist if an installed schedule has the same or a similar name. */
static Status check_schedules(const Options *options, Arena *arena, Error *error)
{
    for (int i = 0; i < options->trials.input_count; i++)
        TRY(installed_check(options->trials.inputs[i], arena, error));
    return STATUS_OK;
}

static Status check_inputs(const Options *options, Arena *arena, Error *error)
{
    switch (options->command) {
    case COMMAND_COMPARE:
    case COMMAND_ADVISE:
        TRY(trial_check_replicas((uint32_t)options->trials.replicas, &options->trials.costs, error));
        if (options->trials.input_count < 1 && options->command == COMMAND_COMPARE)
            return missing("no schedules given", "compare A.dps B.dps ...", error);
        if (options->trials.own[options->trials.input_count].count)
            return error_set(error, STATUS_BAD_USAGE,
                             "-D %s: no schedule follows it; a -D before the first schedule is for all schedules, a -D "
                             "before another schedule is for that schedule only",
                             options->trials.own[options->trials.input_count].others[0].name);
        return check_schedules(options, arena, error);
    case COMMAND_DIFF:
        if (options->map && options->trials.input_count < 2)
            return missing("a schedule and traces are needed", "diff --map FILE FILE.dps TRACE...", error);
        if (options->trials.input_count != 2 && !options->map)
            return missing(
                "two files are needed, a schedule or a trace of dpc --emit=trace, and a trace of dprun --trace",
                "diff FILE.dps TRACE", error);
        for (int i = 0; i < options->emit_count; i++)
            if (options->emit[i].kind != EMIT_HTML && options->emit[i].kind != EMIT_SVG)
                return error_set(error, STATUS_BAD_USAGE,
                                 "dpc diff takes only --emit=html and --emit=svg; without --emit it prints a table");
        return STATUS_OK;
    case COMMAND_CALIBRATE:
        if (options->trials.input_count < 1)
            return missing("no trace given",
                           options->map ? "calibrate --map FILE TRACE..."
                                        : "calibrate TRACE..., with --map FILE if they are of the PyTorch profiler",
                           error);
        return STATUS_OK;
    case COMMAND_CHECK:
        if (options->trials.input_count < 1)
            return missing("no orders given", "check FILE.csv ...", error);
        return check_schedules(options, arena, error);
    default:
        if (options->word && options->trials.input_count != 1)
            return missing(options->trials.input_count ? "give one schedule" : "no schedule given",
                           arena_format(arena, "%s FILE.dps", options->word), error);
        TRY(refuse_commands(options->trials.inputs, options->trials.input_count, error));
        if (options->trials.input_count != 1)
            return not_one_schedule(options->trials.inputs, options->trials.input_count, error);
        return check_schedules(options, arena, error);
    }
}

/* What the options of the command line fill in. */
typedef struct Parsed {
    Options options;
    char **inputs;   /* [argc] */
    Parameters *own; /* [argc]: the -D given for each input alone */
    int64_t number;  /* the value of --ranks or --microbatches, whichever was read last */
} Parsed;

/* --- the functions that take the values of options --- */

#define TAKE(what) \
    static Status take_##what(const Option *option, const char *value, void *target, Arena *arena, Error *error)

TAKE(input)
{
    Parsed *parsed = target;
    (void)option, (void)arena, (void)error;
    parsed->inputs[parsed->options.trials.input_count++] = (char *)value; /* a string of argv, so not constant */
    return STATUS_OK;
}

TAKE(definition)
{
    Parsed *parsed = target;
    Options *options = &parsed->options;
    const char *equals = strchr(value, '=');
    char *end;
    if (!equals || equals == value)
        return error_set(error, STATUS_BAD_USAGE, "-D %s: write -D NAME=VALUE", value);
    errno = 0;
    const long long number = strtoll(equals + 1, &end, 10);
    if (!equals[1] || *end)
        return error_set(error, STATUS_BAD_USAGE, "-D needs a whole number, not '%s'", equals + 1);
    if (errno)
        return error_set(error, STATUS_BAD_USAGE, "-D: %s does not fit into 64 bits", equals + 1);
    const bool several = options->command == COMMAND_COMPARE || options->command == COMMAND_ADVISE;
    const bool for_next = several && options->trials.input_count > 0;
    (void)option;
    parameters_set(for_next ? &parsed->own[options->trials.input_count] : &options->trials.parameters, arena,
                   arena_text(arena, value, (size_t)(equals - value)), number);
    return STATUS_OK;
}

TAKE(ranks)
{
    Parsed *parsed = target;
    TRY(option_count(option, value, target, arena, error));
    parameters_set_ranks(&parsed->options.trials.parameters, parsed->number);
    return STATUS_OK;
}

TAKE(microbatches)
{
    Parsed *parsed = target;
    TRY(option_count(option, value, target, arena, error));
    parameters_set_microbatches(&parsed->options.trials.parameters, parsed->number);
    return STATUS_OK;
}

TAKE(costs)
{
    Options *options = &((Parsed *)target)->options;
    (void)option;
    TRY(costs_set(&options->trials.costs, value, arena, error));
    options->trials.cost_texts[options->trials.cost_count++] = value;
    return STATUS_OK;
}

TAKE(emit)
{
    (void)option, (void)arena;
    return parse_emit(value, &((Parsed *)target)->options, error);
}

TAKE(explain)
{
    (void)option, (void)value, (void)arena;
    return parse_emit("explain", &((Parsed *)target)->options, error);
}

TAKE(dump)
{
    Options *options = &((Parsed *)target)->options;
    const int form = find_name(dump_names, DUMP_FORMS, value, strlen(value));
    (void)option, (void)arena;
    if (form < 0)
        return error_set(error, STATUS_BAD_USAGE,
                         "--dump=%s: no such form; there are tokens, tree, schedule, order, times, comms, plan, "
                         "program and opcodes",
                         value);
    options->dump[form] = options->dumps = true;
    return STATUS_OK;
}

TAKE(slot_bytes)
{
    (void)option, (void)arena;
    return memory_set_sizes(&((Parsed *)target)->options.trials.memory, value, error);
}

TAKE(memory_limit)
{
    (void)option, (void)arena;
    return memory_set_limit(&((Parsed *)target)->options.trials.memory, value, error);
}

TAKE(allow)
{
    (void)option, (void)arena;
    return parse_allow(value, &((Parsed *)target)->options, error);
}

TAKE(prove)
{
    Options *options = &((Parsed *)target)->options;
    const size_t digits = strspn(value, "0123456789");
    const char *file = value[digits] == ':' ? value + digits + 1 : NULL;
    (void)option, (void)arena;
    if (!digits || digits > 9 || (value[digits] && !file) || !strtoll(value, NULL, 10))
        return error_set(error, STATUS_BAD_USAGE,
                         "--prove: '%.*s' is not a whole number of seconds from 1 to 999999999",
                         (int)strcspn(value, ":"), value);
    if (file && !*file)
        return error_set(
            error, STATUS_BAD_USAGE,
            "--prove %s: write --prove SECONDS or, to write a shorter order to a file, --prove SECONDS:FILE.csv",
            value);
    options->prove.seconds = strtoll(value, NULL, 10);
    options->prove.file = file;
    return STATUS_OK;
}

TAKE(channels)
{
    Channels *channels = &((Parsed *)target)->options.channels;
    (void)option, (void)arena;
    const int found = find_name(channel_names, CHANNEL_MODELS, value, strlen(value));
    if (found < 0)
        return error_set(error, STATUS_BAD_USAGE,
                         "--channels %s: no such model; there are rendezvous, rank, pair, edge and kind", value);
    *channels = (Channels)found;
    return STATUS_OK;
}

TAKE(sweep)
{
    Options *options = &((Parsed *)target)->options;
    (void)option;
    if (options->sweep.text)
        return error_set(error, STATUS_BAD_USAGE,
                         "--sweep is given twice; one --sweep takes several ranges: --sweep %s,%s", options->sweep.text,
                         value);
    return sweep_parse(value, arena, &options->sweep, error);
}

/* --- the table --- */

enum {
    ADVISE_SECONDS = 60,
    COMPILE = 1 << COMMAND_COMPILE,
    COMPARE = 1 << COMMAND_COMPARE,
    ADVISE = 1 << COMMAND_ADVISE,
    DIFF = 1 << COMMAND_DIFF,
    CALIBRATE = 1 << COMMAND_CALIBRATE,
    FIT = 1 << COMMAND_FIT,
    CHECK = 1 << COMMAND_CHECK,
};

#define FIELD(name) .field = offsetof(Parsed, name)
#define FOR(which) .commands = (which)

/* clang-format off */
static const Option rows[] = {
    {"o", "FILE", option_text, FIELD(options.output), FOR(COMPILE | CALIBRATE),
     .help = "writes the program that dprun executes; dpc calibrate writes the costs"},
    {"ranks", "N", take_ranks, FIELD(number), FOR(COMPILE | COMPARE | ADVISE | DIFF | CHECK),
     .least = 1, .most = INT64_MAX, .help = "ranks, instead of the file's own number"},
    {"stages", "N", option_count, FIELD(options.trials.stages), FOR(COMPARE), .least = 1, .most = PROGRAM_STAGES_MAX,
     .excludes = "ranks", .because = "compares schedules at the same number of stages, not of ranks",
     .help = "every schedule cuts the model into so many stages"},
    {"microbatches", "N", take_microbatches, FIELD(number), FOR(COMPILE | COMPARE | ADVISE | DIFF | CHECK),
     .least = 1, .most = INT64_MAX, .help = "microbatches of a step, all pipes together"},
    {"D", "NAME=VALUE", take_definition, FOR(COMPILE | COMPARE | ADVISE | DIFF | FIT | CHECK),
     .help = "another parameter of the file; between the files of dpc compare it is for the next one only"},
    {"cost", "NAME=VALUE,...", take_costs, FOR(COMPILE | COMPARE | ADVISE | DIFF | CHECK),
     .help = "modelled times: F, I, W, B, FB (an F&B), FF (an F&F), U (an update), F[3] (of stage 3), comm (of a "
             "message), ...; or @FILE, a file of lines NAME = VALUE; may be repeated, the last value counts"},
    {"slot-bytes", "NAME=N,...", take_slot_bytes, FOR(COMPILE | COMPARE | ADVISE),
     .help = "sizes in bytes: message; saved_for_dgrad and saved_for_wgrad (activations that F saves for I and for W; "
             "also called context and stash); deferred_wgrad (what I saves for W; also gradient); weights of a stage; "
             "weight_version (each further copy of them; also version)"},
    {"memory-limit", "N", take_memory_limit, FOR(COMPILE | COMPARE | ADVISE),
     .help = "refuses a program that needs more bytes on a rank (24G), or more than activations=N"},
    {"replicas", "D", option_count, FIELD(options.trials.replicas), FOR(COMPARE | ADVISE), .least = 1,
     .most = PROGRAM_RANKS_MAX,
     .help = "counts the sums of gradients over D replicas of the pipeline (dprun --replicas)"},
    {"sort", "COLUMN", option_text, FIELD(options.trials.sort), FOR(COMPARE),
     .help = "by a column of the table, or by file"},
    {"allow", "async,naive", take_allow, FOR(ADVISE), 
     .help = "also tries schedules that update weights within the step (async), and the schedule naive (naive)"},
    {"seconds", "N", option_count, FIELD(options.trials.seconds), FOR(ADVISE), .least = 1, .most = INT32_MAX,
     .help = "for all trials together (default 60)"},
    {"step", "N", option_count, FIELD(options.step), FOR(DIFF), .most = INT64_MAX,
     .help = "which step of the trace (default: the typical one)"},
    {"map", "FILE", option_text, FIELD(options.map), FOR(DIFF | CALIBRATE),
     .help = "the traces are of the PyTorch profiler; FILE says what the names in them mean (maps/)"},
    {"fastest", "N", option_count, FIELD(options.fastest), FOR(CALIBRATE), .least = 1, .most = UINT32_MAX,
     .help = "of the N shortest steps only, where others disturb the machine"},
    {"emit", "KIND[:FILE]", take_emit, FOR(COMPILE | DIFF),
     .help = emit_help},
    {"width", "N", option_count, FIELD(options.width), FOR(COMPILE | DIFF), .most = INT64_MAX,
     .help = "width of text in columns (160 into a pipe or a file), of svg in pixels"},
    {"dump", "FORM", take_dump, FOR(COMPILE),
     .help = "prints an intermediate form: tokens, tree, schedule, order, times, comms, plan, program; or "
             "opcodes, the instruction set"},
    {"explain", NULL, take_explain, FOR(COMPILE),
     .help = "prints what every step became on every rank, and what it waits for; the same as --emit=explain"},
    {"prove", "SECONDS[:FILE]", take_prove, FOR(COMPILE),
     .help = "asks a SAT solver for at most so many seconds whether an order of this placement, these costs and this "
             "memory is shorter; if one is found, writes it to FILE (.csv)"},
    {"sweep", "NAME=A..B,...", take_sweep, FOR(COMPILE | CHECK), .excludes = "o emit explain dump prove",
     .because = "only proves",
     .help = "proves every combination that the file admits; NAME is ranks, microbatches or a parameter; "
             "A..B..STEP has a step, A..4*ranks ends at a multiple of the ranks. Over parameters alone it finds "
             "the best value"},
    {"channels", "MODEL", take_channels, FOR(CHECK),
     .help = "the verdict under one model of channels: rendezvous, rank, pair, edge or kind"},
    {"json", NULL, option_flag, FIELD(options.json), FOR(COMPARE | ADVISE | CHECK), .help = "JSON instead of a table"},
    {"help", NULL, NULL, .help = "prints this"},
    {"version", NULL, NULL, .help = "prints the version"},
    {.name = NULL},
};

static const OptionTable table = {
    .program = "dpc",
    .commands = commands,
    .column = 26,
    .usage =
        "dpc: compiles a pipeline schedule into a proven program\n"
        "usage: dpc [options] FILE.dps|FILE.csv\n"
        "       dpc show [options] FILE.dps|FILE.csv    the timeline in this terminal; the same as --emit=text\n"
        "       dpc compare [options] FILE...           a table of several schedules, the fastest first\n"
        "       dpc advise --ranks N --microbatches N [options] [FILE...]\n"
        "                                               tries all schedules that come with dpc, and FILEs, with the\n"
        "                                               parameters worth trying: which takes least time, and how to\n"
        "                                               compile it\n"
        "       dpc fmt [--check] FILE.dps...           formats schedule files in place; - reads standard input;\n"
        "                                               --check lists those to be changed\n"
        "       dpc diff [options] FILE.dps|FILE.csv|TRACE TRACE\n"
        "                                               a prediction and a run of dprun --trace side by side\n"
        "       dpc diff --map FILE [options] FILE.dps TRACE...\n"
        "                                               the same with traces of the PyTorch profiler: the inside of\n"
        "                                               an F&B, or all passes, from a trace of each rank\n"
        "       dpc calibrate [options] TRACE...        costs from traces of dprun --trace, for --cost @FILE; with\n"
        "                                               --map of components of layers or of stages\n"
        "       dpc fit [-D NAME=VALUE] FILE.dps        makespan, bubble and peak as formulas in the ranks, the\n"
        "                                               microbatches and the costs, and where they hold\n"
        "       dpc check [options] FILE...             which communicators the messages of orders (.csv) need, so\n"
        "                                               that none are swapped and no ranks deadlock\n"
        "       dpc balance --replicas R --gpus N [options] LOADS.csv\n"
        "                                               replicas of experts placed on GPUs; dpc balance --help\n",
    .after =
        "Without -o, --emit and --dump it only proves the schedule and prints a summary.\n"
        "Exit status: 0 good; 1 an input is wrong; 2 the command line is wrong; 3 the run failed (a file could not be\n"
        "written).\n",
    .rows = rows,
    .input = take_input,
};
/* clang-format on */

void command_line_help(FILE *stream) { options_print_help(&table, stream); }

/* The command that argv[1] names; COMMAND_COMPILE for `show`, and if argv[1] names no command. */
static Command command_of(int argc, char **argv)
{
    for (Command command = COMMAND_COMPARE; argc > 1 && command <= COMMAND_CHECK; command++)
        if (strcmp(argv[1], commands[command]) == 0)
            return command;
    return COMMAND_COMPILE;
}

static Status check(const Options *options, const OptionsGiven *given, Arena *arena, Error *error)
{
    TRY(options_check(&table, (int)options->command, given, error));
    if (options->command == COMMAND_ADVISE &&
        !(options_given(&table, given, "ranks") && options_given(&table, given, "microbatches")))
        return missing("--ranks and --microbatches are needed", "advise --ranks 16 --microbatches 64", error);
    TRY(check_inputs(options, arena, error));
    TRY(costs_check_parts(&options->trials.costs, error));
    TRY(check_outputs(options, error));
    if (options_given(&table, given, "width"))
        TRY(check_width(options, error));
    return memory_check_options(&options->trials.memory, error);
}

Status command_line_parse(int argc, char **argv, Arena *arena, Options *options, Error *error)
{
    OptionsGiven given;
    Parsed parsed = {
        .inputs = arena_array(arena, (size_t)argc, sizeof *parsed.inputs),
        .own = arena_array(arena, (size_t)argc, sizeof *parsed.own),
        .options = {.command = command_of(argc, argv),
                    .channels = CHANNEL_MODELS,
                    .trials = {.program = argv[0],
                               .seconds = ADVISE_SECONDS,
                               .costs = costs_unit,
                               .cost_texts = arena_array(arena, (size_t)argc, sizeof(const char *))}},
    };
    parsed.options.trials.inputs = parsed.inputs;
    parsed.options.trials.own = parsed.own;
    const bool shows = argc > 1 && strcmp(argv[1], "show") == 0;
    /* 1: argv[1] is a command, not an option or a file */
    const int named = shows || parsed.options.command != COMMAND_COMPILE;
    if (named)
        parsed.options.word = argv[1];
    if (shows)
        TRY(parse_emit("text", &parsed.options, error));
    const Status status = options_take(&table, argc - named, argv + named, &parsed, arena, &given, error);
    *options = parsed.options;
    if (status != STATUS_OK)
        return status;
    options->help = options_given(&table, &given, "help");
    options->version = options_given(&table, &given, "version");
    if (options->help || options->version || (!options->trials.input_count && options->dump[DUMP_OPCODES]))
        return STATUS_OK;
    if (shows)
        options_give(&table, &given, "emit", "text");
    options->input = options->trials.input_count ? options->trials.inputs[0] : NULL;
    const Status checked = check(options, &given, arena, error);
    if (checked != STATUS_OK && shows && options_given(&table, &given, "sweep"))
        error_prefix(error, "dpc show is dpc --emit=text: ");
    return checked;
}
