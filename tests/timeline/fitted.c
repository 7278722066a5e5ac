/* Formulas, read from the text that dpc fit prints and from the table of schedules/README.md, are true at the ends of
   the domain that is named beside them. And dpc fit finds every published bubble: at random sizes and times in the
   domain of a published formula, a fitted one holds, and has the same value. */

#include "study/trials/fit.h"
#include "study/trials/published.h"
#include "tests/sanitized.h"
#include "tests/search/costs_of.h"
#include "tests/timeline/compiled.h"

#include <ctype.h>
#include <glob.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Times and costs for each size; under sanitizers fewer. */
enum { ALL_TIMES = 12, TIMES = SANITIZED ? 3 : ALL_TIMES };

/* --- formulas --- */

typedef struct Variable {
    const char *name;
    double value;
} Variable;

typedef struct Formula {
    const char *text;          /* the rest, which is not read yet */
    const Variable *variables; /* those that variables_of sets; the last has no name */
} Formula;

static double sum_of(Formula *f);

/* The value of the sum between brackets, or the largest of several sums: max(a, b). f->text is after the opening
   bracket. */
static double bracket_of(Formula *f)
{
    double most = sum_of(f);
    for (; *f->text == ','; most = fmax(most, sum_of(f)))
        f->text++;
    assert_int_equal(*f->text, ')');
    f->text++;
    return most;
}

/* Reads a factor. False: no factor begins here. */
static bool take_factor(Formula *f, double *value)
{
    if (strncmp(f->text, "max(", 4) == 0 || *f->text == '(') {
        f->text += *f->text == '(' ? 1 : 4;
        *value = bracket_of(f);
        return true;
    }
    if (isdigit((unsigned char)*f->text)) {
        char *end;
        *value = strtod(f->text, &end);
        f->text = end;
        return true;
    }
    for (const Variable *v = f->variables; v->name; v++)
        if (strncmp(f->text, v->name, strlen(v->name)) == 0) {
            f->text += strlen(v->name);
            *value = v->value;
            return true;
        }
    return false;
}

/* The value of a product, whose factors follow each other, as in 2(P-1)comm. P % 3 is a remainder, M/P a quotient. */
static double product_of(Formula *f)
{
    double product = 0, factor = 0;
    assert_true(take_factor(f, &product));
    for (;;)
        if (*f->text == '/') {
            f->text++;
            assert_true(take_factor(f, &factor));
            product /= factor;
        } else if (strncmp(f->text, " % ", 3) == 0) {
            f->text += 3;
            assert_true(take_factor(f, &factor));
            product = fmod(product, factor);
        } else if (take_factor(f, &factor)) {
            product *= factor;
        } else {
            return product;
        }
}

static double sum_of(Formula *f)
{
    double sum = 0, sign = 1;
    f->text += *f->text == ' ';
    for (;;) {
        if (*f->text == '-')
            sign = -1;
        f->text += *f->text == '-';
        sum += sign * product_of(f);
        const char *next = f->text + (*f->text == ' ');
        if (*next != '+' && *next != '-')
            return sum;
        sign = *next == '-' ? -1 : 1;
        f->text = next + 1 + (next[1] == ' ');
    }
}

/* Whether a condition holds: "W <= F <= I", "B < FB < F+B", "M >= 2P-1", "P even", "P odd" or "P divides M". */
static bool holds(Formula *f)
{
    const double ranks = f->variables[0].value, microbatches = f->variables[1].value;
    if (strncmp(f->text, "P even", 6) == 0 || strncmp(f->text, "P odd", 5) == 0) {
        const bool even = f->text[2] == 'e';
        f->text += even ? 6 : 5;
        return (fmod(ranks, 2) == 0) == even;
    }
    if (strncmp(f->text, "P divides M", 11) == 0) {
        f->text += 11;
        return fmod(microbatches, ranks) == 0;
    }
    bool all = true;
    for (double left = sum_of(f); *f->text == ' ';) {
        const char sign = f->text[1];
        const bool equal = sign == '=' || f->text[2] == '=';
        f->text += sign == '=' || !equal ? 2 : 3;
        const double right = sum_of(f);
        all = all && ((equal && left == right) || (sign == '<' && left < right) || (sign == '>' && left > right));
        left = right;
    }
    return all;
}

