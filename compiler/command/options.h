#ifndef COMMAND_OPTIONS_H
#define COMMAND_OPTIONS_H

/* The command line of dpc. */

#include "compiler/command/sweep.h"
#include "compiler/lower/memory.h"
#include "compiler/output/emit.h"
#include "compiler/schedule/timeline.h"
#include "runtime/base/status.h"

#include <stdio.h>

/* An intermediate form of the program, in the order of the passes. */
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
    COMMAND_COMPILE,   /* one input; also with --sweep, and for the command `show` */
    COMMAND_COMPARE,   /* compares all inputs */
    COMMAND_ADVISE,    /* tries all schedules that come with dpc, and the inputs, if any */
    COMMAND_DIFF,      /* compares inputs[0], the prediction, with a trace: the other inputs, several only with a map */
    COMMAND_CALIBRATE, /* the inputs are traces */
    COMMAND_FIT,       /* one input */
} Command;

enum { OUTPUTS_MAX = 64 };

typedef struct Options {
    bool help, version;
    Command command;
    const char *input; /* inputs[0]; NULL: there are no inputs, or --help or --version is given */
    char *const *inputs;
    int input_count;
    const Parameters *own; /* compare, advise: [input_count], the -D for each input alone */
    const char *sort;      /* compare; NULL: by time */
    int64_t stages;        /* compare: each schedule cuts the model into this many stages; 0: all have the same number
                            of ranks */
    int64_t replicas;      /* compare, advise: replicas of the pipeline that sum gradients; 0: sums are not counted */
    bool json;             /* compare, advise */
    const char *program;   /* argv[0] */
    bool allow_async, allow_naive; /* advise */
    int64_t seconds;               /* advise: most seconds for all trials together */
    const char *output;            /* -o */
    int64_t step;                  /* diff: number of a step of the trace; 0: the step of median makespan */
    int64_t fastest;               /* calibrate: how many of the shortest steps of each trace count; 0: all steps */
    const char *map;               /* calibrate, diff: the map of names in a trace of the PyTorch profiler; NULL: a
                                      trace of dprun */
    struct {
        EmitKind kind;
        const char *file; /* "-": stdout */
    } emit[OUTPUTS_MAX];
    int emit_count;
    struct {
        int64_t seconds;  /* 0: do not ask the solver */
        const char *file; /* gets the shorter order that the solver finds, if any; NULL: no such file is written */
    } prove;
    int64_t width; /* width of a picture as text in columns, as svg in pixels; 0: the default of emit.h */
    bool dump[DUMP_FORMS];
    bool dumps; /* whether any --dump is given */
    Costs costs;
    const char **cost_texts; /* [cost_count]: each --cost as the user wrote it */
    int cost_count;
    Parameters parameters;
    Memory memory;
    Sweep sweep;
} Options;

void command_line_help(FILE *stream);

/* STATUS_BAD_USAGE says what is wrong and what would be right. The arena owns the parameters' names. */
Status command_line_parse(int argc, char **argv, Arena *arena, Options *options, Error *error);

#endif
