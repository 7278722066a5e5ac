/* The compiler's messages about wrong files. */

#include "grammar/reader.h"
#include "tests/parse/front.h"

TEST(form_of_a_report)
{
    Front front;
    front_run(&front, TWO "let ä\n");
    /* the text has ended where the name is missing, so the first position is directly after the last token, `let` */
    assert_string_equal(front.report, "t.dps:2:4: error: expected a name, but the file ends\n"
                                      "    let ä\n"
                                      "       ^\n"
                                      "  help: write it like this: let w = P-1-r;\n"
                                      "t.dps:2:5: error: the language has no `ä`\n"
                                      "    let ä\n"
                                      "        ^\n");
    front_close(&front);
    front_run(&front, TWO "let x = 3;\n\tlet x = 4 + nothing;");
    assert_string_equal(front.report, "t.dps:3:6: error: `x` is declared twice\n"
                                      "     let x = 4 + nothing;\n"
                                      "         ^\n"
                                      "t.dps:2:5: note: first here\n"
                                      "    let x = 3;\n"
                                      "        ^\n"
                                      "  help: rename one of them: an inner name cannot hide an outer one\n"
                                      "t.dps:3:14: error: unknown name `nothing`\n"
                                      "     let x = 4 + nothing;\n"
                                      "                 ^~~~~~~\n"
                                      "  help: known here: x, a, M, P, r\n");
    front_close(&front);
}

TEST(long_lines_are_cut)
{
    enum { LONG = 100000 };
    char *text = malloc(LONG + 64);
    const size_t before = (size_t)sprintf(text, "schedule t;");
    memset(text + before, ' ', LONG);
    strcpy(text + LONG / 2, "oops;");
    text[LONG / 2 + 5] = ' ';
    strcpy(text + LONG, "#");
    Front front;
    front_run(&front, text);
    assert_non_null(strstr(front.report, "t.dps:1:50001: error"));
    assert_non_null(strstr(front.report, "    ...  "));
    assert_non_null(strstr(front.report, "oops;  "));
    assert_non_null(strstr(front.report, "^~~~\n"));
    assert_true(front.report_size < 1000);
    front_close(&front);
    free(text);
}

TEST(no_control_characters_reach_the_terminal)
{
    Front front;
    front_run(&front, TWO "require 0, \"\033[31m red\"; # \033[0m");
    assert_non_null(strstr(front.report, "error: ?[31m red"));
    assert_null(strchr(front.report, '\033'));
    front_close(&front);
}

TEST(many_errors)
{
    char text[4096] = TWO;
    for (int i = 0; i < 50; i++)
        sprintf(text + strlen(text), "let x%d = y%d;\n", i, i);
    REPORTS(text, "unknown name `y0`", "unknown name `y19`", "t.dps: and 30 more errors");
    *(strstr(text, "let x20 = y20;\n") + strlen("let x20 = y20;\n")) = '\0';
    REPORTS(text, "unknown name `y19`", "t.dps: and 1 more error\n");
}

/* What users of other languages write. */
TEST(habits)
{
    REPORTS(TWO "nf0 : M; if r == 0 { nF : M; } elif r == 1 { nF : M; }\n// all", "2:1: error: expected", "not `nf0`",
            "passes are written with capital letters", "not `elif`", "} else if r == 1 {", "a comment begins with #");
    REPORTS(TWO "repeat i < 2 { repeat i < 2 { B&F; } } nB : M + mm;", "`i` is declared twice", "rename one of them",
            "`&` joins two passes: an F and the B or I", "write the F first", "unknown name `mm`",
            "known here: a, M, P, r");
    REPORTS(TWO, "t.dps:1:1: error: the schedule has no steps", "nF : M; nB : M;");
    REPORTS(TWO "nFIW : M; W;", "2:11: error: rank 0 (and 1 more): no I is left for this W to complete");
    REPORTS(TWO "at 0: F; nB : M;", "this pass has no time slot", "write `at SLOT:` before its step");
}

