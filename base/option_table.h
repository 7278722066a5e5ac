#pragma once

/* The options of a program as a table with a row for each. Parsing, --help and the checks of options that exclude or
   need each other follow from the table. */

#include "base/arena.h"
#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

typedef struct Option Option;

/* Stores the value of an option in `target`, the caller's struct for all values. If `option` is NULL, `value` is an
   argument that is not an option. If `value` is NULL, the option takes no value. STATUS_BAD_USAGE says what is wrong.
   Strings stay in argv; other memory is from the arena. */
typedef Status OptionTake(const Option *option, const char *value, void *target, Arena *arena, Error *error);

struct Option {
    /* without dashes. An option of a single letter has one dash on the command line, others have two */
    const char *name;
    const char *value; /* what --help calls the option's value, such as FILE; NULL: the option has no value */
    OptionTake *take;
    size_t field;         /* offset in the target struct of the member that the OptionTake functions below set */
    uint64_t least, most; /* the range of values, for option_count and option_number */
    const char *words;    /* the allowed words, for option_choice: "auto cpu cuda" */
    const char *help;     /* the text of --help, without a final period; --help appends the rules below */

    uint32_t commands; /* the commands that take the option, as bits 1 << index in OptionTable.commands; 0: all */

    /* Rules about which options go together. They name options without dashes; "device=sim" means that --device was
       given with the value sim. */
    const char *needs;    /* one option */
    const char *excludes; /* some options: "save profile held-out" */
    const char *when;     /* `excludes` holds only if this option has this value; NULL: with any value */
    const char *because;  /* why it excludes them: what this option does, such as "computes nothing" */
};

typedef struct OptionTable {
    const char *program; /* "dprun" */
    /* the names of the program's commands, ends with NULL; the first one is "", which means that no command is given.
       NULL: the program has no commands */
    const char *const *commands;
    int column;         /* the column of --help at which the help of an option begins */
    const char *usage;  /* text of --help before the options */
    const char *after;  /* text of --help after the options */
    const Option *rows; /* one for each option; the last row has no name */
    OptionTake *input;  /* called for each argument that is not an option, with `option` NULL */
} OptionTable;

enum { OPTIONS_MAX = 64 };

/* Which options were given: for each row the last value given; "" if the option has no value; NULL if it was not
   given. */
typedef struct OptionsGiven {
    const char *values[OPTIONS_MAX];
} OptionsGiven;

/* Parses all arguments in their order. STATUS_BAD_USAGE: an option is unknown, lacks its value or has a wrong one. Also
   returns the error of a `take` that fails. Parsing stops with STATUS_OK after an option whose row has no `take` (help,
   version); options_given tells whether there was one. */
Status options_take(const OptionTable *table, int argc, char **argv, void *target, Arena *arena, OptionsGiven *given,
                    Error *error);
/* Whether an option was given. `name` must be in the table, and may have a value: "device=sim". */
bool options_given(const OptionTable *table, const OptionsGiven *given, const char *name);
/* Records the option in `given` as if it had been given with that value. Does not store the value in the option's
   target. */
void options_give(const OptionTable *table, OptionsGiven *given, const char *name, const char *value);
/* Checks that the command takes all options that were given, and that the rules of these options hold. `command` is an
   index in OptionTable.commands. */
Status options_check(const OptionTable *table, int command, const OptionsGiven *given, Error *error);
void options_print_help(const OptionTable *table, FILE *stream);

/* Fails with STATUS_BAD_USAGE: "--steps: '0' is not WANTED". */
Status option_refuse(const Option *option, const char *value, Error *error, const char *wanted);

/* --- how values are taken --- */

OptionTake option_flag;   /* bool: true */
OptionTake option_text;   /* const char * */
OptionTake option_count;  /* uint64_t, least .. most */
OptionTake option_number; /* uint32_t, least .. most */
OptionTake option_choice; /* stores a const char *: one of Option.words */
