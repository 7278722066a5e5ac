#pragma once

/* The command line of dprun. */

#include "runtime/trainer/trainer.h"

#include <stdio.h>

typedef struct CommandLine {
    const char *program; /* the path of the prog.bin */
    bool forward_only, reference, check, json;
    bool help, version; /* the option was given: the caller prints the help or the version and runs nothing */
    uint64_t replicas;  /* number of data-parallel replicas; 0: one */
    /* how many replicas divide the experts of a layer among them; 0 or 1: each replica has all experts */
    uint64_t shards;
    RunOptions run;
    const char *transport; /* the value of --transport, or "auto"; run.transport is the transport that was chosen */
    uint64_t seed;         /* the value of --seed; if given, also in run.model */
    const char **settings; /* [setting_count]: the value of each --set; also applied to run.model */
    int setting_count;
} CommandLine;

/* STATUS_BAD_USAGE: the command line is wrong; STATUS_BAD_INPUT: a file of --model or --cost is wrong;
   STATUS_RUN_FAILED: out of memory. Does not check whether this build has the device and the transport. Memory is from
   the arena; strings are those of argv. */
Status options_parse(int argc, char **argv, Arena *arena, CommandLine *line, Error *error);
/* Returns how to load the program of the command line, or its reference on one rank. */
LoadOptions options_loading(const CommandLine *line, bool reference);
void options_help(FILE *stream);
