#ifndef COMMAND_OPTIONS_H
#define COMMAND_OPTIONS_H

/* The command line of dpc. */

#include "compiler/command/sweep.h"
#include "compiler/lower/memory.h"
#include "compiler/schedule/timeline.h"
#include "runtime/base/status.h"

typedef enum EmitKind {
    EMIT_CSV,
    EMIT_COMMS,
    EMIT_ASM,
    EMIT_STATS,
    EMIT_SVG,
    EMIT_HTML,
    EMIT_TEXT,
    EMIT_TRACE,
    EMIT_EXPLAIN,
    EMIT_OVERLAP,
    EMIT_KINDS
} EmitKind;

/* A form of the program on its way, in the order of the passes. */
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
    COMMAND_COMPILE,   /* of one input, which --sweep and `show` belong to */
    COMMAND_COMPARE,   /* all of the inputs, the first of which is `input` */
    COMMAND_ADVISE,    /* all schedules that come with dpc, and the inputs, of which there may be none */
    COMMAND_DIFF,      /* `input` is held against the second of the inputs, a trace */
    COMMAND_CALIBRATE, /* the inputs are traces */
} Command;

enum { OUTPUTS_MAX = 64 };

typedef struct Options {
    bool help, version;
    Command command;
    const char *input; /* .dps or .csv; NULL only with help, version or dump of opcodes */
    char *const *inputs;
    int input_count;
    const Parameters *own; /* compare, advise: [input_count], the -D of each input alone */
    const char *sort;      /* compare: NULL: by time */
    int64_t stages;      /* compare: into so many each schedule cuts the model; 0: they have the same number of ranks */
    bool json;           /* compare, advise */
    const char *program; /* argv[0] */
    bool allow_async, allow_naive; /* advise */
    int64_t seconds;               /* advise: for all trials together */
    const char *output;            /* -o */
    int64_t step;                  /* diff: of the trace; 0: the typical one */
    int64_t fastest;               /* calibrate: so many steps of each trace; 0: all */
    const char *map;               /* calibrate: what names in a trace of the PyTorch profiler mean; NULL: of dprun */
    struct {
        EmitKind kind;
        const char *file; /* "-": stdout */
    } emit[OUTPUTS_MAX];
    int emit_count;
    int64_t width; /* of text in columns, of svg in pixels; 0: what emit.h says */
    bool dump[DUMP_FORMS];
    bool dumps; /* any of them */
    Costs costs;
    const char **cost_texts; /* [cost_count]: each --cost as the user wrote it */
    int cost_count;
    Parameters parameters;
    Memory memory;
    Sweep sweep;
} Options;

extern const char command_line_help[];

/* STATUS_BAD_USAGE says what is wrong and what would be right. The arena owns the parameters' names. */
Status command_line_parse(int argc, char **argv, Arena *arena, Options *options, Error *error);

#endif