static bool domain_holds(Formula *f)
{
    for (; *f->text && *f->text != ';'; f->text += strncmp(f->text, ", ", 2) == 0 ? 2 : 0)
        if (!holds(f))
            return false;
    return true;
}

/* The next formula of a quantity in what dpc fit prints, from `*line` on, which then is its line. False: there is no
   further one. Sets *inside to whether its domain holds, and then *value. */
static bool next_fitted(const char **line, const char *quantity, const Variable *variables, bool *inside, double *value)
{
    static const char where[] = "          where ", none[] = "no formula";
    char head[16];
    snprintf(head, sizeof head, "%-10s", quantity);
    for (*line = strstr(*line, head); *line && strncmp(*line + 10, none, strlen(none)) == 0;)
        *line = strstr(*line + 1, head);
    if (!*line)
        return false;
    const char *domain = strstr(*line, "\n");
    assert_non_null(domain);
    const bool everywhere = strncmp(domain + 1, where, strlen(where)) != 0;
    Formula condition = {domain + 1 + strlen(where), variables}, formula = {*line + strlen(head), variables};
    *inside = everywhere || domain_holds(&condition);
    *value = *inside ? sum_of(&formula) : 0;
    ++*line;
    return true;
}

/* The bubble that a row of the README's table gives, from its first column on. False: it gives none, or not for these
   variables. */
static bool table_bubble(const char *row, const Variable *variables, double *value)
{
    static const char *const others[] = {"peak",    "runs", "any",        "shorter", "forward",
                                         "P and M", "P-r",  "2 versions", NULL};
    static const char *const heads[] = {"formulas: ", "formula: ", "bubble: ", NULL};
    const char *column[4] = {row};
    for (int i = 1; i < 4; i++)
        column[i] = strstr(column[i - 1], " | ") + 3;
    Formula domain = {column[3], variables}, formula = {column[0], variables};
    while (*domain.text != '|' && strncmp(domain.text, " |", 2) != 0) {
        bool is_other = false;
        for (int i = 0; heads[i]; i++)
            domain.text += strncmp(domain.text, heads[i], strlen(heads[i])) ? 0 : strlen(heads[i]);
        for (int i = 0; others[i]; i++)
            is_other |= strncmp(domain.text, others[i], strlen(others[i])) == 0;
        if (is_other)
            domain.text += strcspn(domain.text, ",;|");
        else if (!holds(&domain))
            return false;
        domain.text += strspn(domain.text, ",; ");
    }
    *value = sum_of(&formula);
    return true;
}

/* --- tests --- */

/* What dpc fit prints; the caller frees it. */
static void fit_file(const char *path, char **output)
{
    Arena arena = {0};
    Error error = {""};
    Diagnostics *diagnostics;
    size_t size = 0;
    FILE *stream = open_memstream(output, &size);
    const TrialSettings settings = {.inputs = (char *[]){(char *)path}, .input_count = 1, .costs = costs_unit};
    assert_non_null(stream);
    assert_int_equal(fit(&settings, &arena, &diagnostics, stream, &error), STATUS_OK);
    fclose(stream);
    arena_free(&arena);
}

static double random_time(uint64_t *seed) { return 1.0 + (double)random_below(seed, 12); }

/* Random times. Equal F and I, and F = I + W, are frequent, so that every domain of a published formula is tried. */
static Costs random_times(uint64_t *seed, int round)
{
    double forward = random_time(seed), input = random_time(seed);
    const double weight = random_time(seed);
    if (round % 2)
        input = forward;
    if (round % 4 == 0)
        forward = input + weight;
    return costs_of(forward, input, weight, 0);
}

enum { VARIABLES = 10 };

/* `peak`: the most activations that a rank holds. FB comes before F, with which it begins. */
static void variables_of(const Compilation *c, const Costs *costs, uint32_t peak, Variable variables[VARIABLES])
{
    const double forward = costs->all[COST_F], input = costs->all[COST_I], weight = costs->all[COST_W];
    const double pair = costs->all[COST_FB] >= 0 ? costs->all[COST_FB] : forward + input + weight;
    const Variable all[VARIABLES] = {{"P", c->schedule.ranks},
                                     {"M", c->schedule.microbatches},
                                     {"k", peak},
                                     {"FB", pair},
                                     {"F", forward},
                                     {"I", input},
                                     {"W", weight},
                                     {"B", input + weight},
                                     {"comm", costs->latency},
                                     {0}};
    memcpy(variables, all, sizeof all);
}

