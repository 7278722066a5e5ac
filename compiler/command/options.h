#pragma once

/* The command line of dpc. */

#include "study/trials/settings.h"
#include "study/trials/sweep.h"
#include "compiler/output/emit.h"
#include "compiler/prove/channels.h"
#include "compiler/schedule/timeline.h"
#include "base/status.h"

#include <stdio.h>

/* What --dump prints: an intermediate form of the schedule; DUMP_OPCODES: the instruction set. */
typedef enum DumpForm {
    DUMP_TOKENS,
    DUMP_TREE,
    DUMP_SCHEDULE,
    DUMP_ORDER,
    DUMP_TIMES,
    DUMP_COMMS,
    DUMP_PLAN,
    DUMP_PROGRAM,
    DUMP_OPCODES,
    DUMP_FORMS
} DumpForm;

typedef enum Command {
    COMMAND_COMPILE, /* compiles one input; also with --sweep, and for `dpc show` */
    COMMAND_COMPARE, /* compares all inputs */
    COMMAND_ADVISE,  /* tries all schedules that come with dpc, and the inputs, if any */
    /* compares inputs[0], the prediction, with a trace: inputs[1], or all other inputs if there is a --map */
    COMMAND_DIFF,
    COMMAND_CALIBRATE, /* writes the costs that the inputs show; the inputs are traces */
    COMMAND_FIT,       /* fits formulas to one input */
    COMMAND_CHECK,     /* says under which channels each input is safe */
} Command;

enum { OUTPUTS_MAX = 64 };

typedef struct Options {
    bool help, version;
    Command command;
    const char *word;     /* the command as on the command line, such as "show"; NULL: none */
    const char *input;    /* trials.inputs[0]; NULL: there is no input, or --help or --version is given */
    TrialSettings trials; /* what several commands share: the files, parameters, costs and limits */
    bool json;            /* compare, advise, check */
    Channels channels;    /* check; CHANNEL_MODELS: all */
    const char *output;   /* -o */
    int64_t step;         /* diff: the step of the trace to compare; 0: the step of median makespan */
    /* calibrate: only this many of the shortest steps of each trace count; 0: all steps. Step 1 never counts if there
       are others */
    int64_t fastest;
    /* calibrate, diff: file that says what the names in a trace of the PyTorch profiler mean; NULL: the trace is
       dprun's */
    const char *map;
    struct {
        EmitKind kind;
        const char *file; /* "-": stdout */
    } emit[OUTPUTS_MAX];
    int emit_count;
    struct {
        int64_t seconds;  /* 0: do not ask the solver */
        const char *file; /* file for a shorter order, if the solver finds one; NULL: none */
    } prove;
    int64_t width; /* width of a picture: as text in columns, as svg in pixels; 0: the default width */
    bool dump[DUMP_FORMS];
    bool dumps; /* some --dump is given */
    Sweep sweep;
} Options;

void command_line_help(FILE *stream);

/* Reads the command line into `options`. STATUS_BAD_USAGE: the error says what is wrong and what would be right.
   STATUS_BAD_INPUT: a cost file is wrong, or a schedule does not exist, but an installed one has its name or nearly its
   name. The arena owns the parameters' names. */
Status command_line_parse(int argc, char **argv, Arena *arena, Options *options, Error *error);
