#include "grammar/foreign.h"

#include "grammar/around.h"
#include "grammar/schedule.tab.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* --- the tables --- */

typedef struct Spelling {
    const char *text;
    int token;        /* the token of the language with this meaning; after an operator the parser gets it instead */
    const char *help; /* NULL: the help depends on the operands */
} Spelling;

static const Spelling operators[] = {
    {"**", '*', NULL},
    {"^", '*', NULL},
    {"<<", '*', NULL},
    {">>", '/', NULL},
    {"//", '/', "write /, which rounds towards 0"},
    {"<>", TOKEN_UNEQUAL, "write !="},
    {"!==", TOKEN_UNEQUAL, "write !="},
    {"===", TOKEN_EQUAL, "write =="},
    {"=<", TOKEN_LESS_EQUAL, "write <="},
    {"=>", TOKEN_GREATER_EQUAL, "write >="},
    {"|", TOKEN_OR, "write ||"},
    {":=", '=', "write ="},
    {"+=", '=', "a name keeps its value: declare another name with `let`"},
    {"-=", '=', "a name keeps its value: declare another name with `let`"},
};

/* Words that other languages have after a value, such as a `and` b. */
static const Spelling words[] = {
    {"and", TOKEN_AND, "write &&"},
    {"or", TOKEN_OR, "write ||"},
    {"is", TOKEN_EQUAL, "write =="},
    {"mod", '%', "write %"},
    {"div", '/', "write /"},
    {"then", '{', "leave it out: if r == 0 { nF : M; }"},
    {"in", '<', "write repeat i < M { ... } for a loop"},
};

static const char no_update[] =
    "leave it out: the weights are updated at the end of the training step; a U updates them within it";

static const struct {
    const char *word, *help;
} items[] = {
    {"for", "write repeat i < M { ... } for a loop"},
    {"while", "write repeat i < M { ... } for a loop"},
    {"loop", "write repeat i < M { ... } for a loop"},
    {"elif", "write } else if r == 1 { ... }"},
    {"elsif", "write } else if r == 1 { ... }"},
    {"elseif", "write } else if r == 1 { ... }"},
    {"def", "you cannot define functions: the value of let w = min(P-1-r, M); is computed for every rank r"},
    {"int", "write `let`, which needs no type: let w = P-1-r;"},
    {"var", "write `let`: let w = P-1-r;"},
    {"const", "write `let`: let w = P-1-r;"},
    {"assert", "write `require`, with what the user reads if it fails: require M >= P, \"M must be at least P\";"},
    {"print", "leave it out: dpc --explain prints what every rank runs"},
    {"return", "leave it out: a rank ends after the last passes of the file"},
    {"chunks", "the stages on a rank are its chunks: two each are pipe a: 2*P stages, stage s on s%P, M microbatches;"},
    {"forward", "a forward pass is F: nF : M;"},
    {"fwd", "a forward pass is F: nF : M;"},
    {"backward", "a backward pass is B: nB : M;"},
    {"bwd", "a backward pass is B: nB : M;"},
    {"D", "a backward pass is B, or I for the gradient of the input and W for that of the weights"},
    {"nD", "a backward pass is B, or I for the gradient of the input and W for that of the weights"},
    {"send", "leave it out: dpc derives the messages from the order of the passes"},
    {"recv", "leave it out: dpc derives the messages from the order of the passes"},
    {"receive", "leave it out: dpc derives the messages from the order of the passes"},
    {"optimizer", no_update},
    {"step", no_update},
    {"update", no_update},
    {"allreduce", "leave it out: the gradients of the copies of a stage are summed at the end of the training step"},
};

const char *foreign_item(const char *word)
{
    const size_t length = strcspn(word, "_"); /* so that SEND_F and send_forward are found as `send` */
    for (size_t i = 0; i < sizeof items / sizeof *items; i++)
        if (strlen(items[i].word) == length && strncasecmp(items[i].word, word, length) == 0)
            return items[i].help;
    return NULL;
}

static bool is_value(int token) { return token == TOKEN_NAME || token == TOKEN_NUMBER || token == ')'; }

/* The value of a text that is a number below 1000; -1: the text is no such number. */
static int small_number(const char *text)
{
    const size_t length = strlen(text);
    if (!length || length > 3 || strspn(text, "0123456789") != length)
        return -1;
    int number = 0;
    for (; *text; text++)
        number = 10 * number + (*text - '0');
    return number;
}

/* --- operators and numbers --- */

