#include "study/trials/fit_text.h"

#include <inttypes.h>
#include <string.h>

/* A term of a formula: factor * (times[0] * variable 0 + times[1] * variable 1 + ...), where the factor is a polynomial
   in P and M. */
typedef struct Group {
    Polynomial factor;            /* its polynomial_sign is 1 */
    int64_t times[FIT_VARIABLES]; /* times[v]: the multiple of variable v; 0: the variable is in another term */
    /* no variable has a positive multiple: the group is subtracted, and `times` has the multiples with opposite signs
       */
    bool subtracted;
} Group;

/* The coefficient of the cost that gives the variable its name: the variable's coefficient, divided by the multiple of
   the variable in this cost. */
static Polynomial coefficient(const Piece *piece, const CostDomain *costs, int variable)
{
    const int *const all = costs->variables[variable].costs;
    int k = 0;
    while (!all[k])
        k++;
    return polynomial_scaled(&piece->of[variable], (Fraction){1, all[k]});
}

/* The group of variable `first` and of all later variables, not yet `written`, whose coefficients are multiples of
   the coefficient of `first`. Marks these variables as `written`. */
static Group group_from(const Polynomial *coefficients, int variables, int first, bool *written)
{
    Fraction ratios[FIT_VARIABLES] = {{0, 1}};
    /* above: greatest common divisor of the ratios' numerators; below: least common multiple of their denominators */
    int64_t above = 0, below = 1;
    for (int v = 0; v < variables; v++) {
        ratios[v] =
            v < first || written[v] ? (Fraction){0, 1} : polynomial_ratio(&coefficients[v], &coefficients[first]);
        above = common_divisor(above, ratios[v].above);
        below = below / common_divisor(below, ratios[v].below) * ratios[v].below;
        written[v] |= ratios[v].above != 0;
    }
    const int64_t sign = polynomial_sign(&coefficients[first]);
    Group group = {.factor = polynomial_scaled(&coefficients[first], (Fraction){sign * above, below}),
                   .subtracted = true};
    for (int v = 0; v < variables; v++) {
        group.times[v] = sign * ratios[v].above * (below / ratios[v].below) / above;
        group.subtracted &= group.times[v] <= 0;
    }
    for (int v = 0; v < variables && group.subtracted; v++)
        group.times[v] = -group.times[v];
    return group;
}

/* Appends the terms with a positive multiple (sign 1) or with a negative one (sign -1). I and W with equal multiples
   become one term, B. */
static const char *add_terms(const char *text, const Group *group, const CostDomain *costs, int variables, int64_t sign,
                             Arena *arena)
{
    for (int v = 0; v < variables; v++) {
        const int64_t times = sign * group->times[v];
        const char *name = costs->variables[v].name;
        const bool backward = strcmp(name, "I") == 0 && group->times[v] == group->times[v + 1];
        if (times > 0) {
            name = backward ? "B" : name;
            text = arena_format(arena, "%s%s", text, sign < 0 ? "-" : *text ? "+" : "");
            text = times == 1 ? arena_format(arena, "%s%s", text, name)
                              : arena_format(arena, "%s%" PRId64 "%s", text, times, name);
        }
        v += backward;
    }
    return text;
}

static const char *group_text(const Group *group, const CostDomain *costs, int variables, Arena *arena)
{
    const char *text = add_terms("", group, costs, variables, 1, arena);
    text = add_terms(text, group, costs, variables, -1, arena);
    const bool several = strpbrk(text, "+-") != NULL;
    if (several && (group->subtracted || !polynomial_is_one(&group->factor)))
        text = arena_format(arena, "(%s)", text);
    return polynomial_product_text(&group->factor, text, arena);
}

const char *piece_text(const Piece *piece, const CostDomain *costs, int variables, Arena *arena)
{
    Polynomial coefficients[FIT_VARIABLES];
    bool written[FIT_VARIABLES] = {false};
    const char *sum = "", *difference = "";
    for (int v = 0; v < variables; v++)
        coefficients[v] = coefficient(piece, costs, v);
    for (int v = 0; v < variables; v++) {
        if (written[v] || polynomial_is_zero(&coefficients[v]))
            continue;
        const Group group = group_from(coefficients, variables, v, written);
        const char *const text = group_text(&group, costs, variables, arena);
        if (group.subtracted)
            difference = arena_format(arena, "%s - %s", difference, text);
        else
            sum = arena_format(arena, "%s%s%s", sum, *sum ? " + " : "", text);
    }
    if (*sum || !*difference)
        return *sum || *difference ? arena_format(arena, "%s%s", sum, difference) : "0";
    return arena_format(arena, "-%s", difference + strlen(" - "));
}
