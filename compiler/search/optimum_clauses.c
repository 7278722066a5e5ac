#include "compiler/search/optimum_clauses.h"

int clauses_variables(Clauses *clauses, int count)
{
    const int first = clauses->variables + 1;
    clauses->variables += count;
    return first;
}

void clause_add(const Clauses *clauses, int a, int b, int c, int d)
{
    const int literals[] = {a, b, c, d};
    for (int i = 0; i < 4; i++)
        if (literals[i] == ALWAYS)
            return;
    for (int i = 0; i < 4; i++)
        if (literals[i] != NEVER_SO)
            solver_add(clauses->solver, literals[i]);
    solver_add(clauses->solver, 0);
}

void clause_implies(const Clauses *clauses, int a, int b) { clause_add(clauses, -a, b, NEVER_SO, NEVER_SO); }

int ladder_by(const Ladder *ladder, int time)
{
    return time < ladder->first ? NEVER_SO : time >= ladder->last ? ALWAYS : ladder->variables + time - ladder->first;
}

Ladder ladder_new(Clauses *clauses, int first, int last)
{
    const Ladder ladder = {first, last, clauses_variables(clauses, last - first)};
    for (int time = first; time < last; time++)
        clause_implies(clauses, ladder_by(&ladder, time), ladder_by(&ladder, time + 1));
    return ladder;
}

void ladder_follows(const Clauses *clauses, const Ladder *from, const Ladder *to, int lag, int exception, int other)
{
    for (int time = to->first - 1; time <= to->last; time++)
        clause_add(clauses, exception, other, -ladder_by(to, time), ladder_by(from, time - lag));
}

static Count merged(Clauses *clauses, const Count *a, const Count *b, Arena *arena)
{
    Count sum = {.count = a->count + b->count, .always = a->always + b->always};
    sum.literals = arena_array(arena, sum.count, sizeof *sum.literals);
    for (uint32_t i = 0; i < sum.count; i++)
        sum.literals[i] = clauses_variables(clauses, 1);
    for (uint32_t i = 0; i <= a->count; i++)
        for (uint32_t j = 0; j <= b->count; j++)
            if (i + j > 0)
                clause_add(clauses, i ? -a->literals[i - 1] : NEVER_SO, j ? -b->literals[j - 1] : NEVER_SO,
                           sum.literals[i + j - 1], NEVER_SO);
    return sum;
}

Count count_true(Clauses *clauses, const int *literals, uint32_t count, Arena *arena)
{
    if (count > 1) {
        const Count a = count_true(clauses, literals, count / 2, arena);
        const Count b = count_true(clauses, literals + count / 2, count - count / 2, arena);
        return merged(clauses, &a, &b, arena);
    }
    Count one = {.literals = arena_array(arena, 1, sizeof *one.literals)};
    one.always = count && literals[0] == ALWAYS;
    one.count = count && literals[0] != ALWAYS && literals[0] != NEVER_SO;
    one.literals[0] = count ? literals[0] : 0;
    return one;
}

int count_above(const Count *count, int64_t most)
{
    const int64_t index = most - count->always;
    return index < 0 ? ALWAYS : index >= count->count ? NEVER_SO : count->literals[index];
}
