#include "grammar/syntax_error.h"

#include "grammar/schedule.tab.h"
#include "runtime/base/names.h"

#include <string.h>

typedef struct Word {
    int token;
    const char *text;
} Word;

static const Word items[] = {
    {TOKEN_RANKS, "ranks"},     {TOKEN_MICROBATCHES, "microbatches"}, {TOKEN_PARAM, "param"},
    {TOKEN_LET, "let"},         {TOKEN_REQUIRE, "require"},           {TOKEN_PIPE, "pipe"},
    {TOKEN_CHUNK, "chunk"},     {TOKEN_AT, "at"},                     {TOKEN_REPEAT, "repeat"},
    {TOKEN_IF, "if"},           {TOKEN_ORDER, "order"},              {TOKEN_SQUEEZE, "squeeze"},
    {TOKEN_OVERLAP, "overlap"},
};

/* Words and marks that end or join; operators of expressions are not among them: they fit nearly everywhere. */
static const Word others[] = {
    {TOKEN_SCHEDULE, "`schedule NAME;`"}, {TOKEN_TITLE, "the schedule's name"}, {TOKEN_STAGES, "`stages`"},
    {TOKEN_STAGE, "`stage`"},             {TOKEN_ON, "`on`"},                   {TOKEN_MICROBATCHES, "`microbatches`"},
    {TOKEN_MICROBATCH, "`microbatch`"},   {TOKEN_VERSION, "`version`"},
    {TOKEN_OF, "`of`"},                   {TOKEN_ELSE, "`else`"},               {TOKEN_OVERLAP, "`overlap`"},
    {TOKEN_SPLIT, "`split`"},             {TOKEN_FROM, "`from`"},               {TOKEN_AUTO, "`auto`"},
    {TOKEN_STRING, "a \"message\""},
    {'=', "`=`"},                         {':', "`:`"},                         {',', "`,`"},
    {'<', "`<`"},                         {'&', "`&`"},
    {'{', "`{`"},                         {'}', "`}`"},                         {'(', "`(`"},
    {')', "`)`"},                         {'[', "`[`"},                         {']', "`]`"},
    {';', "`;`"},                         {TOKEN_EOF, "the end of the file"},
};

enum { WORDS = (int)(sizeof others / sizeof *others) };

/* What fitted here, as a person would say it. */
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
        .pass = expected[TOKEN_PASS],
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
    return token == '<' || token == '>' || token == TOKEN_LESS_EQUAL || token == TOKEN_GREATER_EQUAL || token == TOKEN_EQUAL ||
           token == TOKEN_UNEQUAL;
}

/* "nf0b1" for nF0B1 */
static bool is_pass_in_small(const char *text)
{
    const char *letters = text + (text[0] == 'n');
    return *letters && strchr("fbiwuFBIWU", *letters) && strspn(letters, "fbiwuFBIWU0123456789") == strlen(letters);
}

/* An item that begins with a name: a word of the language misspelt, or a word of passes with a letter that is none. */
static void unknown_item(Reader *reader, Span span, const char *text)
{
    const char *letters = text[0] == 'n' ? text + 1 : text;
    if (action_kind_named(letters, *letters != 0) < ACTION_KINDS) {
        diag_error(reader->diagnostics, span, "`%s` is no word of passes", text);
        diag_help(reader->diagnostics, "passes are F, B, I, W and U, each followed by its chunk: nF0B1");
        return;
    }
    diag_error(reader->diagnostics, span, "expected an item of the schedule, not `%s`", text);
    const char *next = reader->source->text + span.end, *end = reader->source->text + reader->source->size;
    while (next < end && *next == ' ')
        next++;
    NearestWord nearest = nearest_to(text);
    for (size_t i = 0; i < sizeof items / sizeof *items; i++)
        nearest_consider(&nearest, items[i].text);
    if (strcmp(text, "for") == 0 || strcmp(text, "while") == 0)
        diag_help(reader->diagnostics, "write repeat i < 4 { ... } for a loop");
    else if (next < end && *next == '=')
        diag_help(reader->diagnostics, "a name has its value from where it is declared: let %s = ...;", text);
    else if (is_pass_in_small(text))
        diag_help(reader->diagnostics, "passes are written with capital letters: nF0B1");
    else if (strcmp(text, "elif") == 0 || strcmp(text, "elsif") == 0 || strcmp(text, "elseif") == 0)
        diag_help(reader->diagnostics, "write } else if r == 1 { ... }");
    else if (nearest.word)
        diag_help(reader->diagnostics, "did you mean `%s`?", nearest.word);
    else
        diag_help(reader->diagnostics, "items begin with ranks, microbatches, param, let, require, pipe, chunk, at, "
                                       "repeat, if, squeeze, order or overlap, or are steps such as nF0B1 : 3;");
}