TEST(syntax)
{
    REPORTS("schedule t\nranks P = 4;\nlet a = 2P;\nlet F = 3;\nlet stage = 2;\nlet b = 1 < 2 < 3;\nlet c = (1 + "
            "2;\nnF0X1 : 3;\nlett x = 3;\n"
            "if P = 3 { F; }\nF : B;\n",
            /* 1:11: the next token is on a later line, so the position is after the last token before it */
            "t.dps:1:11: error: expected `;`, not `ranks`", "t.dps:3:10: error: expected `;`, not `P`",
            "help: a product is written with *", "t.dps:4:5: error: `F` is a pass and cannot be a name",
            "t.dps:5:5: error: `stage` is a word of the language and cannot be a name",
            "t.dps:6:15: error: expected `;`, not `<`", "help: comparisons do not chain",
            "t.dps:7:15: error: expected `)`, not `;`", "t.dps:7:9: note: to close this `(`",
            "t.dps:8:1: error: `nF0X1` is neither a word of the language nor a list of passes",
            "t.dps:9:1: error: expected an item of the schedule, not `lett`", "help: did you mean `let`?",
            "t.dps:10:6: error: expected `{`, not `=`", "help: write == to compare",
            "t.dps:11:5: error: `B` is a pass: it has no value");
    REPORTS("ranks P = 4;", "t.dps:1:1: error: expected `schedule NAME;`, not `ranks`",
            "help: the file begins with the name of the schedule");
    REPORTS("", "t.dps:1:1: error: expected `schedule NAME;`, but the file ends");
    REPORTS(TWO "}", "error: expected an item of the schedule or the end of the file, not `}`",
            "help: this `}` closes nothing: no `{` is open here");
    REPORTS(TWO "repeat i < 3 { F;", "t.dps:2:18: error: expected an item of the schedule or `}`, but the file ends",
            "t.dps:2:14: note: this `{` is not closed");
    REPORTS(TWO "F : M overlap overlap split from 1 split from 1;", "`overlap` is given twice",
            "`split` is given twice");
    REPORTS(TWO "F[1][2]; F{0}{0};", "a pass names one microbatch", "each part at most once");
    REPORTS(TWO "pipe b: P stages, stage t on t M microbatches;", "expected `,`, not `M`");
    REPORTS(TWO "let x = min();", "expected an expression, not `)`");
}

TEST(searched)
{
    REPORTS(TWO "order auto;", "error: expected `(`, not `;`");
    REPORTS(TWO "ordr auto(memory = 2);", "error: expected an item of the schedule, not `ordr`",
            "help: did you mean `order`?");
    REPORTS(TWO "order auto(memory = 2, memory = 3, memroy = 4, x = 5);", "`memory` is given twice",
            "has no setting `memroy`", "help: did you mean `memory`?", "has no setting `x`",
            "help: the settings are `memory`, `input`, `weight`, `effort` and `overlap`");
    REPORTS(TWO "order auto(effort = r);", "`order auto` does not say how much memory a rank has",
            "help: without `input` and `weight`, `memory` counts halves", "cannot be used here: this setting is");
    REPORTS(TWO "nFB : M;\norder auto(memory = 4);",
            "t.dps:2:2: error: a schedule has either `order auto` or steps, not both", "t.dps:3:1: note: here");
    REPORTS(TWO "if P { order auto(memory = 4); }", "this belongs outside of all blocks");
    REPORTS(TWO "order auto(memory = 4); order auto(memory = 4);", "a second `order`");
    REPORTS("schedule t; ranks P = 2; microbatches M = 2; pipe a: P stages, stage s on s, M of 4 microbatches;\norder "
            "auto(memory = 4);",
            "`M of N microbatches` is only for steps");
    REPORTS("schedule t; ranks P = 2; microbatches M = 2; pipe a: 1 stages, stage s of m on m, M microbatches;\norder "
            "auto(memory = 4);",
            "t.dps:1:", "`order auto` cannot be used if a stage of a pipe lives on several ranks");
    REPORTS(TWO "order auto(memory = 2-r);",
            "t.dps:2:21: error: rank 1: memory 1 is too small for one microbatch, which takes 2",
            "help: here r = 1; the least that works on this rank is 2");
    REPORTS(TWO "order auto(memory = 4/r);", "t.dps:2:21: error: rank 0: division by zero");
    REPORTS(TWO "order auto(memory = 4, effort = 0);", "`effort` is 0: it must be 1 to 100000");
    REPORTS(TWO "order auto(memory = 4, input = 0, weight = M-P);", "a microbatch takes no memory");
}

