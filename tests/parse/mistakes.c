/* Typical first mistakes of users of Python, C or PyTorch: each gives one error at the right position, and the
   corrected text, which most of the helps suggest, compiles. */

#include "tests/parse/front.h"

static const struct {
    const char *wrong; /* text from line 2 on */
    const char *error; /* LINE:COLUMN: error: message */
    const char *help;  /* a part of the help; NULL if there is none */
    const char *right; /* the corrected text */
} mistakes[] = {
    {"let e = r > 0 and r < P-1; nFB : M+0*e;", "2:15: error: the language has no `and`", "write &&",
     "let e = r > 0 && r < P-1; nFB : M+0*e;"},
    {"if r == 0 or r == 1 { nFB : M; } else { nFB : M; }", "2:11: error: the language has no `or`", "write ||",
     "if r == 0 || r == 1 { nFB : M; } else { nFB : M; }"},
    {"if not r == 0 { nFB : M; } else { nFB : M; }", "2:4: error: the language has no `not`", "write !(r == 0)",
     "if !(r == 0) { nFB : M; } else { nFB : M; }"},
    {"let e = not r; nFB : M+0*e;", "2:9: error: the language has no `not`", "write !r", "let e = !r; nFB : M+0*e;"},
    {"let e = not(r); nFB : M;", "2:9: error: unknown function `not`", "write !(...)", "let e = !(r); nFB : M;"},
    {"let e = 2^3; nFB : M;", "2:10: error: the language has no `^`", "write 8", "let e = 8; nFB : M;"},
    {"let e = 2^r; nFB : M;", "2:10: error: the language has no `^`", "as in (r < 1 ? 1 : r < 2 ? 2 : r < 3 ? 4 : 8)",
     "let e = (r < 1 ? 1 : r < 2 ? 2 : r < 3 ? 4 : 8); nFB : M;"},
    {"let e = P**2; nFB : M;", "2:10: error: the language has no `**`", "write (P*P)", "let e = (P*P); nFB : M;"},
    {"let e = M/P^4; nFB : M;", "2:12: error: the language has no `^`", "write (P*P*P*P)",
     "let e = M/(P*P*P*P); nFB : M;"},
    {"let e = 2^100; nFB : M;", "2:10: error: the language has no `^`", "write it as a product",
     "let e = 2*2*2; nFB : M;"},
    {"let e = (M+P) >> 1; nFB : M;", "2:15: error: the language has no `>>`", "a quotient, such as M/(2*2*2)",
     "let e = (M+P)/2; nFB : M;"},
    {"if r == 0 | r == 1 { nFB : M; } else { nFB : M; }", "2:11: error: the language has no `|`", "write ||",
     "if r == 0 || r == 1 { nFB : M; } else { nFB : M; }"},
    {"let e = P**r; nFB : M;", "2:10: error: the language has no `**`", "as in (r < 1 ? 1 : r < 2 ? P : P*P)",
     "let e = (r < 1 ? 1 : r < 2 ? P : P*P); nFB : M;"},
    {"let e = M//P; nFB : M;", "2:10: error: the language has no `//`", "write /, which rounds towards 0",
     "let e = M/P; nFB : M;"},
    {"let e = 1 << r; nFB : M;", "2:11: error: the language has no `<<`",
     "as in (r < 1 ? 1 : r < 2 ? 2 : r < 3 ? 4 : 8)", "let e = (r < 1 ? 1 : r < 2 ? 2 : r < 3 ? 4 : 8); nFB : M;"},
    {"let e = M >> 1; nFB : M;", "2:11: error: the language has no `>>`", "write M/2", "let e = M/2; nFB : M;"},
    {"let e = M << 3; nFB : M;", "2:11: error: the language has no `<<`", "write M*8", "let e = M*8; nFB : M;"},
    {"if r <> 0 { nFB : M; } else { nFB : M; }", "2:6: error: the language has no `<>`",
     "write !=", "if r != 0 { nFB : M; } else { nFB : M; }"},
    {"let e := P; nFB : M;", "2:7: error: the language has no `:=`", "write =", "let e = P; nFB : M;"},
    {"let e = 0.5*M; nFB : M;", "2:9: error: `0.5` is not a whole number", "0.5 of M is M*1/2",
     "let e = M*1/2; nFB : M;"},
    {"let e = 12.5; nFB : M;", "2:9: error: `12.5` is not a whole number", "12.5 of M is M*25/2",
     "let e = M*25/2; nFB : M;"},
    {"let e = 1e3; nFB : M;", "2:9: error: `1e3` is not a whole number", "write 1000", "let e = 1000; nFB : M;"},
    {"let e = 1_000; nFB : M;", "2:9: error: `1_000` is not a whole number", "write 1000", "let e = 1000; nFB : M;"},
    {"let e = 0x1f; nFB : M;", "2:9: error: `0x1f` is not a whole number", "write 31", "let e = 31; nFB : M;"},
    {"let e = M*5e-1; nFB : M;", "2:11: error: `5e-1` is not a whole number", "5e-1 of M is M*1/2",
     "let e = M*1/2; nFB : M;"},
    {"if r<P:\nnFB : M;", "2:7: error: expected `{`, not `:`", "a block is written in braces: if r<P { ... }",
     "if r<P { nFB : M; }"},
    {"if r<P:\nnFB : M;\nelse:\nnFB : M;", "2:7: error: expected `{`, not `:`", "in braces: if r<P { ... }",
     "if r<P { nFB : M; } else { nFB : M; }"},
    {"repeat m < M { F(m); B; }", "2:17: error: a pass has its chunk in { } and its microbatch in [ ]",
     "write F{m} for chunk m, F[m] for microbatch m", "repeat m < M { F[m]; B; }"},
    {"repeat m < M { F(0, m); B; }", "2:17: error: a pass has its chunk in { }", "write F{0}[m]",
     "repeat m < M { F{0}[m]; B; }"},
    {"repeat m < M { F[0, m]; B; }", "2:19: error: a pass has its chunk in { }", "write F{0}[m]",
     "repeat m < M { F{0}[m]; B; }"},
    {"repeat m < M { F[0][m]; B; }", "2:16: error: a pass names one microbatch",
     "a computed chunk is written in { }: F{0}[m]", "repeat m < M { F{0}[m]; B; }"},
    {"let w = P-1 if r == 0 else 1; nFB : M;", "2:13: error: the language has no `a if c else b`",
     "write r == 0 ? P-1 : 1", "let w = r == 0 ? P-1 : 1; nFB : M;"},
    {"nFB : M if r >= 0 else 2*M;", "2:9: error: the language has no `a if c else b`", "write r >= 0 ? M : 2*M",
     "nFB : r >= 0 ? M : 2*M;"},
    {"let w = M; w*nF; nB : M;", "2:12: error: the number of repetitions comes after the passes", "write nF : w;",
     "let w = M; nF : w; nB : M;"},
    {"2 F; nB : M;", "2:1: error: the number of repetitions comes after the passes", "write F : 2;", "F : 2; nB : M;"},
    {"nF*2; nB : M;", "2:3: error: the number of repetitions comes after a colon", "write nF : 2;", "nF : 2; nB : M;"},
    {"F B*2;", "2:4: error: the number of repetitions comes after a colon", "write F B : 2;", "F B : 2;"},
    {"overlap; nFB : M;", "2:8: error: expected a pass, not `;`",
     "overlap F&B { compute: mlp(B) mlp(F); comm: dispatch(F) dispatch(B); }",
     "overlap F&B { compute: mlp(B) mlp(F); comm: dispatch(F) dispatch(B); } F; F&B; B;"},
    {"offload F; nB : M;", "2:1: error: expected an item of the schedule, not `offload`", "a step such as `nF0B1 : 3;`",
     "nF : M; nB : M;"},
    {"2 F B;", "2:1: error: the number of repetitions comes after the passes", "write F B : 2;", "F B : 2;"},
    {"2 F[0] B[0];", "2:1: error: the number of repetitions comes after the passes",
     "`nFB : 4;` is 4 times one F and one B", "FB : 2;"},
    {"1F1B : M;", "2:1: error: the number of repetitions comes after the passes",
     "`nFB : 4;` is 4 times one F and one B", "nFB : M;"},
    {"order auto(memory = 80G);", "2:21: error: no unit can follow a number here", "write 80*1000*1000*1000",
     "order auto(memory = 80*1000*1000*1000);"},
    {"order auto(memory = 80 GiB);", "2:21: error: no unit can follow a number here", "write 80*1024*1024*1024",
     "order auto(memory = 80*1024*1024*1024);"},
    {"let e = 2M; nFB : M;", "2:10: error: expected `;`, not `M`", "a product is written with *: 2*M",
     "let e = 2*M; nFB : M;"},
    {"nFB : M\nlet e = 3;", "2:8: error: expected `;`, not `let`", NULL, "nFB : M;\nlet e = 3;"},
    {"let e = 3\nnF0B0 : M;", "2:10: error: expected `;`, not `nF0B0`", NULL, "let e = 3;\nnF0B0 : M;"},
    {"nF : M\nnB0 : M;", "2:7: error: expected `;`, not `nB0`", NULL, "nF : M;\nnB0 : M;"},
    {"repeat m < M { F; B }", "2:20: error: expected `;`, not `}`", NULL, "repeat m < M { F; B; }"},
    {"// all\nnFB : M;", "2:1: error: a comment begins with #", NULL, "# all\nnFB : M;"},
    {"nFB : M; // 1/2; all", "2:10: error: a comment begins with #", NULL, "nFB : M; # 1/2; all"},
    {"/* all\n of them */ nFB : M;", "2:1: error: a comment begins with #", NULL, "# all\n# of them\nnFB : M;"},
    {"require M >= P, 'few'; nFB : M;", "2:17: error: a message is written in double quotes", "write \"few\"",
     "require M >= P, \"few\"; nFB : M;"},
    {"for m in range(M) { F[m]; B; }", "2:1: error: expected an item of the schedule, not `for`",
     "write repeat i < M { ... } for a loop", "repeat m < M { F[m]; B; }"},
    {"repeat m in range(M) { F[m]; B; }", "2:10: error: expected `<`, not `in`",
     "write it like this: repeat i < M { ... }", "repeat m < M { F[m]; B; }"},
    {"if r = 0 { nFB : M; } else { nFB : M; }", "2:6: error: expected `{`, not `=`", "write == to compare",
     "if r == 0 { nFB : M; } else { nFB : M; }"},
    {"if r == 0 then { nFB : M; } else { nFB : M; }", "2:11: error: the language has no `then`", "leave it out",
     "if r == 0 { nFB : M; } else { nFB : M; }"},
    {"if r == 0 { nFB : M; } elif r == 1 { nFB : M; } else { nFB : M; }", "2:24: error: expected an item",
     "write } else if r == 1 { ... }", "if r == 0 { nFB : M; } else if r == 1 { nFB : M; } else { nFB : M; }"},
    {"if r == 0 { nF : M; else { nF : M; } nB : M;", "2:21: error: expected an item of the schedule or `}`, not `else`",
     "`else` follows the `}` of its `if`", "if r == 0 { nF : M; } else { nF : M; } nB : M;"},
    {"NFB : M;", "2:1: error: expected an item of the schedule, not `NFB`", "capital letters: nF0B1", "nFB : M;"},
    {"forward : M; nB : M;", "2:1: error: expected an item of the schedule, not `forward`", "nF : M;",
     "nF : M; nB : M;"},
    {"Forward : M; nB : M;", "2:1: error: expected an item of the schedule, not `Forward`", "nF : M;",
     "nF : M; nB : M;"},
    {"If r == 0 { nFB : M; } else { nFB : M; }", "2:1: error: `If` is neither a word", "did you mean `if`?",
     "if r == 0 { nFB : M; } else { nFB : M; }"},
    {"Barrier; nFB : M;", "2:1: error: `Barrier` is neither a word", "passes are F, B, I, W and U", "nFB : M;"},
    {"let on = 3; nFB : M;", "2:5: error: `on` is a word of the language and cannot be a name", NULL, "nFB : M;"},
    {"squeeze if; nFIW : M;", "2:11: error: expected an expression, not `;`", "write it like this: squeeze;",
     "squeeze; nFIW : M;"},
    {"order auto(memory = 2 input = 0);", "2:23: error: expected `,` or `)`, not `input`", NULL,
     "order auto(memory = 2, input = 0);"},
    {"nF : M; SEND_F : M; nB : M;", "2:9: error: expected an item of the schedule, not `SEND_F`",
     "leave it out: dpc derives the messages", "nF : M; nB : M;"},
    {"nFB : M; optimizer_step;", "2:10: error: expected an item of the schedule",
     "leave it out: the weights are updated", "nFB : M;"},
    {"nF : M; nD : M;", "2:9: error: expected an item of the schedule, not `nD`", "a backward pass is B",
     "nF : M; nB : M;"},
    {"repeat c < 1 { nFc : M; nB : M; }", "2:16: error: `nFc` is neither a word of the language nor a list of passes",
     "in { }: nF{c}", "repeat c < 1 { nF{c} : M; nB : M; }"},
    {"F0, B0; F0B0;", "2:3: error: expected", "follow each other without commas: F0 B0 F1 B1;", "F0 B0; F0B0;"},
    {"nF: M, nB: M;", "2:6: error: expected", "a step ends with `;`", "nF: M; nB: M;"},
    {"F[0:2]; nB : M;", "2:4: error: expected `]`, not `:`", "repeat m < 4 { F[m]; }",
     "repeat m < 2 { F[m]; } nB : M;"},
    {"nFB : num_microbatches;", "2:7: error: unknown name `num_microbatches`", "the number of microbatches is M",
     "nFB : M;"},
    {"if True { nFB : M; }", "2:4: error: unknown name `True`", "write 1", "if 1 { nFB : M; }"},
    {"let h = floor(M/2); nFB : M;", "2:9: error: unknown function `floor`", "floor(a/b) is a/b",
     "let h = M/2; nFB : M;"},
    {"let h = ceil(M/2); nFB : M;", "2:9: error: unknown function `ceil`", "ceil(a/b) is (a + b - 1)/b",
     "let h = (M + 2 - 1)/2; nFB : M;"},
    {"nFB : r == 0 ? M;", "2:17: error: expected `:`, not `;`", "`? :` needs a value for both cases",
     "nFB : r == 0 ? M : M;"},
};