static bool is_behind(const Reader *reader, const char *word)
{
    const size_t length = strlen(word);
    return reader->previous_end >= length && memcmp(reader->source->text + reader->previous_end - length, word, length) == 0;
}

static void help(Reader *reader, const SyntaxError *error, const Expectation *e)
{
    Diagnostics *diagnostics = reader->diagnostics;
    const bool same_line = source_line(reader->source, reader->previous_end) == source_line(reader->source, error->span.begin);
    const bool after_number = reader->previous_end > 0 && reader->previous_end <= error->span.begin &&
                              reader->source->text[reader->previous_end - 1] >= '0' &&
                              reader->source->text[reader->previous_end - 1] <= '9';
    if (e->after_value && error->found == '=')
        diag_help(diagnostics, "write == to compare");
    else if (e->after_value && is_comparison(error->found))
        diag_help(diagnostics, "comparisons do not chain: write a < b && b < c");
    else if (e->after_value && (error->found == '(' || (after_number && error->found == TOKEN_NAME)))
        diag_help(diagnostics, "a product is written with *: 2*P");
    else if (e->after_value && error->found == '&')
        diag_help(diagnostics, "write && for and");
    else if (error->expected[TOKEN_SCHEDULE])
        diag_help(diagnostics, "the file begins with its name: schedule gpipe;");
    else if (!reader->ast->schedule && error->expected[';'] && same_line)
        diag_help(diagnostics, "the name of a schedule is one word: my-schedule");
    else if (e->name && is_behind(reader, "ranks"))
        diag_help(diagnostics, "write: ranks P = 4;");
    else if ((e->name && is_behind(reader, "repeat")) || (error->expected['<'] && !e->after_value))
        diag_help(diagnostics, "write repeat i < M { ... } for a loop");
    else if (e->name && is_behind(reader, "microbatches"))
        diag_help(diagnostics, "write: microbatches M = 8;");
    else if (error->found == '/' && e->item)
        diag_help(diagnostics, "a comment begins with #");
    else if (error->found == '}' && e->item && !error->expected['}'])
        diag_help(diagnostics, "this } closes nothing");
    else if (error->found == ';' && e->item)
        diag_help(diagnostics, "one ; ends an item; none is needed behind a }");
    const OpenBracket *open = reader->open;
    if (error->found == '{' || error->found == '(' || error->found == '[')
        open = open->outer; /* the scanner has opened it already */
    if (open && (error->expected[open->bracket == '(' ? ')' : open->bracket == '[' ? ']' : '}']) && !e->item)
        diag_note(diagnostics, open->span, "to close this `%c`", open->bracket);
    else if (open && error->found == TOKEN_EOF)
        diag_note(diagnostics, open->span, "this `%c` is not closed", open->bracket);
}

void syntax_error(Reader *reader, const SyntaxError *error)
{
    const Expectation e = understand(error->expected);
    const int length = (int)(error->span.end - error->span.begin);
    const char *text = arena_text(reader->arena, reader->source->text + error->span.begin, (size_t)length);
    if (error->found == TOKEN_PASS && (e.value || e.name)) {
        diag_error(reader->diagnostics, error->span,
                   e.name ? "`%s` is a pass and cannot be a name" : "`%s` is a pass: it has no value", text);
        diag_help(reader->diagnostics, "what is spelt with F, B, I, W, U and digits only is a word of passes");
        help(reader, error, &e);
    } else if (is_word_of_language(error->found) && e.name && !e.value) {
        diag_error(reader->diagnostics, error->span, "`%s` is a word of the language and cannot be a name", text);
        help(reader, error, &e);
    } else if (error->found == TOKEN_NAME && e.item) {
        unknown_item(reader, error->span, text);
    } else {
        /* What is missing is missing behind the token before: there the caret says more. */
        const uint32_t behind = reader->previous_end;
        const bool missing_end = error->expected[';'] && !e.item &&
                                 source_line(reader->source, behind) < source_line(reader->source, error->span.begin);
        const Span place = missing_end || error->found == TOKEN_EOF ? (Span){behind, behind} : error->span;
        if (error->found == TOKEN_EOF)
            diag_error(reader->diagnostics, place, "expected %s, but the file ends", join(&e, reader->arena));
        else
            diag_error(reader->diagnostics, place, "expected %s, not `%s`", join(&e, reader->arena), text);
        help(reader, error, &e);
    }
}
