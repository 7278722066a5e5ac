#pragma once

/* The command line of `dpc balance`. */

#include "balance/balance.h"
#include "base/arena.h"

#include <stdio.h>

/* What is printed to standard output. BALANCE_NOTHING: nothing but the picture, if --emit=svg writes it there. */
typedef enum BalanceFormat { BALANCE_TEXT, BALANCE_CSV, BALANCE_JSON, BALANCE_NOTHING } BalanceFormat;

typedef struct BalanceOptions {
    bool help;
    BalanceShape shape; /* shape.experts is 0 until the loads have been read */
    bool eplb;          /* --method eplb */
    BalanceFormat format;
    const char *svg; /* file of --emit=svg; "-" is standard output; NULL: none */
    const char *loads;
    const char *from;       /* the file with the current placement; NULL: there is none */
    BalanceRequest request; /* `request.from` is NULL: balance_command sets it for each layer */
} BalanceOptions;

void balance_help(FILE *stream);

/* STATUS_BAD_USAGE: `error` says what is wrong. With `help` each option is checked by itself, but not whether options
   are missing or exclude each other. */
Status balance_options_parse(int argc, char **argv, Arena *arena, BalanceOptions *options, Error *error);
