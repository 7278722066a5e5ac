/* The timeline in characters: the picture in the head of every file in schedules/, at any width, with colours and without. */
#include "compiler/output/terminal.h"
#include "tests/picture/run.h"

#include <glob.h>
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

static char *read_file(const char *path)
{
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    char *text = calloc(1, 1 << 16);
    assert_true(fread(text, 1, (1 << 16) - 1, file) > 0);
    fclose(file);
    return text;
}

/* The parameters of a head's line such as "# P=3, M=3, chunks=2; F forward", as options of dpc; false: no such
   line, or one of another form. */
static bool head_options(const char *text, char *options, size_t size)
{
    const char *line = strncmp(text, "# P=", 4) == 0 ? text : strstr(text, "\n# P=");
    if (!line)
        return false;
    line += *line == '\n' ? 3 : 2;
    options[0] = '\0';
    for (const char *next = line; *next && *next != ';' && *next != '\n';) {
        const size_t length = strcspn(next, ",;\n"), used = strlen(options);
        if (strncmp(next, "P=", 2) == 0)
            snprintf(options + used, size - used, " --ranks %.*s", (int)length - 2, next + 2);
        else if (strncmp(next, "M=", 2) == 0)
            snprintf(options + used, size - used, " --microbatches %.*s", (int)length - 2, next + 2);
        else
            snprintf(options + used, size - used, " -D %.*s", (int)length, next);
        next += length + strspn(next + length, ", ");
    }
    const size_t used = strlen(options), length = strcspn(line, "\n");
    const char *slots = strstr(line, "one slot a pass");
    if (slots && slots < line + length)
        snprintf(options + used, size - used, " --cost B=1");
    const char *chunks = strstr(line, "its chunk, its microbatch"); /* a form for more than two chunks that dpc does not have */
    return !chunks || chunks > line + length;
}

/* The lines that begin with `begin`, without it. */
static char *lines_with(const char *text, const char *begin, const char *cut)
{
    char *found = calloc(1, strlen(text) + 2);
    for (const char *line = text; *line; line += strcspn(line, "\n") + (line[strcspn(line, "\n")] == '\n'))
        if (strncmp(line, begin, strlen(begin)) == 0) {
            const char *from = line + strlen(cut);
            strncat(found, from, strcspn(from, "\n"));
            strcat(found, "\n");
        }
    return found;
}

/* A row of a head that is too long for the page ends in ... : so shall the one that is compared with it. */
static void cut_as(char *rows, const char *head)
{
    char *to = rows;
    for (const char *from = rows, *next; *from && *head; from = next) {
        const size_t length = strcspn(from, "\n"), wanted = strcspn(head, "\n");
        next = from + length + 1;
        const bool cut = wanted > 3 && wanted < length && strncmp(head + wanted - 3, "...", 3) == 0;
        const size_t kept = cut ? wanted - 3 : length;
        memmove(to, from, kept);
        to += kept;
        to += sprintf(to, "%s", cut ? "..." : "");
        *to++ = '\n';
        head += wanted + 1;
    }
    *to = '\0';
}

static void test_heads(void **state)
{
    (void)state;
    glob_t files;
    int compared = 0;
    assert_int_equal(glob("schedules/*.dps", 0, NULL, &files), 0);
    for (size_t i = 0; i < files.gl_pathc; i++) {
        char *source = read_file(files.gl_pathv[i]), options[256];
        char *head = lines_with(source, "#   r", "#   ");
        if (*head && head_options(source, options, sizeof options)) {
            char *shown = run("unset COLUMNS; dpc show %s %s", options, files.gl_pathv[i]);
            char *rows = lines_with(shown, "r", "");
            cut_as(rows, head);
            assert_string_equal(rows, head);
            compared++;
            free(shown);
            free(rows);
        }
        free(head);
        free(source);
    }
    globfree(&files);
    assert_true(compared >= 5);
}

