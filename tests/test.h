#pragma once

/* Test programs with cmocka. TEST(name) { ... } is a test, and main returns test_program(...), which runs all tests in
   the order of the source. In a test, *state is what `set_up` has stored there. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TESTS_MOST = 100 };
static struct CMUnitTest tests_of_program[TESTS_MOST];

#define TEST(title)                                                                              \
    static void title(void **state);                                                             \
    __attribute__((constructor)) static void add_##title(void)                                   \
    {                                                                                            \
        tests_of_program[__COUNTER__] = (struct CMUnitTest){.name = #title, .test_func = title}; \
    }                                                                                            \
    static void title(void **state __attribute__((unused)))

/* `set_up` runs before the tests, `tear_down` after them; both may be NULL. */
static inline int test_program(const char *name, CMFixtureFunction set_up, CMFixtureFunction tear_down)
{
    return _cmocka_run_group_tests(name, tests_of_program, TESTS_MOST, set_up, tear_down);
}

/* Runs `test` once for each file that the pattern finds, with the path in *state, and then all tests. */
static inline int test_each_file(const char *name, const char *pattern, CMUnitTestFunction test,
                                 CMFixtureFunction set_up, CMFixtureFunction tear_down)
{
    glob_t found;
    if (glob(pattern, 0, NULL, &found) != 0) {
        fprintf(stderr, "no %s here: run from the top folder\n", pattern);
        return 1;
    }
    const size_t files = found.gl_pathc;
    struct CMUnitTest *all = calloc(files + TESTS_MOST, sizeof *all);
    for (size_t i = 0; i < files; i++)
        all[i] = (struct CMUnitTest){.name = found.gl_pathv[i], .test_func = test, .initial_state = found.gl_pathv[i]};
    memcpy(all + files, tests_of_program, sizeof tests_of_program);
    const int failures = _cmocka_run_group_tests(name, all, files + TESTS_MOST, set_up, tear_down);
    free(all);
    globfree(&found);
    return failures != 0;
}