static uint32_t peak_of(const Compilation *c)
{
    uint32_t peak = 0;
    for (uint32_t r = 0; r < c->schedule.ranks; r++)
        peak = c->program->ranks[r].peak_activations > peak ? c->program->ranks[r].peak_activations : peak;
    return peak;
}

/* Compares the fitted formula with the published one at a size, for random times. Returns how many of these are in the
   published domain. */
static uint32_t compare(const char *output, const Compilation *c, uint64_t *seed)
{
    const uint32_t peak = peak_of(c);
    uint32_t inside = 0;
    for (int round = 0; round < TIMES; round++) {
        const Costs costs = random_times(seed, round);
        PublishedBubble published;
        assert_true(published_bubble(&c->schedule, &costs, peak, &published));
        if (published.is_bound || *published.breach)
            continue;
        Variable variables[VARIABLES];
        variables_of(c, &costs, peak, variables);
        double value = 0;
        bool found = false;
        for (const char *line = output; !found && next_fitted(&line, "bubble", variables, &found, &value);)
            ;
        if (!found || fabs(value - published.value) > 1e-9)
            fail_msg("%s: P=%u M=%u F=%g I=%g W=%g: fitted %g, published %s = %g", c->schedule.name, c->schedule.ranks,
                     c->schedule.microbatches, costs.all[COST_F], costs.all[COST_I], costs.all[COST_W],
                     found ? value : -1, published.formula, published.value);
        inside++;
    }
    return inside;
}

TEST(test_published_formulas)
{
    uint64_t seed = 1;
    const char *name;
    for (size_t row = 0; (name = published_schedule(row)); row++) {
        if (strncmp(name, "v-", 2) == 0) /* left out: fit finds the formulas of v-half and v-min in other domains */
            continue;
        char path[100];
        snprintf(path, sizeof path, "schedules/%s.dps", name);
        char *output = NULL;
        fit_file(path, &output);
        uint32_t inside = 0;
        for (int64_t ranks = 2; ranks <= 8; ranks++)
            for (int64_t microbatches = ranks / 2; microbatches <= 3 * ranks; microbatches += ranks / 2) {
                Arena arena = {0};
                Compilation c;
                if (compiled(path, ranks, microbatches, &arena, &c))
                    inside += compare(output, &c, &seed);
                arena_free(&arena);
            }
        print_message("%s: %u points\n", name, inside);
        assert_true(inside >= 20 * TIMES / ALL_TIMES);
        free(output);
    }
}

/* Random times, most of them at an end of a domain: times that are 0 or equal, messages of F/5, and F&Bs that take as
   long as their longer half or as both halves in turn. */
static Costs times_at_ends(uint64_t *seed)
{
    const double forward = 5 * random_time(seed);
    const double inputs[] = {forward, forward, 0, 5 * random_time(seed)};
    const double input = inputs[random_below(seed, 4)];
    const double weights[] = {forward,    0, fmax(0, forward - input), (forward + input) / 2, 5 * random_time(seed),
                              forward / 5};
    const double weight = weights[random_below(seed, 6)], backward = input + weight;
    const double pairs[] = {forward + backward, fmax(forward, backward),
                            fmax(forward, backward) + fmin(forward, backward) * random_time(seed) / 13};
    const double messages[] = {0, 0, forward / 5};
    Costs costs = costs_of(forward, input, weight, messages[random_below(seed, 3)]);
    costs.all[COST_FB] = pairs[random_below(seed, 3)];
    return costs;
}

static uint32_t same(const Compilation *c, const Costs *costs, const char *what, double formula, double value)
{
    if (fabs(formula - value) > 1e-9 * (1 + value))
        fail_msg("%s of %s: %g by its formula, not %g: P=%u M=%u F=%g,I=%g,W=%g,FB=%g,comm=%g", what, c->schedule.name,
                 formula, value, c->schedule.ranks, c->schedule.microbatches, costs->all[COST_F], costs->all[COST_I],
                 costs->all[COST_W], costs->all[COST_FB], costs->latency);
    return 1;
}