TEST(first_steps)
{
    REPORTS("schedule my schedule;\nranks 4;\nmicrobatches = 8;\nnf0b1 : 3;\nlet w = 2;\nw = 3;\nrepeat 3 { F; "
            "}\nrepeat M { F; }",
            "expected `;`, not `schedule`", "help: the name of a schedule is one word: my-schedule",
            "expected a name, not `4`", "help: write it like this: ranks P = 4;", "expected a name, not `=`",
            "help: write it like this: microbatches M = 8;", "not `nf0b1`",
            "help: passes are written with capital letters: nF0B1", "not `w`",
            "help: a name gets its value where it is declared: let w = ...;", "expected a name, not `3`",
            "help: write it like this: repeat i < M { ... }", "expected `<`, not `{`",
            "help: write it like this: repeat i < M { ... }");
    REPORTS(TWO "let w = P-1-rank;", "unknown name `rank`", "help: r is the rank");
}

/* The whole grammar, with each token in turn replaced, or the text cut off there: no report has (null) in place of a
   name. front_run checks that only a refused text has errors. */
TEST(syntax_everywhere)
{
    static const char whole[] =
        "schedule t; ranks P = 4; microbatches M = 8; param k = 2; let a = min(P, -k) + (M > 3 && !k ? 1 : P % 2); "
        "require M >= P, \"m\"; squeeze; "
        "pipe a: P stages, stage s of m on s, M of 2*M microbatches, microbatch m on version m/2; chunk 0 = a; "
        "overlap F&B { compute: attention(F) mlp(B); comm: combine(B) on 20 of 132; } order auto(memory = 2*P, effort "
        "= 3); "
        "repeat i < M { at i: F0{1-i}[i] : 2; let b = i; } if k == 1 { nF0B1 : k overlap from 1 split from 2; } else "
        "if k { F0 & B1; }";
    static const char *const others[] = {")", "}", "else", "version", "3", "x", "F0", ";", "<", "\"s\""};
    Front good;
    front_run(&good, whole);
    uint32_t count;
    const Token *tokens = read_tokens(&good.source, &good.arena, &count);
    assert_true(count > 150);
    for (uint32_t i = 0; i < count; i++)
        for (size_t other = 0; other <= sizeof others / sizeof *others; other++) {
            char text[sizeof whole + 16];
            const bool cut = other == sizeof others / sizeof *others;
            snprintf(text, sizeof text, "%.*s%s%s", (int)tokens[i].span.begin, whole, cut ? "" : others[other],
                     cut ? "" : whole + tokens[i].span.end);
            Front front;
            front_run(&front, text);
            if (strstr(front.report, "(null)"))
                fail_msg("%s\n%s", text, front.report);
            front_close(&front);
        }
    front_close(&good);
}

TEST(characters)
{
    REPORTS(TWO "let x = 3 @ 4;", "t.dps:2:11: error: the language has no `@`");
    REPORTS(TWO "let x = 3 ≤ 4;", "the language has no `≤`", "help: write <=");
    REPORTS(TWO "require 1, \"never;\nlet x = 99999999999999999999;",
            "t.dps:2:12: error: this text in quotes does not end on its line",
            "t.dps:3:9: error: this number is too large");
    static const char zero[] = TWO "F\0 : 2;";
    Front front;
    front_run_bytes(&front, "t.dps", zero, sizeof zero - 1, NULL);
    assert_non_null(strstr(front.report, "t.dps:2:2: error: byte 0x00 is not text"));
    front_close(&front);
    front_run(&front, TWO "nFB : M;\r\n");
    assert_true(front.good);
    front_close(&front);
}

/* Two functions of the generated scanner. flex reports an error if the first is called before the scanner has text. */
void schedule_set_lineno(int line, void *scanner);
int schedule_lex_init_extra(Reader *reader, void **scanner);

/* An error in the scanner itself is reported like a mistake: it does not end the process. */
TEST(the_scanner_may_fail)
{
    Front front;
    front_run(&front, TWO "nFB : M;");
    Reader *reader = arena_allocate(&front.arena, sizeof *reader);
    void *scanner;
    reader->arena = &front.arena;
    reader->diagnostics = diag_new(&front.arena, &front.source);
    schedule_lex_init_extra(reader, &scanner);
    if (setjmp(reader->failed) == 0) {
        schedule_set_lineno(1, scanner);
        fail_msg("the scanner goes on");
    }
    assert_string_equal(diag_first(reader->diagnostics, &front.arena),
                        "the scanner failed: yyset_lineno called with no buffer");
    front_close(&front);
}

