#include "runtime/base/option_table.h"

#include "runtime/base/names.h"

#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST = 256, INPUT = 1, HELP_WIDTH = 120, HELP_COLUMN = 21 };

static void *field_of(const Option *option, void *target) { return (char *)target + option->field; }

Status option_refuse(const Option *option, const char *value, Error *error, const char *wanted)
{
    return error_set(error, STATUS_BAD_USAGE, "--%s: '%s' is not %s", option->name, value, wanted);
}

Status option_flag(const Option *option, const char *value, void *target, Arena *arena, Error *error)
{
    (void)value, (void)arena, (void)error;
    *(bool *)field_of(option, target) = true;
    return STATUS_OK;
}

Status option_text(const Option *option, const char *value, void *target, Arena *arena, Error *error)
{
    (void)arena, (void)error;
    *(const char **)field_of(option, target) = value;
    return STATUS_OK;
}

Status option_count(const Option *option, const char *value, void *target, Arena *arena, Error *error)
{
    char *end, wanted[96];
    (void)arena;
    errno = 0;
    const unsigned long long count = strtoull(value, &end, 10);
    if (end == value || *end || errno || strchr(value, '-') || count < option->least || count > option->most) {
        snprintf(wanted, sizeof wanted, "a whole number from %llu to %llu", (unsigned long long)option->least,
                 (unsigned long long)option->most);
        return option_refuse(option, value, error, wanted);
    }
    *(uint64_t *)field_of(option, target) = count;
    return STATUS_OK;
}

/* --- lists of words, separated by blanks --- */

/* The next word of `*list`, with its length; NULL: there is none. */
static const char *next_word(const char **list, int *length)
{
    const char *word = *list + strspn(*list, " ");
    *length = (int)strcspn(word, " ");
    *list = word + *length;
    return *length ? word : NULL;
}

/* "--a, --b or --c=d" of "a b c=d": each word after `before`, with `last` between the last two. */
static void append_list(char *text, size_t size, const char *words, const char *before, const char *last)
{
    int length;
    for (const char *word = next_word(&words, &length), *next; word; word = next) {
        const size_t used = strlen(text);
        const int own = length;
        const char *blank = memchr(word, '=', (size_t)own);
        const int name = blank ? (int)(blank - word) : own;
        next = next_word(&words, &length);
        const char *rest = words;
        int after;
        const bool two_left = next && !next_word(&rest, &after);
        snprintf(text + used, size - used, "%s%.*s%s%.*s%s", before, name, word, blank ? " " : "",
                 blank ? own - name - 1 : 0, blank ? blank + 1 : "",
                 !next      ? ""
                 : two_left ? last
                            : ", ");
    }
}

Status option_choice(const Option *option, const char *value, void *target, Arena *arena, Error *error)
{
    const char *words = option->words;
    char wanted[200] = "";
    int length;
    (void)arena;
    for (const char *word; (word = next_word(&words, &length)) != NULL;)
        if ((size_t)length == strlen(value) && memcmp(word, value, (size_t)length) == 0) {
            *(const char **)field_of(option, target) = value;
            return STATUS_OK;
        }
    append_list(wanted, sizeof wanted, option->words, "", " or ");
    return option_refuse(option, value, error, wanted);
}

/* --- the command line --- */

static Status unknown_option(const OptionTable *table, const char *written, Error *error)
{
    const char *equals = strchr(written, '=');
    const size_t length = equals ? (size_t)(equals - written) : strlen(written);
    NearestWord nearest = nearest_to(written);
    for (const Option *known = table->rows; known->name; known++) {
        if (strlen(known->name) == length && memcmp(known->name, written, length) == 0)
            return error_set(error, STATUS_BAD_USAGE, "--%s takes no value: '--%s'", known->name, written);
        nearest_consider(&nearest, known->name);
    }
    return error_set(error, STATUS_BAD_USAGE, "unknown option '--%s'%s%s%s", written,
                     nearest.word ? "; did you mean --" : "", nearest.word ? nearest.word : "",
                     nearest.word ? "?" : "");
}

static Status take_all(const OptionTable *table, int argc, char **argv, void *target, Arena *arena, OptionsGiven *given,
                       Error *error)
{
    struct option known[OPTIONS_MAX + 1] = {0};
    for (int i = 0; table->rows[i].name; i++)
        known[i] = (struct option){table->rows[i].name, table->rows[i].value ? required_argument : no_argument, NULL,
                                   FIRST + i};
    opterr = 0;
    optind = 0; /* glibc: start afresh, for callers that parse more than once */
    for (int found; (found = getopt_long(argc, argv, "-:", known, NULL)) != -1;) {
        if (found == INPUT) {
            TRY(table->input(NULL, optarg, target, arena, error));
        } else if (found == ':') {
            return error_set(error, STATUS_BAD_USAGE, "%s needs a value", argv[optind - 1]);
        } else if (found < FIRST && optopt > 0 &&
                   optopt < FIRST) { /* one of several letters: getopt has not moved on */
            return error_set(error, STATUS_BAD_USAGE, "unknown option '-%c'", optopt);
        } else if (found < FIRST) {
            return unknown_option(table, argv[optind - 1] + 2, error);
        } else {
            const Option *option = &table->rows[found - FIRST];
            given->values[found - FIRST] = option->value ? optarg : "";
            if (!option->take)
                return STATUS_OK;
            TRY(option->take(option, optarg, target, arena, error));
        }
    }
    while (optind < argc) /* after -- */
        TRY(table->input(NULL, argv[optind++], target, arena, error));
    return STATUS_OK;
}

