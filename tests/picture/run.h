#pragma once

/* `run` runs a shell command with the dpc of this build and returns its output; `pictured` lists the schedules that the
   tests draw. */

#include "tests/test.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The output of a shell command, which must succeed. `dpc` in it is the built one. The caller frees it. */
static inline char *run(const char *format, ...) __attribute__((format(printf, 1, 2)));
static inline char *run(const char *format, ...)
{
    const char *build = getenv("BUILD");
    char command[4096];
    int length = snprintf(command, sizeof command, "dpc() { %s/dpc \"$@\"; }; ", build ? build : "build");
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(command + length, sizeof command - (size_t)length, format, arguments);
    va_end(arguments);
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    char *text = NULL;
    size_t size = 0;
    FILE *copy = open_memstream(&text, &size);
    for (int c; (c = getc(pipe)) != EOF;)
        putc(c, copy);
    fclose(copy);
    if (pclose(pipe) != 0)
        fail_msg("%s: failed", command);
    return text;
}

/* Schedules of several kinds: single passes, halves, chunks, F&B on one pipe and on two; and costs that are not whole
   numbers. None is asynchronous or forward-only. */
static const char *const pictured[] = {
    "schedules/1f1b.dps",
    "schedules/gpipe.dps --cost F=0.25,comm=0.1",
    "schedules/interleaved-1f1b.dps -D chunks=3",
    "schedules/zb-h1.dps --cost F=18.522,I=18.086,W=9.337,comm=0.601",
    "schedules/zb-v.dps",
    "schedules/dualpipe.dps",
    "schedules/dualpipe.dps --ranks 4 --microbatches 8 --cost F=1,B=1.7,FB=2.1,I=0.9,W=0.8,comm=0.05",
    "schedules/dualpipev.dps --cost FB=2.5",
    "schedules/bitpipe.dps",
};
enum { PICTURED = sizeof pictured / sizeof *pictured };