/* Compares all formulas whose domains hold with the timeline. Returns how many they are. */
static uint32_t compare_formulas(const char *output, const char *row, const Compilation *c, const Costs *costs,
                                 Arena *arena)
{
    Variable variables[VARIABLES];
    Timeline times;
    uint32_t inside = 0;
    const uint32_t peak = peak_of(c);
    assert_true(timeline_run(&c->schedule, &c->table, costs, arena, &times));
    const Bubble bubble = timeline_bubble(&c->schedule, &times);
    const struct {
        const char *name;
        double value;
    } quantities[] = {{"makespan", times.makespan}, {"bubble", bubble.cost - bubble.work}, {"peak", peak}};
    variables_of(c, costs, peak, variables);
    for (size_t q = 0; q < sizeof quantities / sizeof *quantities; q++) {
        double value;
        bool holds_here;
        for (const char *line = output; next_fitted(&line, quantities[q].name, variables, &holds_here, &value);)
            inside += holds_here && same(c, costs, quantities[q].name, value, quantities[q].value);
    }
    double value;
    if (row && costs->latency == 0 && table_bubble(row, variables, &value))
        same(c, costs, "README's bubble", value, quantities[1].value);
    return inside;
}

/* The row of a schedule in the README's table from its bubble on. NULL: the bubble is no formula of these variables, is
   only a bound, or is searched. */
static const char *row_of(const char *readme, const char *name, Arena *arena)
{
    static const char *const left_out[] = {"1f1b-rr",      "ebb-loop",     "half-tide", "interleaved-1f1b",
                                           "megatron-moe", "pipedream-rr", "v-min"};
    for (size_t i = 0; i < sizeof left_out / sizeof *left_out; i++)
        if (strcmp(left_out[i], name) == 0)
            return NULL;
    const char *head = arena_format(arena, "\n| [%s](#%s) | ", name, name), *row = strstr(readme, head);
    assert_non_null(row);
    return row + strlen(head);
}

TEST(test_ends_of_domains)
{
    static const int64_t ranks[] = {2, 3, 4, 5, 8};
    Arena all = {0};
    Source readme;
    Error error = {""};
    glob_t files;
    uint64_t seed = 1;
    assert_int_equal(source_read("schedules/README.md", &all, &readme, &error), STATUS_OK);
    assert_int_equal(glob("schedules/*.dps", 0, NULL, &files), 0);
    for (size_t i = 0; i < files.gl_pathc; i++) {
        const char *path = files.gl_pathv[i];
        char *output = NULL;
        uint32_t inside = 0;
        Source source;
        assert_int_equal(source_read(path, &all, &source, &error), STATUS_OK);
        if (strstr(source.text, "\norder auto")) /* formulas hold only where the search reaches its bound */
            continue;
        const char *const name = arena_format(&all, "%.*s", (int)(strlen(path) - strlen("schedules/.dps")), path + 10);
        const char *const row = row_of(readme.text, name, &all);
        fit_file(path, &output);
        for (size_t r = 0; r < sizeof ranks / sizeof *ranks; r++) {
            const int64_t p = ranks[r], microbatches[] = {1, p - 1, p, 2 * p - 1, 2 * p, 2 * p + 1, 2 * p + 2, 3 * p};
            for (size_t m = 0; m < sizeof microbatches / sizeof *microbatches; m++)
                for (int round = 0; round < TIMES; round++) {
                    Arena arena = {0};
                    Compilation c;
                    const Costs costs = times_at_ends(&seed);
                    if (compiled_for(path, p, microbatches[m], &costs, &arena, &c))
                        inside += compare_formulas(output, row, &c, &costs, &arena);
                    arena_free(&arena);
                }
        }
        print_message("%s: %u values\n", path, inside);
        assert_true(inside >= 10 * TIMES / ALL_TIMES);
        free(output);
    }
    globfree(&files);
    arena_free(&all);
}

int main(void) { return test_program("fitted", NULL, NULL); }
