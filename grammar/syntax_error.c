#include "grammar/syntax_error.h"

#include "grammar/around.h"
#include "grammar/foreign.h"
#include "grammar/schedule.tab.h"
#include "base/names.h"

#include <string.h>
#include <strings.h>

typedef struct Word {
    int token;
    const char *text;
} Word;

/* The items of a file: the token with which each begins, and an example. */
static const struct {
    int token;
    const char *text, *form;
} items[] = {
    {TOKEN_SCHEDULE, "schedule", "schedule my-schedule;"},
    {TOKEN_RANKS, "ranks", "ranks P = 4;"},
    {TOKEN_MICROBATCHES, "microbatches", "microbatches M = 8;"},
    {TOKEN_PARAM, "param", "param k = 2;"},
    {TOKEN_LET, "let", "let w = P-1-r;"},
    {TOKEN_REQUIRE, "require", "require M >= P, \"fewer microbatches than ranks\";"},
    {TOKEN_PIPE, "pipe", "pipe a: P stages, stage s on s, M microbatches;"},
    {TOKEN_CHUNK, "chunk", "chunk 0 = a;"},
    {TOKEN_AT, "at", "at 2*r: F;"},
    {TOKEN_REPEAT, "repeat", "repeat i < M { ... }"},
    {TOKEN_IF, "if", "if r == 0 { ... } else { ... }"},
    {TOKEN_ELSE, "else", "} else { ... }"},
    {TOKEN_ORDER, "order", "order auto(memory = 2*P);"},
    {TOKEN_SQUEEZE, "squeeze", "squeeze;"},
    {TOKEN_OVERLAP, "overlap",
     "overlap F&B { compute: mlp(B) mlp(F); comm: dispatch(F) dispatch(B); } or overlap F&B auto;"},
    {TOKEN_PASS, "pass", "nFB : M;"},
};

enum { ITEMS = (int)(sizeof items / sizeof *items) };

/* Words and punctuation that the parser may expect, as messages name them. Operators of expressions are left out,
   because they fit nearly everywhere; `<` is here for `repeat i < M`. */
static const Word others[] = {
    {TOKEN_SCHEDULE, "`schedule NAME;`"},
    {TOKEN_TITLE, "the schedule's name"},
    {TOKEN_STAGES, "`stages`"},
    {TOKEN_STAGE, "`stage`"},
    {TOKEN_ON, "`on`"},
    {TOKEN_MICROBATCHES, "`microbatches`"},
    {TOKEN_MICROBATCH, "`microbatch`"},
    {TOKEN_VERSION, "`version`"},
    {TOKEN_OF, "`of`"},
    {TOKEN_ELSE, "`else`"},
    {TOKEN_OVERLAP, "`overlap`"},
    {TOKEN_SPLIT, "`split`"},
    {TOKEN_FROM, "`from`"},
    {TOKEN_AUTO, "`auto`"},
    {TOKEN_STRING, "a \"message\""},
    {'=', "`=`"},
    {':', "`:`"},
    {',', "`,`"},
    {'<', "`<`"},
    {'&', "`&`"},
    {'{', "`{`"},
    {'}', "`}`"},
    {'(', "`(`"},
    {')', "`)`"},
    {'[', "`[`"},
    {']', "`]`"},
    {';', "`;`"},
    {TOKEN_EOF, "the end of the file"},
};

enum { WORDS = (int)(sizeof others / sizeof *others) };

/* The kinds of tokens that the parser would have accepted, and their names in a message. */
typedef struct Expectation {
    bool item, value, after_value, pass, name;
    const char *words[WORDS + 3];
    int count;
} Expectation;

static Expectation understand(const bool *expected)
{
    Expectation e = {
        .item = expected[TOKEN_LET],
        .value = expected[TOKEN_NUMBER] && expected['('],
        .after_value = expected['*'],
        /* a pass counts as expected only where no number fits: after `NAME (` both fit, because of cost(F) */
        .pass = expected[TOKEN_PASS] && !expected[TOKEN_NUMBER],
        .name = expected[TOKEN_NAME] && !expected[TOKEN_NUMBER],
    };
    if (e.item)
        e.words[e.count++] = "an item of the schedule";
    if (e.value)
        e.words[e.count++] = "an expression";
    else if (expected[TOKEN_NUMBER])
        e.words[e.count++] = "a number";
    if (e.name)
        e.words[e.count++] = "a name";
    if (e.pass && !e.item)
        e.words[e.count++] = "a pass";
    const bool in_step = e.pass && !e.item;
    for (int i = 0; i < WORDS; i++) {
        const int token = others[i].token;
        const bool of_item = e.item && (token == TOKEN_MICROBATCHES || token == TOKEN_OVERLAP);
        const bool of_value = ((e.value || e.after_value) && token == '(') || (e.after_value && token == '<');
        const bool rare = (in_step || e.after_value) && (token == '[' || token == '{' || token == '&') && expected[';'];
        if (expected[token] && !of_item && !of_value && !rare)
            e.words[e.count++] = others[i].text;
    }
    return e;
}

