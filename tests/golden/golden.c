/* Golden tests: every tests/FOLDER/NAME.test is one test, in the folder of what it tests. A file is a list of
   sections:

     # words about the test
     --- file NAME          a file that the command finds in its folder; any number of them
     --- needs              one line for sh: if it fails, the test is skipped (left out: the test always runs)
     --- command            lines for sh; dpc and dprun are found, $TOP is the project's top folder
     --- status N           what the command must return (left out: 0)
     --- stdout             what it must print (left out: nothing)
     --- stderr             what it must print there (left out: nothing)

   A command that does not end within TEST_LIMIT seconds is ended, and its test fails.
   REBASE=1 writes what really came instead (make rebase); read the difference before you commit it. */

#include "tests/limit/limit.h"
#include "tests/test.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char *read_text(const char *path)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size), *in = fopen(path, "rb");
    for (int c; in && (c = getc(in)) != EOF;)
        putc(c, out);
    if (in)
        fclose(in);
    fclose(out);
    return text;
}

static void write_text(const char *folder, const char *name, const char *text, size_t size)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
}

/* The next line that starts a section, or the end of the text. */
static const char *next_section(const char *text)
{
    if (strncmp(text, "--- ", 4) == 0)
        return text;
    const char *found = strstr(text, "\n--- ");
    return found ? found + 1 : text + strlen(text);
}

typedef struct Expected {
    char *needs, *command; /* NULL: nothing */
    int status;
    char *out, *error;
    size_t kept; /* how many bytes of the .test file a rebase keeps: up to the end of the command */
} Expected;

static Expected read_test(const char *text, const char *folder)
{
    Expected expected = {.out = strdup(""), .error = strdup("")};
    for (const char *section = next_section(text); *section;) {
        const char *body = strchr(section, '\n');
        assert_non_null(body);
        const char *end = next_section(++body);
        char name[200];
        snprintf(name, sizeof name, "%.*s", (int)(body - 1 - (section + 4)), section + 4);
        const size_t size = (size_t)(end - body);
        if (strncmp(name, "file ", 5) == 0) {
            write_text(folder, name + 5, body, size);
        } else if (strcmp(name, "needs") == 0) {
            expected.needs = strndup(body, size);
        } else if (strcmp(name, "command") == 0) {
            expected.command = strndup(body, size);
            expected.kept = (size_t)(end - text);
        } else if (sscanf(name, "status %d", &expected.status) == 1) {
            ;
        } else if (strcmp(name, "stdout") == 0) {
            free(expected.out);
            expected.out = strndup(body, size);
        } else if (strcmp(name, "stderr") == 0) {
            free(expected.error);
            expected.error = strndup(body, size);
        } else {
            fail_msg("unknown section '%s'", name);
        }
        section = end;
    }
    assert_non_null(expected.command);
    return expected;
}

static void put_section(FILE *file, const char *name, const char *text)
{
    if (*text)
        fprintf(file, "--- %s\n%s%s", name, text, text[strlen(text) - 1] == '\n' ? "" : "\n");
}

/* Runs lines for sh in the folder. Returns the exit status. *late: they were ended. */
static int run(const char *lines, const char *folder, bool *late)
{
    char command[8192], top[4096];
    const char *build = getenv("BUILD");
    char *absolute = realpath(build ? build : "build", NULL);
    assert_non_null(absolute);
    assert_non_null(getcwd(top, sizeof top));
    const int length = snprintf(command, sizeof command,
                                "cd %s && TOP=%s PATH=%s:$PATH && export TOP PATH && { %s\n} >.stdout 2>.stderr",
                                folder, top, absolute, lines);
    assert_in_range(length, 0, sizeof command - 1);
    free(absolute);
    char shell[] = "sh", option[] = "-c";
    return exit_status(run_limited((char *[]){shell, option, command, NULL}, test_limit(), late));
}

static void golden(void **state)
{
    const char *path = *state;
    char folder[] = "/tmp/golden.XXXXXX", name[64];
    assert_non_null(mkdtemp(folder));
    char *text = read_text(path);
    Expected expected = read_test(text, folder);
    bool late = false;
    const bool skipped = expected.needs && run(expected.needs, folder, &late) != 0;
    const int status = skipped ? 0 : run(expected.command, folder, &late);
    snprintf(name, sizeof name, "%s/.stdout", folder);
    char *out = read_text(name);
    snprintf(name, sizeof name, "%s/.stderr", folder);
    char *error = read_text(name);
    snprintf(name, sizeof name, "rm -rf %s", folder);
    assert_int_equal(system(name), 0);
    if (late) {
        print_error("%s: ended, because it ran for %ld s (TEST_LIMIT); until then it printed:\n%s%s", path,
                    (long)test_limit(), out, error);
        fail();
    } else if (skipped) {
        print_message("%s: skipped, because this fails: %s", path, expected.needs);
    } else if (getenv("REBASE")) {
        FILE *file = fopen(path, "wb");
        assert_non_null(file);
        fwrite(text, 1, expected.kept, file);
        if (status)
            fprintf(file, "--- status %d\n", status);
        put_section(file, "stdout", out);
        put_section(file, "stderr", error);
        fclose(file);
    } else {
        if (status != expected.status || strcmp(error, expected.error) != 0)
            print_error("%s: stderr:\n%s", path, error);
        assert_string_equal(out, expected.out);
        assert_string_equal(error, expected.error);
        assert_int_equal(status, expected.status);
    }
    free(text);
    free(out);
    free(error);
    free(expected.needs);
    free(expected.command);
    free(expected.out);
    free(expected.error);
    if (skipped)
        skip();
}

/* golden [PATTERN]: runs the golden tests whose paths match, such as tests/docs/[a-m]*.test; without a pattern, all. */
int main(int argc, char **argv)
{
    /* what the caller's terminal and locale would change */
    unsetenv("COLUMNS");
    setenv("LC_ALL", "C.UTF-8", 1);
    return test_each_file("golden", argc > 1 ? argv[1] : "tests/*/*.test", golden, NULL, NULL);
}