/* Every message about the command line says where its options are listed. */
static Status with_hint(const OptionTable *table, Status status, Error *error)
{
    const size_t used = strlen(error->text);
    if (status == STATUS_BAD_USAGE)
        snprintf(error->text + used, sizeof error->text - used, "%s %s --help lists the options",
                 error->text[used - 1] == '?' ? "" : ";", table->program);
    return status;
}

Status options_take(const OptionTable *table, int argc, char **argv, void *target, Arena *arena, OptionsGiven *given,
                    Error *error)
{
    *given = (OptionsGiven){0};
    return with_hint(table, take_all(table, argc, argv, target, arena, given, error), error);
}

/* --- rules --- */

static bool is_given(const OptionTable *table, const OptionsGiven *given, const char *name, int length)
{
    const char *equals = memchr(name, '=', (size_t)length);
    const size_t own = equals ? (size_t)(equals - name) : (size_t)length;
    const size_t wanted = equals ? (size_t)length - own - 1 : 0;
    for (int i = 0; table->rows[i].name; i++) {
        const char *value = given->values[i];
        if (value && strlen(table->rows[i].name) == own && memcmp(table->rows[i].name, name, own) == 0)
            return !equals || (strlen(value) == wanted && memcmp(value, equals + 1, wanted) == 0);
    }
    return false;
}

bool options_given(const OptionTable *table, const OptionsGiven *given, const char *name)
{
    return is_given(table, given, name, (int)strlen(name));
}

static bool any_given(const OptionTable *table, const OptionsGiven *given, const char *names)
{
    int length;
    for (const char *name; (name = next_word(&names, &length)) != NULL;)
        if (is_given(table, given, name, length))
            return true;
    return false;
}

static Status check_row(const OptionTable *table, const OptionsGiven *given, int row, Error *error)
{
    const Option *option = &table->rows[row];
    char list[200] = "";
    if (option->needs && !any_given(table, given, option->needs)) {
        append_list(list, sizeof list, option->needs, "--", "");
        return error_set(error, STATUS_BAD_USAGE, "--%s goes with %s", option->name, list);
    }
    if (!option->excludes || (option->when && strcmp(option->when, given->values[row]) != 0) ||
        !any_given(table, given, option->excludes))
        return STATUS_OK;
    append_list(list, sizeof list, option->excludes, "--", " or ");
    return error_set(error, STATUS_BAD_USAGE, "--%s%s%s %s: it goes with no %s", option->name, option->when ? " " : "",
                     option->when ? option->when : "", option->because, list);
}

Status options_check(const OptionTable *table, const OptionsGiven *given, Error *error)
{
    for (int i = 0; table->rows[i].name; i++)
        if (given->values[i])
            TRY(with_hint(table, check_row(table, given, i, error), error));
    return STATUS_OK;
}

/* --- help --- */

/* Words from `column` on, wrapped and indented. */
static void print_wrapped(const char *text, int column, FILE *stream)
{
    int length, at = column;
    for (const char *word; (word = next_word(&text, &length)) != NULL; at += length + 1) {
        if (at > HELP_COLUMN && at + length > HELP_WIDTH) {
            fprintf(stream, "\n%*s", HELP_COLUMN, "");
            at = HELP_COLUMN;
        }
        fprintf(stream, "%s%.*s", at > HELP_COLUMN ? " " : "", length, word);
    }
    putc('\n', stream);
}

static void append_rule(char *text, size_t size, const char *when, const char *words, const char *before)
{
    const size_t used = strlen(text);
    snprintf(text + used, size - used, " (%s%s%s", when ? when : "", when ? ": " : "", before);
    append_list(text, size, words, "--", " or ");
    snprintf(text + strlen(text), size - strlen(text), ")");
}

static void print_row(const Option *option, FILE *stream)
{
    char text[1000];
    int column =
        fprintf(stream, "  --%s%s%s", option->name, option->value ? " " : "", option->value ? option->value : "");
    if (column + 1 > HELP_COLUMN) {
        putc('\n', stream);
        column = 0;
    }
    fprintf(stream, "%*s", HELP_COLUMN - column, "");
    snprintf(text, sizeof text, "%s", option->help);
    if (option->needs)
        append_rule(text, sizeof text, NULL, option->needs, "with ");
    if (option->excludes)
        append_rule(text, sizeof text, option->when, option->excludes, "not with ");
    print_wrapped(text, HELP_COLUMN, stream);
}

void options_print_help(const OptionTable *table, FILE *stream)
{
    fputs(table->usage, stream);
    for (const Option *option = table->rows; option->name; option++)
        print_row(option, stream);
    fputs(table->after, stream);
}