/* All blocks of a rank's row, put together. */
static char *joined_row(const char *shown, const char *rank)
{
    char *row = calloc(1, strlen(shown) + 1);
    for (const char *line = shown; *line; line += strcspn(line, "\n") + 1)
        if (strncmp(line, rank, strlen(rank)) == 0)
            strncat(row, line + strlen(rank), strcspn(line, "\n") - strlen(rank));
    size_t kept = 0; /* blanks at the end of a line are not printed */
    for (size_t i = 0; row[i]; i++)
        if (row[i] != ' ')
            row[kept++] = row[i];
    row[kept] = '\0';
    return row;
}

static void test_narrow(void **state)
{
    (void)state;
    for (int i = 0; i < PICTURED; i++) {
        char *wide = run("unset COLUMNS; dpc show %s", pictured[i]);
        for (int width = 30; width <= 60; width += 15) {
            char *narrow = run("COLUMNS=%d; export COLUMNS; dpc show %s", width, pictured[i]);
            assert_true(width > 30 || strstr(narrow, "(part 2 of "));
            for (const char *line = narrow; *line; line += strcspn(line, "\n") + 1)
                if (*line == 'r')
                    assert_true(strcspn(line, "\n") <= (size_t)width);
            for (int r = 0; r < 4; r++) {
                char rank[8];
                snprintf(rank, sizeof rank, "r%d  ", r);
                char *one = joined_row(wide, rank), *other = joined_row(narrow, rank);
                assert_true(strlen(one) > 8);
                assert_string_equal(one, other);
                free(one);
                free(other);
            }
            free(narrow);
        }
        free(wide);
    }
}

/* What dpc show writes to a terminal of 200 columns. */
static char *on_terminal(const char *no_colour)
{
    struct winsize size = {.ws_row = 50, .ws_col = 200};
    int master;
    char program[4096];
    snprintf(program, sizeof program, "%s/dpc", getenv("BUILD") ? getenv("BUILD") : "build");
    fflush(NULL);
    const pid_t child = forkpty(&master, NULL, NULL, &size);
    if (child == 0) {
        unsetenv("COLUMNS");
        setenv("TERM", "xterm", 1);
        setenv("NO_COLOR", no_colour, 1);
        execl(program, "dpc", "show", "--ranks", "2", "--microbatches", "4", "schedules/dualpipe.dps", (char *)NULL);
        _exit(127);
    }
    assert_true(child > 0);
    char *text = calloc(1, 1 << 16);
    size_t length = 0;
    for (ssize_t got; length < (1 << 16) - 1 && (got = read(master, text + length, (1 << 16) - 1 - length)) > 0;)
        length += (size_t)got;
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    close(master);
    return text;
}

/* Without what begins with an escape and ends with m; returns how many there were. */
static int strip_styles(char *text)
{
    char *to = text;
    int styles = 0;
    for (const char *c = text; *c; c++) {
        if (*c == '\033') {
            c = strchr(c, 'm');
            styles++;
        } else if (*c != '\r') {
            *to++ = *c;
        }
    }
    *to = '\0';
    return styles;
}

static void test_colours(void **state)
{
    (void)state;
    char *plain = on_terminal("1"), *coloured = on_terminal("");
    assert_int_equal(strip_styles(plain), 0);
    assert_true(strip_styles(coloured) >= 2 * 8);
    for (int r = 0; r < 2; r++) {
        const char *const rank = r ? "r1  " : "r0  ";
        char *one = joined_row(plain, rank), *other = joined_row(coloured, rank);
        size_t kept = 0; /* a colour goes on where without colours a - does */
        for (size_t i = 0; one[i]; i++)
            if (one[i] != '-')
                one[kept++] = one[i];
        one[kept] = '\0';
        assert_string_equal(one, other);
        free(one);
        free(other);
    }
    free(plain);
    free(coloured);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_heads), cmocka_unit_test(test_narrow), cmocka_unit_test(test_colours)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