static const char *join(const Expectation *e, Arena *arena)
{
    const char *text = e->words[0];
    for (int i = 1; i < e->count; i++)
        text = arena_format(arena, i + 1 < e->count ? "%s, %s" : "%s or %s", text, e->words[i]);
    return text;
}

static bool is_word_of_language(int token) { return token >= TOKEN_SCHEDULE && token <= TOKEN_AUTO; }

static bool is_comparison(int token)
{
    return token == '<' || token == '>' || token == TOKEN_LESS_EQUAL || token == TOKEN_GREATER_EQUAL ||
           token == TOKEN_EQUAL || token == TOKEN_UNEQUAL;
}

/* Whether the text is a word of passes if capitals are ignored: nf0b1 or NF0B1, meant as nF0B1. */
static bool is_pass_in_small(const char *text)
{
    const char *letters = text + (text[0] == 'n' || text[0] == 'N');
    return *letters && strchr("fbiwuFBIWU", *letters) && strspn(letters, "fbiwuFBIWU0123456789") == strlen(letters);
}

/* Reports an item that begins with a name: a misspelt word or pass, or a word of another language. */
static void unknown_item(Reader *reader, Span span, const char *text)
{
    const char *letters = text[0] == 'n' ? text + 1 : text;
    const size_t passes = strspn(letters, "FBIWU0123456789"), rest = strlen(letters + passes);
    if (!foreign_item(text) && action_kind_named(letters, *letters != 0) < ACTION_KINDS) {
        diag_error(reader->diagnostics, span, "`%s` is neither a word of the language nor a list of passes", text);
        if (strcasecmp(text, "if") == 0)
            diag_help(reader->diagnostics, "did you mean `if`?");
        else if (rest <= 2 && strspn(letters + passes, "abcdefghijklmnopqrstuvwxyz_") == rest)
            diag_help(reader->diagnostics, "a chunk that is computed is written in { }: %.*s{%s}",
                      (int)(letters + passes - text), text, letters + passes);
        else
            diag_help(reader->diagnostics, "passes are F, B, I, W and U; the number of a chunk may follow each: nF0B1");
        return;
    }
    diag_error(reader->diagnostics, span, "expected an item of the schedule, not `%s`", text);
    const char *next = reader->source->text + span.end, *end = reader->source->text + reader->source->size;
    while (next < end && *next == ' ')
        next++;
    NearestWord nearest = nearest_to(text);
    for (size_t i = 0; i < ITEMS; i++)
        if (items[i].token != TOKEN_PASS)
            nearest_consider(&nearest, items[i].text);
    if (foreign_item(text))
        diag_help(reader->diagnostics, "%s", foreign_item(text));
    else if (next + 1 < end && next[0] == '=' && next[1] == '=')
        diag_help(reader->diagnostics, "a condition is an item of its own: require %s == ..., \"message\";", text);
    else if (next < end && (*next == '=' || (next + 1 < end && strchr(":+-*", *next) && next[1] == '=')))
        diag_help(reader->diagnostics, "a name gets its value where it is declared: let %s = ...;", text);
    else if (is_pass_in_small(text))
        diag_help(reader->diagnostics, "passes are written with capital letters: nF0B1");
    else if (nearest.word)
        diag_help(reader->diagnostics, "did you mean `%s`?", nearest.word);
    else
        diag_help(reader->diagnostics,
                  "an item is a step such as `nF0B1 : 3;`, or begins with one of the words `ranks`, `microbatches`, "
                  "`param`, `let`, `require`, `pipe`, `chunk`, `at`, `repeat`, `if`, `squeeze`, `order` and `overlap`");
}

/* Adds a help with an example of the item that has the error. */
static void help_form(Reader *reader)
{
    for (int i = 0; i < ITEMS; i++)
        if (items[i].token == reader->item.kind)
            diag_help(reader->diagnostics, "write it like this: %s", items[i].form);
}

/* Adds a help if an item should begin but a token such as `}` or `else` was found. False: there is no help for this
   token. */