TEST(names)
{
    REPORTS("schedule t;\nranks P = r;\nmicrobatches M = h;\nlet h = min(r, P-1-r);\npipe a: P+h stages, stage s on "
            "s+r, mm microbatches;\n",
            "t.dps:2:11: error: r, the rank, cannot be used here: the number of ranks is the same for all ranks",
            "t.dps:3:18: error: unknown name `h`", "t.dps:4:5: note: it is declared here: a name is known only after",
            "t.dps:5:11: error: `h` depends on r, the rank, but the number of stages is the same for all ranks",
            "t.dps:4:5: note: it is computed from r here",
            "t.dps:5:34: error: r, the rank, cannot be used here: where a stage lives is",
            "t.dps:5:37: error: unknown name `mm`");
    REPORTS(TWO "let warmup = 1; F : warmpu;", "unknown name `warmpu`", "help: did you mean `warmup`?");
    REPORTS(TWO "ranks Q = 3; microbatches N = 2;", "a second `ranks`", "note: the first", "a second `microbatches`");
    REPORTS(TWO "nFIW : M; squeeze; squeeze;", "t.dps:2:20: error: a second `squeeze`", "note: the first");
    REPORTS(TWO "nFIW : M; if 1 { squeeze; }", "this belongs outside of all blocks");
    REPORTS(TWO "let r = 3; let max = 2; let P = 3;", "`r` is the rank in every schedule and cannot be declared",
            "`max` is a function and cannot be a name", "`P` is declared twice", "t.dps:1:19: note: first here");
    REPORTS(TWO "let x = abs(1, 2) + mx(1, 2) + min(3) + M(2);", "abs takes one value", "unknown function `mx`",
            "help: did you mean `max`?", "min takes two values or more", "unknown function `M`",
            "help: a product is written with *: M*(...)");
    REPORTS(TWO "let x = cost(F0) + cost(coom) + cost(FBI); let cost = 1;",
            "t.dps:2:38: error: cost() takes the name of one cost");
    REPORTS(TWO "let x = cost(F0) + cost(coom) + cost(M, 1); let cost = 1;", "there is no cost `F0`",
            "help: write cost(F); the names of costs are fixed: F, B, I, W, U, FB and comm", "there is no cost `coom`",
            "cost() takes the name of one cost", "`cost` is a function");
    REPORTS(TWO "let x = 1 + cost();", ": error: cost() takes the name of one cost",
            "help: write cost(F); the names of costs are fixed: F, B, I, W, U, FB and comm");
    REPORTS(TWO "let x = cost(F, I);", ": error: cost() takes the name of one cost",
            "help: write cost(F); the names of costs are fixed");
    REPORTS(TWO "let x = cost(F&B);", ": error: cost() takes the name of one cost",
            "help: write cost(F); the names of costs are fixed");
    REPORTS(TWO "let x = cost(F + I);", ": error: cost() takes the name of one cost",
            "help: write cost(F); the names of costs are fixed");
    REPORTS(TWO "let x = cost F;", ": error: cost() takes the name of one cost",
            "help: write cost(F); the names of costs are fixed");
    REPORTS(TWO "let x = cost + 1;", "unknown name `cost`", "help: write cost(F); the names of costs are fixed");
    REPORTS(TWO "let x = cost(F;", "expected a pass or `)`, not `;`", "note: to close this `(`");
    REPORTS(
        "schedule t; ranks P = 2*cost(F); microbatches M = 2; param k = cost(I); pipe a: k stages, stage s on "
        "k, M of k microbatches;\nchunk 0 = cost(comm);",
        "1:23: error: the number of ranks is decided before the costs are known",
        "help: costs depend on the number of stages: this value may not use cost(), directly or through other names",
        "the number of stages is decided", "where a stage lives is", "the number of microbatches is decided",
        "2:11: error: the pipe of a chunk is");
    REPORTS(TWO "repeat k < 3 { let z = k; } F : z + k;", "unknown name `z`", "unknown name `k`");
    REPORTS(TWO "repeat k < 3 { ranks Q = 3; repeat k < 2 { F; } }", "this belongs outside of all blocks",
            "`k` is declared twice");
    REPORTS("schedule t;", "does not say its number of ranks", "does not say its number of microbatches", "has no pipe",
            "help: write: pipe a: P stages, stage s on s, M microbatches;");
    REPORTS("schedule t; ranks N = 2; microbatches K = 2;", "has no pipe",
            "help: write: pipe a: N stages, stage s on s, K microbatches;");
}

