#ifndef TESTS_BENCH_OK_H
#define TESTS_BENCH_OK_H

#include "runtime/base/status.h"

#include <stdio.h>
#include <stdlib.h>

/* A call that fails ends the bench with its message. */
#define OK(call)                                 \
    do {                                         \
        Error error = {""};                      \
        if ((call) != STATUS_OK) {               \
            fprintf(stderr, "%s\n", error.text); \
            exit(3);                             \
        }                                        \
    } while (0)

#endif