static bool help_no_item(Reader *reader, const SyntaxError *error)
{
    Diagnostics *diagnostics = reader->diagnostics;
    switch (error->found) {
    case '}': diag_help(diagnostics, "this `}` closes nothing: no `{` is open here"); return true;
    case ';': diag_help(diagnostics, "one `;` ends an item; after a `}` none is needed"); return true;
    case TOKEN_ELSE:
        diag_help(diagnostics, "`else` follows the `}` of its `if`: if r == 0 { ... } else { ... }");
        return true;
    case TOKEN_MICROBATCH: diag_help(diagnostics, "did you mean `microbatches`?"); return true;
    case TOKEN_STAGE:
    case TOKEN_STAGES:
        diag_help(diagnostics, "stages are declared in a `pipe`: pipe a: P stages, stage s on s, M microbatches;");
        return true;
    default: return false;
    }
}

/* Adds a help for common errors in an item: a `:` or `,` in a wrong place, quotes, a choice without its second value.
   False: it is no such error. */
static bool help_in_item(Reader *reader, const SyntaxError *error, const Expectation *e)
{
    Diagnostics *diagnostics = reader->diagnostics;
    const OpenBracket *open = reader->open;
    const Span head = {reader->item.span.begin, reader->previous.span.end};
    if (error->found == ':' && error->expected['{']) {
        diag_help(diagnostics, "a block is written in braces: %s { ... }", text_of(reader, head));
    } else if (error->found == ':' && open && open->bracket == '[') {
        diag_help(diagnostics, "a pass is of one microbatch; for several, write repeat m < 4 { F[m]; }");
    } else if (error->found == ',' && error->expected[';'] && reader->item.kind == TOKEN_PASS) {
        diag_help(diagnostics,
                  e->pass ? "passes of a step follow each other without commas: F0 B0 F1 B1;" : "a step ends with `;`");
    } else if (error->found == TOKEN_STRING && error->expected[TOKEN_TITLE]) {
        diag_help(diagnostics, "write the name without quotes: schedule my-schedule;");
    } else if (error->expected[':'] && e->after_value && reader->item.kind != TOKEN_AT) {
        diag_help(diagnostics, "`? :` needs a value for both cases: r == 0 ? M : 0");
    } else {
        return false;
    }
    return true;
}

static bool help_in_expression(Reader *reader, const SyntaxError *error)
{
    Diagnostics *diagnostics = reader->diagnostics;
    const bool after_number = reader->previous.kind == TOKEN_NUMBER;
    const Span number = reader->previous.span;
    if (error->found == '=')
        diag_help(diagnostics, "write == to compare");
    else if (is_comparison(error->found))
        diag_help(diagnostics, "comparisons do not chain: write a < b && b < c");
    else if (after_number && error->found == TOKEN_NAME && byte_at(reader, skip_blanks(reader, error->span.end)) != '=')
        diag_help(diagnostics, "a product is written with *: %s*%s", text_of(reader, number),
                  text_of(reader, error->span));
    else if (error->found == '(')
        diag_help(diagnostics, "a product is written with *: 2*P");
    else if (error->found == '&')
        diag_help(diagnostics, "write && for a logical and");
    else
        return false;
    return true;
}

static bool help_brackets(Reader *reader, const SyntaxError *error, const Expectation *e)
{
    const OpenBracket *open = reader->open;
    if (error->found == '{' || error->found == '(' || error->found == '[')
        open = open->outer; /* the bracket that was found is already the innermost open one */
    if (open && (error->expected[open->bracket == '(' ? ')' : open->bracket == '[' ? ']' : '}']) && !e->item)
        diag_note(reader->diagnostics, open->span, "to close this `%c`", open->bracket);
    else if (open && error->found == TOKEN_EOF)
        diag_note(reader->diagnostics, open->span, "this `%c` is not closed", open->bracket);
    else
        return false;
    return true;
}

/* Whether a `;` is missing after the last token: a `;` is expected, and the token that was found is on a later line, a
   `}` or the end of the file. */
static bool misses_end(const Reader *reader, const SyntaxError *error, const Expectation *e)
{
    const bool next_line =
        source_line(reader->source, reader->previous.span.end) < source_line(reader->source, error->span.begin);
    return error->expected[';'] && !e->item && (next_line || error->found == '}' || error->found == TOKEN_EOF);
}