TEST(steps)
{
    REPORTS(TWO "F0&B0 F0 : 3 overlap;", "either `overlap` or `&`, not both");
    REPORTS(TWO "B0&F0;", "`&` joins two passes: an F and the B or I after it, or two F", "help: write the F first");
    REPORTS(TWO "F&W; F&B&F;", "`&` joins two passes", "for example F0&B1", "`&` joins two passes",
            "for example F0&B1");
    REPORTS(TWO "F W overlap;", "`overlap` needs an F directly followed by a B or I");
    REPORTS(TWO "F W split from 0; W B split from 0;", "`split` needs a backward pass", "`split` has no effect here");
    REPORTS(TWO "F300; F0{1};", "chunk 300: a rank holds at most 255", "has its chunk twice");
    REPORTS(TWO "chunk 0 = a; chunk 0 = a; chunk 3 = a;", "chunk 0 is declared twice",
            "chunk 3 is declared, but chunk 1 is not: chunks are numbered from 0");
}

TEST(placement)
{
    REPORTS("schedule t; ranks P = 4; microbatches M = 2; pipe a: P stages, stage s on s+1, M microbatches;",
            "1:75: error: stage 3 would live on rank 4: the ranks are 0 to 3", "help: here s = 3");
    REPORTS("schedule t; ranks P = 2; microbatches M = 3; pipe a: P stages, stage s on s, M/2 microbatches;\n"
            "pipe b: P stages, stage s on 1-s, M/2 microbatches;",
            "the pipes together have 2 microbatches, but the schedule has 3", "note: declared here",
            "the pipes share the microbatches of the schedule: of two pipes, one has M/2 and one M-M/2");
    REPORTS("schedule t; ranks P = 2; microbatches M = 2; pipe a: P stages, stage s on s, M/2 microbatches;\n"
            "pipe b: P+1 stages, stage s on 0, M/2 microbatches;",
            "pipe b has 3 stages, but pipe a has 2", "note: all pipes are copies of the same stages");
    REPORTS("schedule t; ranks P = 3; microbatches M = 2; pipe a: P stages, stage s on 2*(s/2), M microbatches;",
            "rank 1: no stage lives on this rank",
            "help: every rank needs a stage: use fewer ranks, more stages, or another rank for one of them");
    REPORTS("schedule t; ranks P = 0; microbatches M = 2; pipe a: 2 stages, stage s on s, M microbatches;",
            "0 ranks: there can be 1 to 4096");
    REPORTS("schedule t; ranks P = 1; microbatches M = 2; pipe a: 65536 stages, stage s on 0, M microbatches;",
            "the number of stages is 65536: it must be 1 to 65535");
    REPORTS("schedule t; ranks P = 1; microbatches M = 2; pipe a: 256 stages, stage s on 0, M microbatches;",
            "rank 0: 256 stages live on this rank: it can hold at most 255");
    REPORTS("schedule t; ranks P = 1; microbatches M = 2; pipe a: 1 stages, stage s on 0, M of 1 microbatches;",
            "the number of microbatches after `of` is 1: it must be 2 to");
    REPORTS(TWO "chunk 0 = r; ", "rank 1: chunk 0 must be the name of a pipe, not 1");
    REPORTS(TWO "chunk 0 = a; chunk 1 = a;",
            "rank 0 (and 1 more): chunk 1 has no stage: pipe a has 1 stage on this rank");
    REPORTS(
        "schedule t; ranks P = 2; microbatches M = 2; pipe a: 2*P stages, stage s on s%P, M microbatches; chunk 0 = a;",
        "rank 0 (and 1 more, with other values): stage 2 of pipe a lives on this rank, but is none of its 1 declared "
        "chunks");
}