/* base^exponent, for an exponent that is a number in the source; 0: the result does not fit in 64 bits. */
static int64_t power(int base, int exponent)
{
    int64_t product = 1;
    for (int i = 0; i < exponent && product; i++)
        if (__builtin_mul_overflow(product, base, &product))
            return 0;
    return product;
}

/* base^exponent as text in the language, which has no powers. If both are numbers below 1000 and the result fits in 64
   bits: a number. For another exponent that is a number: a product; NULL if it would have more than nine factors or be
   too large. Otherwise: a choice between the powers for the exponents 0, 1 and 2, and 3 if the base is a number; it is
   wrong for larger exponents. */
static const char *power_text(const Reader *reader, const char *base, const char *exponent)
{
    const int b = small_number(base), e = small_number(exponent);
    if (b > 0 && e >= 0 && power(b, e))
        return arena_format(reader->arena, "%lld", (long long)power(b, e));
    if (isdigit((unsigned char)*exponent)) {
        if (b > 0 || e < 0 || e > 9)
            return NULL;
        const char *product = e ? base : "1";
        for (int i = 1; i < e; i++)
            product = arena_format(reader->arena, "%s*%s", product, base);
        return e > 1 ? arena_format(reader->arena, "(%s)", product) : product;
    }
    if (b > 0)
        return arena_format(reader->arena, "(%s < 1 ? 1 : %s < 2 ? %d : %s < 3 ? %d : %lld)", exponent, exponent, b,
                            exponent, b * b, (long long)power(b, 3));
    return arena_format(reader->arena, "(%s < 1 ? 1 : %s < 2 ? %s : %s*%s)", exponent, exponent, base, base, base);
}

static void help_power(Reader *reader, const char *spelling, Span span)
{
    const Span right = word_at(reader, span.end);
    const char *left = text_of(reader, reader->last.span), *count = text_of(reader, right), *write = NULL;
    const bool halves = spelling[0] == '>', shift = halves || spelling[0] == '<';
    if (!is_empty(right) && byte_at(reader, right.end) != '(' && reader->last.kind != ')' &&
        is_value(reader->last.kind))
        write = power_text(reader, shift ? "2" : left, count);
    if (!write) {
        diag_help(reader->diagnostics,
                  halves ? "write it as a quotient, such as M/(2*2*2)" : "write it as a product, such as 2*2*2");
        return;
    }
    if (halves || (shift && strcmp(left, "1") != 0))
        write = arena_format(reader->arena, "%s%c%s", left, halves ? '/' : '*', write);
    if (small_number(count) >= 0)
        diag_help(reader->diagnostics, "write %s", write);
    else
        diag_help(reader->diagnostics, "there are no powers: write one case for each value that %s can have, as in %s",
                  count, write);
}

/* Whether the parser's last syntax error is on the line of `span`. A second error on the same line would not help. */
static bool line_is_reported(const Reader *reader, Span span)
{
    return reader->reported &&
           source_line(reader->source, reader->reported_at) == source_line(reader->source, span.begin);
}

int foreign_operator(Reader *reader, Span span)
{
    const char *text = text_of(reader, span);
    const Spelling *found = operators;
    while (strcmp(found->text, text) != 0)
        found++;
    if (line_is_reported(reader, span))
        return found->token;
    diag_error(reader->diagnostics, span, "the language has no `%s`", text);
    if (found->help)
        diag_help(reader->diagnostics, "%s", found->help);
    else
        help_power(reader, text, span);
    return found->token;
}

bool foreign_divides(const Reader *reader, Span span)
{
    const Span rest = expression_from(reader, span.end, ";{,:");
    const char after = byte_at(reader, rest.end);
    const char first = byte_at(reader, rest.begin);
    return is_value(reader->last.kind) && (is_word_byte(first) || first == '(') && after && after != '\n' &&
           after != '\r';
}

void foreign_comment(Reader *reader, Span span) { diag_error(reader->diagnostics, span, "a comment begins with #"); }

