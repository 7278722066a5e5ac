#include "base/option_table.h"

#include "base/names.h"

#include <errno.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST = 256, INPUT = 1, HELP_WIDTH = 120 };

static const char *dashes_of(const char *name) { return name[1] && name[1] != ' ' ? "--" : "-"; }

static void *field_of(const Option *option, void *target) { return (char *)target + option->field; }

Status option_refuse(const Option *option, const char *value, Error *error, const char *wanted)
{
    return error_set(error, STATUS_BAD_USAGE, "%s%s: '%s' is not %s", dashes_of(option->name), option->name, value,
                     wanted);
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

static Status read_count(const Option *option, const char *value, uint64_t *count, Error *error)
{
    char *end, wanted[96];
    errno = 0;
    const unsigned long long read = strtoull(value, &end, 10), least = option->least, most = option->most;
    *count = read;
    if (end != value && !*end && !errno && !strchr(value, '-') && read >= least && read <= most)
        return STATUS_OK;
    if (end != value && !*end && !strchr(value, '-') && (errno || read > most) && most > UINT32_MAX)
        return error_set(error, STATUS_BAD_USAGE, "%s%s: %s does not fit into 64 bits", dashes_of(option->name),
                         option->name, value);
    if (most > UINT32_MAX)
        snprintf(wanted, sizeof wanted, "a whole number of at least %llu", least);
    else
        snprintf(wanted, sizeof wanted, "a whole number from %llu to %llu", least, most);
    return option_refuse(option, value, error, wanted);
}

Status option_count(const Option *option, const char *value, void *target, Arena *arena, Error *error)
{
    (void)arena;
    return read_count(option, value, field_of(option, target), error);
}

Status option_number(const Option *option, const char *value, void *target, Arena *arena, Error *error)
{
    uint64_t count;
    (void)arena;
    TRY(read_count(option, value, &count, error));
    *(uint32_t *)field_of(option, target) = (uint32_t)count;
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

/* Appends a list of words to `text`. If the words are options, "load b device=sim" becomes "--load, -b or --device
   sim"; otherwise "cpu sim cuda" becomes "cpu, sim or cuda". `last` (here " or ") comes before the last word. */
static void append_list(char *text, size_t size, const char *words, bool options, const char *last)
{
    int length;
    for (const char *word = next_word(&words, &length), *next; word; word = next) {
        const size_t used = strlen(text);
        const char *equals = options ? memchr(word, '=', (size_t)length) : NULL;
        const int own = length, name = equals ? (int)(equals - word) : own;
        next = next_word(&words, &length);
        const char *rest = words;
        int after;
        const bool last_two = next && !next_word(&rest, &after);
        snprintf(text + used, size - used, "%s%.*s%s%.*s%s",
                 !options  ? ""
                 : own > 1 ? "--"
                           : "-",
                 name, word, equals ? " " : "", equals ? own - name - 1 : 0, equals ? equals + 1 : "",
                 !next      ? ""
                 : last_two ? last
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
    append_list(wanted, sizeof wanted, option->words, false, " or ");
    return option_refuse(option, value, error, wanted);
}

/* --- the command line --- */

/* Fails because of the name of an option. The message also says which command lists all options. */
static Status name_error(const OptionTable *table, Error *error, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static Status name_error(const OptionTable *table, Error *error, const char *format, ...)
{
    char words[200];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(words, sizeof words, format, arguments);
    va_end(arguments);
    return error_set(error, STATUS_BAD_USAGE, "%s%s %s --help lists the options", words,
                     words[strlen(words) - 1] == '?' ? "" : ";", table->program);
}

/* The option with this name, which may be written with "=VALUE"; NULL if there is none. */
static const Option *option_named(const OptionTable *table, const char *written)
{
    const size_t length = strcspn(written, "=");
    for (const Option *known = table->rows; known->name; known++)
        if (strlen(known->name) == length && memcmp(known->name, written, length) == 0)
            return known;
    return NULL;
}

static Status unknown_option(const OptionTable *table, const char *written, Error *error)
{
    const Option *without_value = option_named(table, written);
    if (without_value)
        return name_error(table, error, "--%s takes no value: '--%s'", without_value->name, written);
    char name[64]; /* what was written, without "=VALUE" */
    snprintf(name, sizeof name, "%.*s", (int)strcspn(written, "="), written);
    NearestWord nearest = nearest_to(name);
    for (const Option *known = table->rows; known->name; known++)
        nearest_consider(&nearest, known->name);
    return nearest.word ? name_error(table, error, "unknown option --%s; did you mean --%s?", written, nearest.word)
                        : name_error(table, error, "unknown option --%s", written);
}

/* Fails because of an unknown option of a single letter. `written` is argv[optind]: the argument with the letter if
   more letters follow there, otherwise the argument after it; "" at the end of argv. */
static Status unknown_letter(const OptionTable *table, char letter, const char *written, Error *error)
{
    const bool has_letter = written[0] == '-' && written[1] == letter && written[2];
    const Option *meant = has_letter ? option_named(table, written + 1) : NULL;
    if (meant)
        return name_error(table, error, "unknown option %s; did you mean --%s?", written, meant->name);
    return name_error(table, error, "unknown option -%c", letter);
}

/* The tables that getopt_long needs. Options of a single letter are not in the table of long names. */
typedef struct Known {
    struct option options[OPTIONS_MAX + 1];
    char letters[2 + 2 * OPTIONS_MAX + 1];
} Known;

static Known known_options(const OptionTable *table)
{
    Known known = {.letters = "-:"};
    struct option *option = known.options;
    char *letter = known.letters + 2;
    for (int i = 0; table->rows[i].name; i++) {
        const Option *row = &table->rows[i];
        if (row->name[1]) {
            *option++ = (struct option){row->name, row->value ? required_argument : no_argument, NULL, FIRST + i};
        } else {
            *letter++ = *row->name;
            if (row->value)
                *letter++ = ':';
        }
    }
    return known;
}

/* The row of the option that getopt_long has returned as `found`; -1: that is no known option. */
static int row_of(const OptionTable *table, int found)
{
    if (found >= FIRST)
        return found - FIRST;
    for (int i = 0; table->rows[i].name; i++)
        if (!table->rows[i].name[1] && *table->rows[i].name == found)
            return i;
    return -1;
}

Status options_take(const OptionTable *table, int argc, char **argv, void *target, Arena *arena, OptionsGiven *given,
                    Error *error)
{
    const Known known = known_options(table);
    *given = (OptionsGiven){0};
    opterr = 0;
    optind = 0; /* makes glibc's getopt start again, for callers that parse more than once */
    for (int found; (found = getopt_long(argc, argv, known.letters, known.options, NULL)) != -1;) {
        const int row = row_of(table, found);
        if (found == INPUT) {
            TRY(table->input(NULL, optarg, target, arena, error));
        } else if (found == ':') {
            return name_error(table, error, "%s needs a value", argv[optind - 1]);
        } else if (row < 0 && optopt > 0 && optopt < FIRST) {
            /* the unknown option is a single letter; it may be inside a group such as -xy */
            return unknown_letter(table, (char)optopt, optind < argc ? argv[optind] : "", error);
        } else if (row < 0) {
            return unknown_option(table, argv[optind - 1] + 2, error);
        } else {
            const Option *option = &table->rows[row];
            given->values[row] = option->value ? optarg : "";
            if (!option->take)
                return STATUS_OK;
            TRY(option->take(option, optarg, target, arena, error));
        }
    }
    while (optind < argc) /* after -- */
        TRY(table->input(NULL, argv[optind++], target, arena, error));
    return STATUS_OK;
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

void options_give(const OptionTable *table, OptionsGiven *given, const char *name, const char *value)
{
    for (int i = 0; table->rows[i].name; i++)
        if (strcmp(table->rows[i].name, name) == 0)
            given->values[i] = value;
}

static bool takes(const Option *option, int command) { return !option->commands || option->commands >> command & 1; }

/* The names of the options that a command takes, except help and version. */
static void options_of(const OptionTable *table, int command, char *names, size_t size)
{
    *names = '\0';
    for (const Option *option = table->rows; option->name; option++)
        if (option->take && takes(option, command))
            snprintf(names + strlen(names), size - strlen(names), "%s ", option->name);
}

/* Appends the commands that take the option: " dpc compare and dpc advise". */
static void append_commands(const OptionTable *table, const Option *option, char *text, size_t size)
{
    int left = 0;
    for (int c = 1; table->commands[c]; c++)
        left += takes(option, c);
    for (int c = 1; table->commands[c]; c++)
        if (takes(option, c))
            snprintf(text + strlen(text), size - strlen(text), " %s %s%s", table->program, table->commands[c],
                     --left > 1 ? ","
                     : left     ? " and"
                                : "");
}

static Status check_command(const OptionTable *table, int command, const Option *option, Error *error)
{
    char text[400] = "", names[400];
    if (takes(option, command))
        return STATUS_OK;
    if (!command) {
        append_commands(table, option, text, sizeof text);
        return error_set(error, STATUS_BAD_USAGE, "%s%s goes with%s", dashes_of(option->name), option->name, text);
    }
    options_of(table, command, names, sizeof names);
    append_list(text, sizeof text, names, true, " and ");
    return error_set(error, STATUS_BAD_USAGE, "%s %s takes no %s%s, only %s", table->program, table->commands[command],
                     dashes_of(option->name), option->name, text);
}

static Status check_row(const OptionTable *table, const OptionsGiven *given, int row, Error *error)
{
    const Option *option = &table->rows[row];
    char list[200] = "", name[64];
    if (option->needs && !any_given(table, given, option->needs)) {
        append_list(list, sizeof list, option->needs, true, "");
        return error_set(error, STATUS_BAD_USAGE, "--%s needs %s", option->name, list);
    }
    if (!option->excludes || (option->when && strcmp(option->when, given->values[row]) != 0) ||
        !any_given(table, given, option->excludes))
        return STATUS_OK;
    append_list(list, sizeof list, option->excludes, true, " or ");
    snprintf(name, sizeof name, "%s%s%s", option->name, option->when ? " " : "", option->when ? option->when : "");
    return error_set(error, STATUS_BAD_USAGE, "--%s cannot be combined with %s: --%s %s", name, list, name,
                     option->because);
}

Status options_check(const OptionTable *table, int command, const OptionsGiven *given, Error *error)
{
    for (int i = 0; table->rows[i].name; i++)
        if (given->values[i]) {
            TRY(check_command(table, command, &table->rows[i], error));
            TRY(check_row(table, given, i, error));
        }
    return STATUS_OK;
}

/* --- help --- */

/* Prints text from column `column` on, wrapped and indented. */
static void print_wrapped(const char *text, int column, FILE *stream)
{
    int length, at = column;
    for (const char *word; (word = next_word(&text, &length)) != NULL; at += length + 1) {
        if (at > column && at + length > HELP_WIDTH) {
            fprintf(stream, "\n%*s", column, "");
            at = column;
        }
        fprintf(stream, "%s%.*s", at > column ? " " : "", length, word);
    }
    putc('\n', stream);
}

static void append_rule(char *text, size_t size, const char *when, const char *words, const char *before)
{
    const size_t used = strlen(text);
    snprintf(text + used, size - used, " (%s%s%s", when ? when : "", when ? ": " : "", before);
    append_list(text, size, words, true, " or ");
    snprintf(text + strlen(text), size - strlen(text), ")");
}

static void print_row(const OptionTable *table, const Option *option, FILE *stream)
{
    char text[1000] = "";
    int column = fprintf(stream, "  %s%s%s%s", dashes_of(option->name), option->name, option->value ? " " : "",
                         option->value ? option->value : "");
    if (column + 1 > table->column) {
        putc('\n', stream);
        column = 0;
    }
    fprintf(stream, "%*s", table->column - column, "");
    if (!takes(option, 0)) {
        append_commands(table, option, text, sizeof text);
        snprintf(text + strlen(text), sizeof text - strlen(text), ": ");
    }
    snprintf(text + strlen(text), sizeof text - strlen(text), "%s", option->help);
    if (option->needs)
        append_rule(text, sizeof text, NULL, option->needs, "with ");
    if (option->excludes)
        append_rule(text, sizeof text, option->when, option->excludes, "not with ");
    print_wrapped(text, table->column, stream);
}

void options_print_help(const OptionTable *table, FILE *stream)
{
    fputs(table->usage, stream);
    for (const Option *option = table->rows; option->name; option++)
        print_row(table, option, stream);
    fputs(table->after, stream);
}