TEST(requirements)
{
    const char *const folds = "schedule t; ranks P = 7; microbatches M = 4; require P % 2 == 0, \"fold\"; require M % "
                              "2 == 0 && M >= P, \"more\";\n"
                              "pipe a: P stages, stage s on s, M microbatches; nFB : M;";
    REPORTS(folds, "t.dps:1:54: error: fold", "help: here P = 7", "help: the nearest number that works: --ranks 4",
            "error: more", "help: here M = 4, P = 7");
    REPORTS("schedule t; ranks P = 7; microbatches M = 4; require P % 2 == 0, \"fold\";",
            "t.dps:1:1: error: the schedule has no pipe");
    REPORTS("schedule t; ranks P = 7; require P % 2 == 0, \"fold\"; microbatches M = P+1; pipe a: P stages, stage s on "
            "s, M microbatches;",
            "fold", "help: the nearest numbers that work: --ranks 6 or 8");
    REPORTS("schedule t; ranks P = 4; microbatches M = 9; let q = M/P; require M % q == 0, \"whole\"; pipe a: P "
            "stages, stage s on s, M microbatches;",
            "whole", "help: here M = 9, q = 2", "help: the nearest numbers that work: --microbatches 8 or 10");
    REPORTS(TWO "require r < 1, \"only rank 0\";", "rank 1: only rank 0", "help: here r = 1");
    /* a `require` that fails is the only error: the division by zero in the same case is not reported */
    REPORTS(TWO "require P > 2, \"first\"; let x = 1/(P-2);", "error: first");
    Front front;
    front_run(&front, TWO "require P > 2, \"first\"; let x = 1/(P-2);");
    assert_null(strstr(front.report, "division"));
    front_close(&front);
}

TEST(parameters)
{
    Front front;
    Error error;
    Parameters given = {0};
    front_run(&front, TWO "param chunks = 2; param depth = 3; nFB : M;");
    assert_true(front.good);
    parameters_set(&given, &front.arena, "depth", 1);
    assert_int_equal(parameters_check(front.ast, &given, NULL, &error), STATUS_OK);
    parameters_set(&given, &front.arena, "chunk", 1);
    assert_int_equal(parameters_check(front.ast, &given, NULL, &error), STATUS_BAD_USAGE);
    assert_string_equal(error.text,
                        "-D chunk: schedule t has no such parameter, only chunks, depth; did you mean chunks?");
    given = (Parameters){0};
    parameters_set(&given, &front.arena, "P", 1);
    assert_int_equal(parameters_check(front.ast, &given, NULL, &error), STATUS_BAD_USAGE);
    assert_non_null(strstr(error.text, "--ranks"));
    given.others[0].name = "microbatches";
    assert_int_equal(parameters_check(front.ast, &given, NULL, &error), STATUS_BAD_USAGE);
    assert_string_equal(error.text, "-D microbatches: for the number of microbatches write --microbatches N");
    front_close(&front);
}

TEST(depth_is_bounded)
{
    static const struct {
        const char *before, *middle, *after;
    } nests[] = {{"(", "1", ")"},
                 {"-", "1", ""},
                 {"1+", "1", ""},
                 {"1?", "1", ":1"},
                 {"min(1,", "1", ")"},
                 {"if 1 {", "", "}"},
                 {"if 1 {} else ", "{}", ""}};
    enum { LEVELS = 100000 };
    char *text = malloc(LEVELS * 32);
    for (size_t i = 0; i < sizeof nests / sizeof *nests; i++) {
        char *end = stpcpy(text, TWO);
        if (nests[i].before[0] != 'i')
            end = stpcpy(end, "let x = ");
        for (int level = 0; level < LEVELS; level++)
            end = stpcpy(end, nests[i].before);
        end = stpcpy(end, nests[i].middle);
        for (int level = 0; level < LEVELS; level++)
            end = stpcpy(end, nests[i].after);
        strcpy(end, ";");
        REPORTS(text, "nested too deeply");
    }
    free(text);
}

/* LANGUAGE.md names every word that the scanner knows, and the front of the compiler accepts its first example. */
TEST(the_page_is_true)
{
    Arena arena = {0};
    Error error;
    char *page, *scanner;
    size_t size;
    assert_int_equal(file_read("grammar/LANGUAGE.md", &arena, &page, &size, &error), STATUS_OK);
    assert_int_equal(file_read("grammar/schedule.l", &arena, &scanner, &size, &error), STATUS_OK);
    int words = 0;
    for (char *line = strtok(scanner, "\n"); line; line = strtok(NULL, "\n")) {
        if (line[0] != '"' || line[1] < 'a' || line[1] > 'z')
            continue;
        const char *word = arena_text(&arena, line, strcspn(line + 1, "\"") + 2);
        if (!strstr(page, word))
            fail_msg("LANGUAGE.md does not know %s", word);
        words++;
    }
    assert_true(words > 0);
    const char *example = strstr(page, "    schedule ");
    Front front;
    front_run_bytes(&front, "LANGUAGE.md", example, (size_t)(strstr(example, "## ") - example), NULL);
    assert_true(front.good);
    front_close(&front);
    arena_free(&arena);
}

int main(void) { return test_program("diagnostics", NULL, NULL); }
