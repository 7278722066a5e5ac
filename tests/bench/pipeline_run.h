#pragma once

#include "runtime/command/options.h"
#include "tests/exec/pipelines.h"

#include <stdio.h>
#include <stdlib.h>

/* Runs dprun's code in this process, with a pipeline of one chunk per rank. If it fails, prints `bench` and the error,
   and ends the program. */
static inline void run_pipeline(const char *bench, uint32_t ranks, uint32_t microbatches, bool reference,
                                const SessionHooks *hooks, int count, char **arguments)
{
    Arena arena = {0};
    Error error = {0};
    CommandLine line;
    LoadedProgram loaded;
    Session *session;
    Program *program = pipeline_program(&arena, ranks, 1, microbatches);
    Status status = options_parse(count, arguments, &arena, &line, &error);
    if (status == STATUS_OK)
        status = program_derive(program, &(LoadOptions){.reference = reference}, &arena, &loaded, &error);
    if (status == STATUS_OK)
        status = session_open(&loaded, &line.run, hooks, &session, &error);
    if (status == STATUS_OK) {
        status = session_run(session, &error);
        session_close(session);
    }
    if (status != STATUS_OK) {
        fprintf(stderr, "%s: %s\n", bench, error.text);
        exit((int)status);
    }
    arena_free(&arena);
}
