#ifndef BASE_OPTION_TABLE_H
#define BASE_OPTION_TABLE_H

/* A command line as a table with a row for each option. Parsing, --help and the rules about which options go together
   are derived from it. */

#include "runtime/base/arena.h"
#include "runtime/base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

typedef struct Option Option;

/* Takes the value of an option (NULL where it has none) into `target`, the struct that the table fills in.
   STATUS_BAD_USAGE says what is wrong. Strings are argv's, small memory is the arena's. */
typedef Status OptionTake(const Option *option, const char *value, void *target, Arena *arena, Error *error);

struct Option {
    const char *name;  /* without its dashes; one of a single letter has one dash */
    const char *value; /* what --help calls its value, such as FILE; NULL: it takes none */
    OptionTake *take;
    size_t field;         /* offsetof in the target, for the functions below */
    uint64_t least, most; /* of option_count and option_number */
    const char *words;    /* of option_choice: "auto cpu cuda" */
    const char *help;     /* ends without a period; --help adds the rules below */

    uint32_t commands; /* the commands that take the option: 1 << index in OptionTable.commands; 0: all */

    /* Rules. An option is named without its dashes; "device=sim" means: given with that value. */
    const char *needs;    /* one option */
    const char *excludes; /* "save profile held-out" */
    const char *when;     /* excludes: only with this value of the option itself; NULL: with any */
    const char *because;  /* excludes: what the option does, "computes nothing" */
};

typedef struct OptionTable {
    const char *program;         /* "dprun" */
    const char *const *commands; /* their names, ends with NULL; the first is "", what the program does without one.
                                    NULL: there are none */
    int column;                  /* of --help: where the words of an option begin */
    const char *usage;           /* text of --help before the options */
    const char *after;           /* text of --help after the options */
    const Option *rows;          /* the last one has no name */
    OptionTake *input;           /* takes each argument that is no option; its `option` is NULL */
} OptionTable;

enum { OPTIONS_MAX = 64 };

/* What was given: for each row its last value, "" for an option without one, NULL where the option is not there. */
typedef struct OptionsGiven {
    const char *values[OPTIONS_MAX];
} OptionsGiven;

/* Takes all arguments in their order. STATUS_BAD_USAGE: an option is unknown, lacks its value or has a wrong one. Stops
   after an option whose row takes nothing and has no field (help, version): see options_given. */
Status options_take(const OptionTable *table, int argc, char **argv, void *target, Arena *arena, OptionsGiven *given,
                    Error *error);
/* Whether the option was given; `name` may be "device=sim". The table has such a row. */
bool options_given(const OptionTable *table, const OptionsGiven *given, const char *name);
/* As if the option had been given with that value. */
void options_give(const OptionTable *table, OptionsGiven *given, const char *name, const char *value);
/* Whether the command takes all that was given, and the rules of all rows that were. */
Status options_check(const OptionTable *table, int command, const OptionsGiven *given, Error *error);
void options_print_help(const OptionTable *table, FILE *stream);

/* STATUS_BAD_USAGE: "--steps: '0' is not ...". */
Status option_refuse(const Option *option, const char *value, Error *error, const char *wanted);

/* --- how values are taken --- */

OptionTake option_flag;   /* bool: true */
OptionTake option_text;   /* const char * */
OptionTake option_count;  /* uint64_t, least .. most */
OptionTake option_number; /* uint32_t, least .. most */
OptionTake option_choice; /* const char *: one of the words */

#endif
