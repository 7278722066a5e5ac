/* The parameter values that dpc advise tries. */

#include "study/trials/candidates.h"
#include "tests/parse/front.h"

typedef struct Tried {
    Arena arena;
    Source source;
    Ast *tree;
    Candidates candidates;
} Tried;

static const char head[] = "schedule x; ranks P = 4; microbatches M = 8;\n";
static const char tail[] = "pipe all: P stages, stage s on s, M microbatches; nF : M; nB : M;";

/* Finds the candidates for a schedule of 4 ranks and 8 microbatches with these `param` items; `steps`: the rest of its
   text. `given`: what the user sets, as by -D or --ranks. */
static void try_with(const char *parameters, const char *steps, Parameters given, Tried *tried)
{
    *tried = (Tried){.arena = {0}};
    const char *text = arena_format(&tried->arena, "%s%s%s", head, parameters, steps);
    tried->source = (Source){.path = "x.dps", .text = text, .size = strlen(text)};
    source_lines(&tried->source, &tried->arena);
    Diagnostics *diagnostics = diag_new(&tried->arena, &tried->source);
    tried->tree = parse(&tried->source, &tried->arena, diagnostics);
    assert_non_null(tried->tree);
    assert_true(check(tried->tree, &tried->arena, diagnostics));
    tried->candidates = candidates_of(tried->tree, &given, &tried->arena);
}

/* The parameters of a candidate as text, such as "chunks=2 group=8". */
static const char *text_of(Tried *tried, size_t candidate)
{
    const Parameters *parameters = &tried->candidates.all[candidate];
    const char *text = "";
    for (uint32_t i = 0; i < parameters->count; i++)
        text = arena_format(&tried->arena, "%s%s%s=%lld", text, i ? " " : "", parameters->others[i].name,
                            (long long)parameters->others[i].value);
    return text;
}

static bool tries(Tried *tried, const char *text)
{
    for (size_t i = 0; i < tried->candidates.count; i++)
        if (strcmp(text_of(tried, i), text) == 0)
            return true;
    return false;
}

TEST(none)
{
    Tried tried;
    try_with("", tail, (Parameters){0}, &tried);
    assert_int_equal(tried.candidates.count, 1);
    assert_string_equal(text_of(&tried, 0), "");
    arena_free(&tried.arena);
}

/* The file's own value comes first. Values that a `require` refuses are not tried. */
TEST(a_number)
{
    Tried tried;
    try_with("param chunks = 2; require chunks >= 1 && chunks < 5, \"x\";\n", tail, (Parameters){0}, &tried);
    assert_int_equal(tried.candidates.count, 4);
    assert_string_equal(text_of(&tried, 0), "chunks=2");
    assert_true(tries(&tried, "chunks=1") && tries(&tried, "chunks=3") && tries(&tried, "chunks=4"));
    arena_free(&tried.arena);
}

/* If the default of a parameter is an expression, its value (here 4) is not tried again as a number. */
TEST(a_formula)
{
    Tried tried;
    try_with("param group = P; require group >= P, \"x\";\n", tail, (Parameters){0}, &tried);
    assert_int_equal(tried.candidates.count, 3);
    assert_string_equal(text_of(&tried, 0), "");
    assert_true(tries(&tried, "group=8") && tries(&tried, "group=6"));
    arena_free(&tried.arena);
}

/* The file's own values are tried even if they are refused: advise reports the reason. */
TEST(refused)
{
    Tried tried;
    try_with("param a = 1; require a >= 100, \"x\";\n", tail, (Parameters){0}, &tried);
    assert_int_equal(tried.candidates.count, 1);
    assert_string_equal(text_of(&tried, 0), "a=1");
    arena_free(&tried.arena);
}

/* Parameters that the user has set do not vary. Of five parameters the first four vary, and the number of combinations
   is bounded. */
TEST(several)
{
    Tried tried;
    Arena arena = {0};
    Parameters given = {0};
    parameters_set_ranks(&given, 16);
    parameters_set(&given, &arena, "b", 7);
    try_with("param a = 2; param b = 2;\n", tail, given, &tried);
    for (size_t i = 0; i < tried.candidates.count; i++) {
        assert_int_equal(tried.candidates.all[i].ranks, 16);
        assert_string_equal(tried.candidates.all[i].others[0].name, "b");
        assert_int_equal(tried.candidates.all[i].others[0].value, 7);
    }
    assert_true(tries(&tried, "b=7 a=2") && tries(&tried, "b=7 a=8"));
    arena_free(&tried.arena);
    try_with("param a = 2; param b = 2; param c = 2; param d = 2; param e = 2;\n", tail, (Parameters){0}, &tried);
    assert_in_range(tried.candidates.count, 16, CANDIDATES_MAX);
    assert_string_equal(text_of(&tried, 0), "a=2 b=2 c=2 d=2");
    arena_free(&tried.arena);
    arena_free(&arena);
}

/* Parameters in the arguments of `order auto` do not vary. memory_parameter finds the one that sets its memory; without
   `order auto` it returns NULL. */
TEST(searched)
{
    static const char steps[] =
        "pipe all: P stages, stage s on s, M microbatches; order auto(memory = m, effort = 2*e);";
    Tried tried;
    try_with("param e = 1; param m = 2*P; param chunks = 1; require chunks == 1, \"x\";\n", steps, (Parameters){0},
             &tried);
    assert_int_equal(tried.candidates.count, 1);
    assert_string_equal(text_of(&tried, 0), "chunks=1");
    assert_string_equal(memory_parameter(tried.tree)->name.symbol->text, "m");
    arena_free(&tried.arena);
    try_with("", tail, (Parameters){0}, &tried);
    assert_null(memory_parameter(tried.tree));
    arena_free(&tried.arena);
}

/* Values whose multiples overflow, and a division by zero, do no harm. */
TEST(odd)
{
    Tried tried;
    try_with("param a = 9223372036854775807; param z = 1; let q = 8/(z-1);\n", tail, (Parameters){0}, &tried);
    assert_true(tries(&tried, "a=9223372036854775807 z=1") && tries(&tried, "a=9223372036854775807 z=2"));
    arena_free(&tried.arena);
}

int main(void) { return test_program("candidates", NULL, NULL); }