static void help(Reader *reader, const SyntaxError *error, const Expectation *e)
{
    Diagnostics *diagnostics = reader->diagnostics;
    const bool same_line =
        source_line(reader->source, reader->previous.span.end) == source_line(reader->source, error->span.begin);
    if ((e->after_value && help_in_expression(reader, error)) || help_in_item(reader, error, e))
        return;
    if (error->expected[TOKEN_SCHEDULE])
        diag_help(diagnostics, "the file begins with the name of the schedule: schedule gpipe;");
    else if (!reader->ast->schedule && error->expected[';'] && same_line)
        diag_help(diagnostics, "the name of a schedule is one word: my-schedule");
    else if (help_brackets(reader, error, e) || (e->item && help_no_item(reader, error)))
        return;
    else if (!e->item && !misses_end(reader, error, e))
        help_form(reader);
}

/* Whether the error only follows from one that was reported: a bracket is open at the end of the file and there was an
   error in it, or an `else` follows an `if` with an error. */
static bool is_known(const Reader *reader, const SyntaxError *error)
{
    if (error->found == TOKEN_ELSE && reader->broken_if)
        return true;
    return error->found == TOKEN_EOF && reader->open && reader->reported &&
           reader->reported_at > reader->open->span.begin;
}

static void report(Reader *reader, const SyntaxError *error, const Expectation *e)
{
    const char *text = text_of(reader, error->span);
    const uint32_t after = reader->previous.span.end;
    /* if something is missing, the caret is after the previous token */
    const Span place = misses_end(reader, error, e) || error->found == TOKEN_EOF ? (Span){after, after} : error->span;
    const char *expected = misses_end(reader, error, e) ? "`;`" : join(e, reader->arena);
    if (error->found == TOKEN_PASS && (e->value || e->name)) {
        diag_error(reader->diagnostics, place,
                   e->name ? "`%s` is a pass and cannot be a name" : "`%s` is a pass: it has no value", text);
        diag_help(reader->diagnostics,
                  "a word of F, B, I, W, U and digits, with or without n before it, is read as passes, such as nF0B1");
        help_brackets(reader, error, e);
        return;
    }
    if (is_word_of_language(error->found) && e->name && !e->value) {
        diag_error(reader->diagnostics, place, "`%s` is a word of the language and cannot be a name", text);
        return;
    } else if (error->found == TOKEN_EOF) {
        diag_error(reader->diagnostics, place, "expected %s, but the file ends", expected);
    } else {
        diag_error(reader->diagnostics, place, "expected %s, not `%s`", expected, text);
    }
    help(reader, error, e);
}

/* Whether the word before `at` is the function cost. */
static bool follows_cost(const Reader *reader, uint32_t at)
{
    const uint32_t length = (uint32_t)strlen(function_names[FUNCTION_COST]);
    while (at > 0 && byte_at(reader, at - 1) == ' ')
        at--;
    return at > length && !is_word_byte(byte_at(reader, at - length - 1)) &&
           strcmp(text_of(reader, (Span){at - length, at}), function_names[FUNCTION_COST]) == 0;
}

/* Reports a call of cost() without parentheses, or without the name of exactly one cost in them, such as cost() or
   cost(F, I). */
static bool bad_cost_call(Reader *reader, const SyntaxError *error)
{
    const OpenBracket *open = reader->open;
    /* cost(): the scanner has read the `)`, so this bracket is no longer among the open ones */
    const bool empty =
        error->found == ')' && reader->previous.kind == '(' && follows_cost(reader, reader->previous.span.begin);
    const bool call = open && open->bracket == '(' && error->found != ';' && error->found != TOKEN_EOF &&
                      follows_cost(reader, open->span.begin);
    const bool bare = error->found == TOKEN_PASS && follows_cost(reader, error->span.begin);
    if (!empty && !call && !bare)
        return false;
    diag_error(reader->diagnostics, error->span, "cost() takes the name of one cost");
    diag_help(reader->diagnostics, "%s", cost_form);
    return true;
}

void syntax_error(Reader *reader, const SyntaxError *found)
{
    SyntaxError error = *found;
    const Expectation e = understand(error.expected);
    if (is_known(reader, &error))
        return;
    if (error.found == TOKEN_PASS)
        error.span = reader->word;
    if (foreign_count(reader, &error) || (e.after_value && foreign_word(reader, &error)) ||
        foreign_call(reader, &error) || bad_cost_call(reader, &error))
        ;
    else if (error.found == TOKEN_NAME && e.item)
        unknown_item(reader, error.span, text_of(reader, error.span));
    else
        report(reader, &error, &e);
    reader->reported = true;
    reader->broken_if |= reader->item.kind == TOKEN_IF || reader->item.kind == TOKEN_ELSE;
    reader->reported_at = error.span.begin;
}