static int64_t common_divisor(int64_t a, int64_t b)
{
    while (b) {
        const int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* Appends a digit to a decimal number. False: overflow. */
static bool add_digit(int64_t *number, int digit)
{
    return !__builtin_mul_overflow(*number, 10, number) && !__builtin_add_overflow(*number, digit, number);
}

/* Reads a number such as 12.5e3, 1_000 or 0x1f. Its value is digits / scale. False: overflow. */
static bool read_fraction(const char *text, int64_t *digits, int64_t *scale)
{
    bool good = true, fraction = false;
    *digits = 0, *scale = 1;
    if (tolower((unsigned char)text[1]) == 'x') {
        *digits = strtoll(text, NULL, 16);
        return *digits < INT64_MAX;
    }
    for (; *text && *text != 'e' && *text != 'E'; text++)
        if (*text == '.')
            fraction = true;
        else if (*text != '_')
            good = good && add_digit(digits, *text - '0') && (!fraction || add_digit(scale, 0));
    int64_t exponent = *text ? strtoll(text + 1, NULL, 10) : 0;
    for (; exponent > 0 && good && *digits; exponent--)
        good = add_digit(digits, 0);
    for (; exponent < 0 && good && *digits; exponent++)
        good = add_digit(scale, 0);
    return good;
}

int64_t foreign_number(Reader *reader, Span span)
{
    const char *text = text_of(reader, span);
    int64_t digits, scale;
    const bool good = read_fraction(text, &digits, &scale);
    const int64_t divisor = good ? common_divisor(digits, scale) : 1;
    diag_error(reader->diagnostics, span, "`%s` is not a whole number in decimal digits", text);
    if (good && divisor == scale)
        diag_help(reader->diagnostics, "write %lld", (long long)(digits / scale));
    else if (good)
        diag_help(reader->diagnostics, "multiply first, then divide: %s of M is M*%lld/%lld", text,
                  (long long)(digits / divisor), (long long)(scale / divisor));
    return good ? digits / scale : INT64_MAX;
}

bool foreign_choice(Reader *reader, Span span)
{
    const Span rest = expression_from(reader, span.end, ";{}");
    if (!is_value(reader->last.kind))
        return false;
    for (uint32_t at = rest.begin; at + 4 < rest.end; at++) {
        if (memcmp(reader->source->text + at, "else", 4) != 0 || is_word_byte(byte_at(reader, at - 1)) ||
            is_word_byte(byte_at(reader, at + 4)))
            continue;
        const Span left = expression_before(reader, span.begin), middle = trimmed(reader, (Span){rest.begin, at});
        const Span right = expression_from(reader, at + 4, ";,{}:");
        if (!line_is_reported(reader, span)) {
            diag_error(reader->diagnostics, span, "the language has no `a if c else b`");
            diag_help(reader->diagnostics, "write %s ? %s : %s", text_of(reader, middle), text_of(reader, left),
                      text_of(reader, right));
        }
        return true;
    }
    return false;
}

/* --- words in expressions --- */

static const Spelling *spelling_of(const char *text)
{
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcmp(words[i].text, text) == 0)
            return &words[i];
    return NULL;
}

/* A unit after a number as a factor: "1000*1000*1000" for G, "1024*1024*1024" for GiB. NULL: it is no unit. */
static const char *unit_factor(const char *text)
{
    static const char *const decimal[] = {"1000", "1000*1000", "1000*1000*1000", "1000*1000*1000*1000"};
    static const char *const binary[] = {"1024", "1024*1024", "1024*1024*1024", "1024*1024*1024*1024"};
    const char *letter = strchr("kMGT", *text == 'K' ? 'k' : *text);
    if (!*text || !letter)
        return NULL;
    const char *rest = text + 1;
    const bool is_binary = *rest == 'i';
    rest += is_binary;
    rest += *rest == 'B';
    return *rest ? NULL : (is_binary ? binary : decimal)[letter - "kMGT"];
}

static bool report_unit(Reader *reader, Span number, Span unit)
{
    const char *factor = unit_factor(text_of(reader, unit));
    if (!factor || reader->item.kind != TOKEN_ORDER)
        return false;
    const char *count = text_of(reader, number);
    diag_error(reader->diagnostics, (Span){number.begin, unit.end}, "no unit can follow a number here");
    diag_help(reader->diagnostics,
              "write %s*%s if `input` and `weight` are given in bytes; without these two settings, `memory` counts "
              "half activations (of one microbatch in one stage), of which 1F1B needs 2*P",
              count, factor);
    return true;
}

static bool report_not(Reader *reader)
{
    const Span operand = expression_from(reader, reader->last.span.begin, ";{?:,&|");
    const char *text = text_of(reader, operand);
    diag_error(reader->diagnostics, reader->previous.span, "the language has no `not`");
    diag_help(reader->diagnostics, operand.end > reader->last.span.end ? "write !(%s)" : "write !%s", text);
    return true;
}

bool foreign_word(Reader *reader, const SyntaxError *error)
{
    const ReadToken *const before = &reader->previous;
    if ((error->found == TOKEN_NAME || error->found == TOKEN_NUMBER) && before->kind == TOKEN_NAME &&
        strcmp(text_of(reader, before->span), "not") == 0)
        return report_not(reader);
    if (error->found != TOKEN_NAME || !is_value(before->kind))
        return false;
    if (before->kind == TOKEN_NUMBER && report_unit(reader, before->span, error->span))
        return true;
    const Spelling *spelling = spelling_of(text_of(reader, error->span));
    if (!spelling)
        return false;
    diag_error(reader->diagnostics, error->span, "the language has no `%s`", spelling->text);
    diag_help(reader->diagnostics, "%s", spelling->help);
    return true;
}

/* --- passes --- */

static bool is_pass_word(const char *text)
{
    const char *letters = text + (*text == 'n');
    return *letters && strspn(letters, "FBIWU0123456789") == strlen(letters) && isupper((unsigned char)*letters);
}

/* Whether the name has come earlier in the source, so that it may have a value. */
static bool came_before(Reader *reader, Span name)
{
    const char *text = text_of(reader, name);
    return strcmp(text, "r") == 0 || reader_symbol(reader, text, strlen(text))->first < name.end;
}

static bool report_count(Reader *reader, Span span, const char *where, const char *passes, const char *count)
{
    diag_error(reader->diagnostics, span, "the number of repetitions comes after %s", where);
    diag_help(reader->diagnostics, "write %s : %s;", passes, count);
    return true;
}

bool foreign_count(Reader *reader, const SyntaxError *error)
{
    const char *text = text_of(reader, error->span);
    if (reader->previous.kind == TOKEN_PASS &&
        (error->found == '*' || strcmp(text, "x") == 0 || strcmp(text, "times") == 0)) {
        const Span count = expression_from(reader, error->span.end, ";{}");
        Span passes = reader->previous.span;
        if (reader->item.kind == TOKEN_PASS)
            passes.begin = reader->item.span.begin;
        while (passes.begin > 0 && is_word_byte(byte_at(reader, passes.begin - 1)))
            passes.begin--;
        return !is_empty(count) &&
               report_count(reader, error->span, "a colon", text_of(reader, passes), text_of(reader, count));
    }
    const bool is_name = error->found == TOKEN_NAME && came_before(reader, error->span);
    if (!error->expected[TOKEN_LET] || (!is_name && error->found != TOKEN_NUMBER))
        return false;
    uint32_t at = skip_blanks(reader, error->span.end);
    at += byte_at(reader, at) == '*';
    Span passes = word_at(reader, at);
    if (!is_pass_word(text_of(reader, passes)))
        return false;
    for (Span next = passes; is_pass_word(text_of(reader, next)); next = word_at(reader, passes.end))
        passes.end = next.end;
    const char after = byte_at(reader, passes.end);
    if (passes.begin > error->span.end && after != '[' && after != '{')
        return report_count(reader, (Span){error->span.begin, passes.end}, "the passes", text_of(reader, passes), text);
    diag_error(reader->diagnostics, (Span){error->span.begin, passes.end},
               "the number of repetitions comes after the passes");
    diag_help(reader->diagnostics, "`nFB : 4;` is 4 times one F and one B; a digit after a letter is the chunk");
    return true;
}

bool foreign_call(Reader *reader, const SyntaxError *error)
{
    const OpenBracket *open = reader->open;
    const bool call = error->found == '(' && reader->previous.kind == TOKEN_PASS;
    const bool pair = error->found == ',' && open && (open->bracket == '[' || open->bracket == '{') &&
                      error->expected[open->bracket == '[' ? ']' : '}'];
    if (!open || (!call && !pair))
        return false;
    const Span first = expression_from(reader, open->span.end, ",}"),
               second = expression_from(reader, first.end + 1, "}");
    const Span pass = word_at(reader, open->span.begin - 1);
    const char *letter = text_of(reader, pass), *one = text_of(reader, first);
    diag_error(reader->diagnostics, error->span, "a pass has its chunk in { } and its microbatch in [ ]");
    if (byte_at(reader, first.end) == ',' && !is_empty(second))
        diag_help(reader->diagnostics, "write %s{%s}[%s]", letter, one, text_of(reader, second));
    else if (!is_empty(first))
        diag_help(reader->diagnostics, "write %s{%s} for chunk %s, %s[%s] for microbatch %s", letter, one, one, letter,
                  one, one);
    return true;
}
