#pragma once

#include "base/status.h"

#include <stdio.h>
#include <stdlib.h>

/* Ends the bench with the message of a failed call. */
#define OK(call)                                 \
    do {                                         \
        Error error = {""};                      \
        if ((call) != STATUS_OK) {               \
            fprintf(stderr, "%s\n", error.text); \
            exit(3);                             \
        }                                        \
    } while (0)
