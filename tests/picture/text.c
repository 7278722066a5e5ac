/* The timeline as text. It equals the pictures at the heads of files in schedules/, as far as dpc prints their form. It
   has the same passes at other widths, and with and without colours. */
#include "compiler/output/terminal.h"
#include "tests/picture/run.h"

#include <ctype.h>
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

/* Parses the line of a head such as "# P=3, M=3, chunks=2; F forward" into options of dpc. False: there is no such
   line, or it names a form that dpc does not print. */
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
    /* dpc does not print the form for more than two chunks, in which a pass shows its chunk and its microbatch */
    const char *chunks = strstr(line, "its chunk, its microbatch");
    return !chunks || chunks > line + length;
}

/* The lines that start with `begin`, each without its first strlen(cut) characters. The caller frees them. */
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

/* A long row of `head` is cut and ends in "...". Cuts the same row of `rows` in the same way. */
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

TEST(test_heads)
{
    glob_t files;
    int compared = 0;
    assert_int_equal(glob("schedules/*.dps", 0, NULL, &files), 0);
    for (size_t i = 0; i < files.gl_pathc; i++) {
        char *source = read_file(files.gl_pathv[i]), options[256];
        char *head = lines_with(source, "#   r", "#   ");
        if (*head && head_options(source, options, sizeof options)) {
            char *shown = run("dpc show --width 100000 %s %s", options, files.gl_pathv[i]);
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

/* The passes of a rank in all parts of the timeline, without those whose number is not printed. The caller frees
   them. */
static char *passes_of(const char *shown, const char *rank)
{
    char *row = calloc(1, 2 * strlen(shown) + 1), *to = row;
    for (const char *line = shown; *line; line += strcspn(line, "\n") + 1) {
        if (strncmp(line, rank, strlen(rank)) != 0)
            continue;
        for (const char *c = line + strlen(rank); *c != '\n';)
            if (isalpha((unsigned char)*c) && isdigit((unsigned char)c[1])) {
                do
                    *to++ = *c++;
                while (isdigit((unsigned char)*c) || *c == ':');
                *to++ = *c == '&' ? '&' : ' ';
            } else {
                c++;
            }
    }
    return row;
}

/* How many passes have no number for lack of room, as the text says; 0: the text says nothing about it. */
static long unnumbered(const char *shown)
{
    const char *found = strstr(shown, "without a number, for which there is no room: ");
    return found ? strtol(strchr(found, ':') + 1, NULL, 10) : 0;
}

TEST(test_narrow)
{
    for (int i = 0; i < PICTURED; i++) {
        char *wide = run("dpc show --width 100000 %s", pictured[i]);
        for (int width = 30; width <= 60; width += 15) {
            char *narrow = run("COLUMNS=%d; export COLUMNS; dpc show %s", width, pictured[i]);
            assert_true(width > 30 || strstr(narrow, "(part 2 of "));
            for (const char *line = narrow; *line; line += strcspn(line, "\n") + 1)
                if (*line == 'r')
                    assert_true(strcspn(line, "\n") <= (size_t)width);
            long missing = unnumbered(narrow) - unnumbered(wide);
            for (const char *rank = wide; (rank = strstr(rank, "\nr")); rank++) {
                char name[8];
                snprintf(name, sizeof name, "%.4s", rank + 1);
                char *one = passes_of(wide, name), *other = passes_of(narrow, name), *at = one;
                assert_true(strlen(one) > 8);
                for (char *rest, *pass = strtok_r(other, " &", &rest); pass; pass = strtok_r(NULL, " &", &rest)) {
                    for (; strncmp(at, pass, strlen(pass)) != 0; at += strcspn(at, " &") + 1, missing--)
                        assert_true(*at);
                    at += strlen(pass) + 1;
                }
                free(one);
                free(other);
            }
            assert_int_equal(missing, 0);
            free(narrow);
        }
        free(wide);
    }
}

static size_t longest_line(const char *text)
{
    size_t longest = 0;
    for (const char *line = text; *line; line += strcspn(line, "\n") + 1)
        longest = strcspn(line, "\n") > longest ? strcspn(line, "\n") : longest;
    return longest;
}

/* In a pipe or a file the width is 160 columns, unless COLUMNS is set; --width takes precedence. */
TEST(test_width)
{
    glob_t files;
    size_t widest = 0;
    assert_int_equal(glob("schedules/*.dps", 0, NULL, &files), 0);
    for (size_t i = 0; i < files.gl_pathc; i++) {
        char *shown = run("unset COLUMNS; dpc show --ranks 4 --microbatches 24 %s", files.gl_pathv[i]);
        const size_t longest = longest_line(shown);
        assert_true(longest <= 160);
        widest = longest > widest ? longest : widest;
        free(shown);
    }
    globfree(&files);
    assert_true(widest > 150);
    static const struct {
        const char *environment, *option;
        size_t least, most;
    } cases[] = {{"unset COLUMNS", "--width 90", 70, 90},
                 {"export COLUMNS=100", "", 70, 100},
                 {"export COLUMNS=100", "--width 300", 250, 300}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *shown =
            run("%s; dpc show %s --microbatches 60 schedules/1f1b.dps", cases[i].environment, cases[i].option);
        char *written = run("%s; dpc --emit=text %s --microbatches 60 schedules/1f1b.dps | cat", cases[i].environment,
                            cases[i].option);
        assert_in_range(longest_line(shown), cases[i].least, cases[i].most);
        assert_string_equal(shown, written);
        free(shown);
        free(written);
    }
}

/* The output of dpc show on a terminal of 200 columns, with NO_COLOR set to `no_colour`. */
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

/* Removes carriage returns and escape sequences that end with m; returns the number of these sequences. */
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

TEST(test_colours)
{
    char *plain = on_terminal("1"), *coloured = on_terminal("");
    assert_int_equal(strip_styles(plain), 0);
    assert_true(strip_styles(coloured) >= 2 * 8);
    for (int r = 0; r < 2; r++) {
        const char *const rank = r ? "r1  " : "r0  ";
        char *one = passes_of(plain, rank), *other = passes_of(coloured, rank);
        assert_true(strlen(one) > 8);
        assert_string_equal(one, other);
        free(one);
        free(other);
    }
    free(plain);
    free(coloured);
}

int main(void) { return test_program("text", NULL, NULL); }