static uint32_t count(const char *text, const char *part)
{
    uint32_t found = 0;
    for (; (text = strstr(text, part)); text++)
        found++;
    return found;
}

static void run_after_head(Front *front, const char *items)
{
    char text[1024];
    snprintf(text, sizeof text, TWO "%s\n", items);
    front_run(front, text);
}

TEST(one_mistake_is_one_error)
{
    for (size_t i = 0; i < sizeof mistakes / sizeof *mistakes; i++) {
        Front front;
        run_after_head(&front, mistakes[i].wrong);
        if (!strstr(front.report, mistakes[i].error) || count(front.report, "error: ") != 1)
            fail_msg("%s\nexpected one error: %s\n%s", mistakes[i].wrong, mistakes[i].error, front.report);
        const char *help = strstr(front.report, "help: ");
        if (mistakes[i].help ? !help || !strstr(help, mistakes[i].help) : help != NULL)
            fail_msg("%s\nexpected help: %s\n%s", mistakes[i].wrong, mistakes[i].help ? mistakes[i].help : "none",
                     front.report);
        front_close(&front);
    }
}

TEST(what_the_help_says_compiles)
{
    for (size_t i = 0; i < sizeof mistakes / sizeof *mistakes; i++) {
        Front front;
        run_after_head(&front, mistakes[i].right);
        if (!front.good)
            fail_msg("%s\n%s", mistakes[i].right, front.report);
        front_close(&front);
    }
}

/* Keywords of other languages are valid names here. */
TEST(foreign_words_may_be_names)
{
    Front front;
    run_after_head(&front, "let and = 1; let or = 2; let not = 3; let is = 4; let mod = not - and*or; let x = !not; "
                           "let G = 2*x; nFB : M*and;");
    assert_string_equal(front.report, "");
    front_close(&front);
}

/* A line of 1 MiB that repeats one mistake is refused. If the time grew with the square of the length, the test would
   not end. */
TEST(long_lines)
{
    static const char *const parts[] = {"a//", "x**", "F(", "not ", "1 if ", "/*", "'", "3 nF ", "2.5"};
    enum { SIZE = 1 << 20 };
    char *text = malloc(SIZE + 200);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        char *end = stpcpy(text, TWO "let y = ");
        while (end - text < SIZE)
            end = stpcpy(end, parts[i]);
        Front front;
        front_run(&front, text);
        assert_false(front.good);
        front_close(&front);
    }
    free(text);
}

int main(void) { return test_program("mistakes", NULL, NULL); }
