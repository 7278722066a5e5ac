#include "study/trials/fit_system.h"

#include <inttypes.h>
#include <string.h>

int64_t common_divisor(int64_t a, int64_t b)
{
    a = a < 0 ? -a : a;
    b = b < 0 ? -b : b;
    while (b) {
        const int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

static Fraction fraction(__int128 above, __int128 below, bool *overflow)
{
    __int128 a = above < 0 ? -above : above, b = below < 0 ? -below : below;
    while (b) {
        const __int128 rest = a % b;
        a = b;
        b = rest;
    }
    const __int128 common = a ? a : 1, sign = below < 0 ? -1 : 1;
    above = sign * above / common;
    below = sign * below / common;
    *overflow |= above > INT64_MAX || above < -INT64_MAX || below > INT64_MAX;
    return *overflow ? (Fraction){0, 1} : (Fraction){(int64_t)above, (int64_t)below};
}

/* a - b*c */
static Fraction less(Fraction a, Fraction b, Fraction c, bool *overflow)
{
    const Fraction product = fraction((__int128)b.above * c.above, (__int128)b.below * c.below, overflow);
    return fraction((__int128)a.above * product.below - (__int128)product.above * a.below,
                    (__int128)a.below * product.below, overflow);
}

static Fraction over(Fraction a, Fraction b, bool *overflow)
{
    return fraction((__int128)a.above * b.below, (__int128)a.below * b.above, overflow);
}

/* Writes the values of the terms 1, P, M, P*M, P*P, M/P at this size, each multiplied by P so that all are integers.
   */
static void terms_at(int64_t p, int64_t m, int64_t terms[FIT_TERMS])
{
    const int64_t all[FIT_TERMS] = {p, p * p, m * p, p * m * p, p * p * p, m};
    for (int i = 0; i < FIT_TERMS; i++)
        terms[i] = all[i];
}

bool fit_point(FitSystem *s, int64_t ranks, int64_t microbatches, int64_t value)
{
    int64_t terms[FIT_TERMS];
    Fraction row[FIT_TERMS + 1];
    terms_at(ranks, microbatches, terms);
    for (int i = 0; i < FIT_TERMS; i++)
        row[i] = (Fraction){terms[i], 1};
    row[FIT_TERMS] = (Fraction){value, 1};
    s->points++;
    for (int lead = 0; lead < FIT_TERMS; lead++) {
        const Fraction first = row[lead];
        if (!first.above)
            continue;
        for (int i = lead; i <= FIT_TERMS; i++)
            row[i] =
                s->used[lead] ? less(row[i], first, s->rows[lead][i], &s->overflow) : over(row[i], first, &s->overflow);
        if (s->used[lead])
            continue;
        for (int i = 0; i <= FIT_TERMS; i++)
            s->rows[lead][i] = row[i];
        s->used[lead] = true;
        return !s->overflow;
    }
    return !s->overflow && !row[FIT_TERMS].above;
}

bool fit_solve(FitSystem *s, Polynomial *polynomial)
{
    for (int lead = FIT_TERMS; lead-- > 0;) {
        Fraction value = s->used[lead] ? s->rows[lead][FIT_TERMS] : (Fraction){0, 1};
        for (int i = lead + 1; s->used[lead] && i < FIT_TERMS; i++)
            value = less(value, s->rows[lead][i], polynomial->terms[i], &s->overflow);
        polynomial->terms[lead] = value;
    }
    return s->points > 2 * FIT_TERMS && !s->overflow;
}

double polynomial_at(const Polynomial *polynomial, int64_t ranks, int64_t microbatches)
{
    int64_t terms[FIT_TERMS];
    double sum = 0;
    terms_at(ranks, microbatches, terms);
    for (int i = 0; i < FIT_TERMS; i++)
        sum += (double)polynomial->terms[i].above * (double)terms[i] / (double)polynomial->terms[i].below;
    return sum / (double)ranks;
}

bool polynomial_is_zero(const Polynomial *polynomial)
{
    for (int i = 0; i < FIT_TERMS; i++)
        if (polynomial->terms[i].above)
            return false;
    return true;
}

Fraction polynomial_ratio(const Polynomial *a, const Polynomial *b)
{
    Fraction ratio = {0, 1};
    bool overflow = false;
    for (int i = 0; i < FIT_TERMS; i++) {
        if (!b->terms[i].above) {
            if (a->terms[i].above)
                return (Fraction){0, 1};
            continue;
        }
        const Fraction here = over(a->terms[i], b->terms[i], &overflow);
        if (ratio.above && (ratio.above != here.above || ratio.below != here.below))
            return (Fraction){0, 1};
        if (!here.above || overflow)
            return (Fraction){0, 1};
        ratio = here;
    }
    return ratio;
}

static const struct {
    const char *name;
    int term;
} written_order[FIT_TERMS] = {{"PM", 3}, {"P^2", 4}, {"M", 2}, {"P", 1}, {"M/P", 5}, {"", 0}};

int polynomial_sign(const Polynomial *polynomial)
{
    for (int i = 0; i < FIT_TERMS; i++) {
        const int64_t above = polynomial->terms[written_order[i].term].above;
        if (above)
            return above < 0 ? -1 : 1;
    }
    return 1;
}

bool polynomial_is_one(const Polynomial *polynomial)
{
    for (int i = 0; i < FIT_TERMS; i++)
        if (polynomial->terms[i].above != (i == 0))
            return false;
    return polynomial->terms[0].below == 1;
}

Polynomial polynomial_scaled(const Polynomial *polynomial, Fraction by)
{
    Polynomial scaled;
    bool overflow = false; /* not checked: the coefficients of formulas are small */
    for (int i = 0; i < FIT_TERMS; i++)
        scaled.terms[i] = fraction((__int128)polynomial->terms[i].above * by.above,
                                   (__int128)polynomial->terms[i].below * by.below, &overflow);
    return scaled;
}

const char *polynomial_product_text(const Polynomial *polynomial, const char *name, Arena *arena)
{
    int64_t content = 0, below = 1; /* content / below: the common factor of all terms */
    int count = 0;
    for (int i = 0; i < FIT_TERMS; i++) {
        const Fraction term = polynomial->terms[i];
        below = below / common_divisor(below, term.below) * term.below;
        count += term.above != 0;
    }
    for (int i = 0; i < FIT_TERMS; i++)
        content = common_divisor(content, polynomial->terms[i].above * (below / polynomial->terms[i].below));
    if (count == 0)
        return "0";
    const char *text = "";
    const int64_t outside = count > 1 ? content : 1;
    for (int i = 0; i < FIT_TERMS; i++) {
        const Fraction term = polynomial->terms[written_order[i].term];
        const int64_t scaled = term.above * (below / term.below) / outside, size = scaled < 0 ? -scaled : scaled;
        const bool bare = size == 1 && (*written_order[i].name || (count == 1 && *name));
        if (scaled)
            text = arena_format(arena, "%s%s", text, scaled < 0 ? "-" : *text ? "+" : "");
        if (scaled && !bare)
            text = arena_format(arena, "%s%" PRId64, text, size);
        if (scaled)
            text = arena_format(arena, "%s%s", text, written_order[i].name);
    }
    if (outside > 1)
        text = arena_format(arena, "%" PRId64 "(%s)", outside, text);
    else if ((*name || below > 1) && (count > 1 || (*name && strchr(text, '/'))))
        text = arena_format(arena, "(%s)", text);
    text = arena_format(arena, "%s%s", text, name);
    return below > 1 ? arena_format(arena, "%s/%" PRId64, text, below) : text;
}
