#ifndef COMMAND_OPTIONS_H
#define COMMAND_OPTIONS_H

/* The command line of dprun. */

#include "runtime/trainer/trainer.h"

#include <stdio.h>

typedef struct CommandLine {
    const char *program; /* the path of the prog.bin */
    bool forward_only, reference, check, json;
    bool help, version; /* the caller prints what is asked for and runs nothing */
    RunOptions run;
    const char *transport; /* as it was given, or auto; run.transport is what it has become */
    uint64_t seed;         /* --seed, */
    const char **settings; /* and each --set: [setting_count]; both are in run.model, too */
    int setting_count;
} CommandLine;

/* STATUS_BAD_USAGE with a message of one line; STATUS_BAD_INPUT for a model file; STATUS_RUN_FAILED for a device or
   transport that this build does not have. Small memory is the arena's; strings are argv's. */
Status options_parse(int argc, char **argv, Arena *arena, CommandLine *line, Error *error);
void options_help(FILE *stream);

#endif
