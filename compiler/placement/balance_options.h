#ifndef PLACEMENT_BALANCE_OPTIONS_H
#define PLACEMENT_BALANCE_OPTIONS_H

/* The command line of `dpc balance`. */

#include "balance/balance.h"

/* What is printed; BALANCE_NOTHING beside a picture on standard output. */
typedef enum BalanceFormat { BALANCE_TEXT, BALANCE_CSV, BALANCE_JSON, BALANCE_NOTHING } BalanceFormat;

typedef struct BalanceOptions {
    bool help;
    BalanceShape shape; /* experts: 0 until the loads are read */
    bool eplb;          /* --method */
    bool limited;       /* --moves or --threshold */
    BalanceFormat format;
    const char *svg; /* file of --emit=svg, "-" is standard output; NULL: none */
    const char *loads;
    const char *from;       /* NULL: no placement is in force */
    BalanceRequest request; /* its `from` is not read yet */
} BalanceOptions;

extern const char balance_help[];

/* STATUS_BAD_USAGE: what is wrong, in words. With `help` nothing else counts. */
Status balance_options_parse(int argc, char **argv, BalanceOptions *options, Error *error);

#endif
