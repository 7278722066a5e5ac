/* dpc fit finds every published bubble: at random sizes and times in the domain of a published formula, a fitted one
   holds, and has the same value. The formulas are read from the text that dpc fit prints. */

#include "compiler/command/fit.h"
#include "compiler/command/published.h"
#include "tests/search/costs_of.h"
#include "tests/timeline/compiled.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TIMES = 12 };

/* --- formulas --- */

typedef struct Variable {
    const char *name;
    double value;
} Variable;

typedef struct Formula {
    const char *text;          /* the rest, which is not read yet */
    const Variable *variables; /* P, M, and more; the last has no name; FB comes before F, with which it begins */
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

/* Whether a condition holds: "W <= F <= I", "M >= 2P-1", "P even", "P odd" or "P divides M". */
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
        f->text += sign == '=' ? 2 : 3;
        const double right = sum_of(f);
        all = all && (sign == '<' ? left <= right : sign == '>' ? left >= right : left == right);
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

/* Sets `value` to the first fitted bubble whose domain holds, if there is one. Returns how many hold. */
static uint32_t fitted_bubble(const char *output, const Variable *variables, double *value)
{
    static const char head[] = "bubble    ", where[] = "          where ";
    uint32_t count = 0;
    for (const char *line = strstr(output, head); line; line = strstr(line + 1, head)) {
        const char *domain = strstr(line, "\n");
        assert_non_null(domain);
        const bool everywhere = strncmp(domain + 1, where, strlen(where)) != 0;
        Formula condition = {domain + 1 + strlen(where), variables}, formula = {line + strlen(head), variables};
        if ((everywhere || domain_holds(&condition)) && count++ == 0)
            *value = sum_of(&formula);
    }
    return count;
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
    const Options options = {.input = path, .costs = costs_unit};
    assert_non_null(stream);
    assert_int_equal(fit(&options, &arena, &diagnostics, stream, &error), STATUS_OK);
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

/* Compares the fitted formula with the published one at a size, for random times. Returns how many of these are in the
   published domain. */
static uint32_t compare(const char *output, const Compilation *c, uint64_t *seed)
{
    uint32_t peak = 0, inside = 0;
    for (uint32_t r = 0; r < c->schedule.ranks; r++)
        peak = c->program->ranks[r].peak_activations > peak ? c->program->ranks[r].peak_activations : peak;
    for (int round = 0; round < TIMES; round++) {
        const Costs costs = random_times(seed, round);
        PublishedBubble published;
        assert_true(published_bubble(&c->schedule, &costs, peak, &published));
        if (published.is_bound || *published.breach)
            continue;
        const double forward = costs.all[COST_F], input = costs.all[COST_I], weight = costs.all[COST_W];
        const Variable variables[] = {{"P", c->schedule.ranks},
                                      {"M", c->schedule.microbatches},
                                      {"FB", forward + input + weight},
                                      {"F", forward},
                                      {"I", input},
                                      {"W", weight},
                                      {"B", input + weight},
                                      {"comm", 0},
                                      {0}};
        double value = 0;
        if (!fitted_bubble(output, variables, &value))
            fail_msg("%s: no fitted bubble for P=%u M=%u F=%g I=%g W=%g", c->schedule.name, c->schedule.ranks,
                     c->schedule.microbatches, forward, input, weight);
        if (fabs(value - published.value) > 1e-9)
            fail_msg("%s: P=%u M=%u F=%g I=%g W=%g: fitted %g, published %s = %g", c->schedule.name, c->schedule.ranks,
                     c->schedule.microbatches, forward, input, weight, value, published.formula, published.value);
        inside++;
    }
    return inside;
}

static void test_published_formulas(void **state)
{
    (void)state;
    uint64_t seed = 1;
    const char *name;
    for (size_t row = 0; (name = published_schedule(row)); row++) {
        if (strncmp(name, "v-", 2) == 0) /* left out: v-half and v-min, whose formula is only a bound of the bubble */
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
        assert_true(inside >= 20);
        free(output);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_published_formulas)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
