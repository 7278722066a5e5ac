/* The page of --emit=html: its data are the passes of the schedule, it loads nothing, and it runs in Chromium (if
   installed). */
#include "tests/picture/json.h"

#include <math.h>

static const char begin[] = "<script type=\"application/json\" id=\"timeline\">";

/* Reads the list `name` of a rank; returns its length. The test fails if there is no such list or if it has more than
   `most` numbers. */
static uint32_t read_list(const char *rank, const char *name, double *values, uint32_t most)
{
    uint32_t count = 0;
    const char *list = json_member(rank, name);
    assert_non_null(list);
    for (const char *value = json_next(list, NULL); value; value = json_next(list, value)) {
        assert_true(count < most);
        values[count++] = strtod(value, NULL);
    }
    return count;
}

enum { PASSES_MAX = 4096, RANKS_MAX = 16, LISTS = 9 };

typedef struct Rank {
    char kinds[PASSES_MAX];
    uint32_t count;
    double microbatch[PASSES_MAX], chunk[PASSES_MAX], start[PASSES_MAX], end[PASSES_MAX], line[PASSES_MAX],
        pair[PASSES_MAX], from[PASSES_MAX], at[PASSES_MAX], ready[PASSES_MAX];
    double pipe_of[16], stage_of[16];
} Rank;

static Rank ranks[RANKS_MAX];

static int read_ranks(const char *data)
{
    int count = 0;
    const char *list = json_member(data, "rank"), *places = json_member(data, "chunks");
    for (const char *rank = json_next(list, NULL); rank; rank = json_next(list, rank), count++) {
        Rank *read = &ranks[count];
        assert_true(count < RANKS_MAX);
        json_text(rank, "kinds", read->kinds, sizeof read->kinds);
        read->count = (uint32_t)strlen(read->kinds);
        double *const lists[LISTS] = {read->microbatch, read->chunk, read->start, read->end,  read->line,
                                      read->pair,       read->from,  read->at,    read->ready};
        static const char *const names[LISTS] = {"microbatch", "chunk", "start", "end",  "line",
                                                 "pair",       "from",  "at",    "ready"};
        for (int i = 0; i < LISTS; i++)
            assert_int_equal(read_list(rank, names[i], lists[i], PASSES_MAX), read->count);
    }
    int r = 0;
    for (const char *chunks = json_next(places, NULL); chunks; chunks = json_next(places, chunks), r++) {
        int c = 0;
        for (const char *chunk = json_next(chunks, NULL); chunk; chunk = json_next(chunks, chunk), c++) {
            const char *pipe = json_next(chunk, NULL);
            ranks[r].pipe_of[c] = strtod(pipe, NULL);
            ranks[r].stage_of[c] = strtod(json_next(chunk, pipe), NULL);
        }
    }
    assert_int_equal(r, count);
    return count;
}

/* The order of the passes in the page's data, in the form of --emit=csv. */
static char *order_of(int count, bool pipes)
{
    char *order = NULL;
    size_t size = 0;
    FILE *stream = open_memstream(&order, &size);
    for (int r = 0; r < count; r++) {
        const Rank *rank = &ranks[r];
        for (uint32_t i = 0; i < rank->count; i++) {
            const int chunk = (int)rank->chunk[i];
            fputs(rank->pair[i] == 2 ? ";" : i ? "," : "", stream);
            fputs(rank->pair[i] == 1 ? "(" : "", stream);
            if (pipes)
                fprintf(stream, "p%g:", rank->pipe_of[chunk]);
            fprintf(stream, "%g%c%g%s", rank->stage_of[chunk], rank->kinds[i], rank->microbatch[i],
                    rank->pair[i] == 2 ? ")OVERLAP_F_B" : "");
        }
        putc('\n', stream);
    }
    fclose(stream);
    return order;
}

static double whole_start(const Rank *rank, uint32_t i) { return rank->start[rank->pair[i] == 2 ? i - 1 : i]; }
static double whole_end(const Rank *rank, uint32_t i) { return rank->end[rank->pair[i] == 1 ? i + 1 : i]; }

/* The input of a pass comes from a neighbouring stage, for the same pipe and microbatch. It is ready when the pass (or
   F&B) that computes it has ended, plus `latency` if another rank computes it. The pass starts no earlier. Passes
   without such an input are left out. */
static void check_needs(int count, double latency)
{
    for (int r = 0; r < count; r++)
        for (uint32_t i = 0; i < ranks[r].count; i++) {
            const Rank *rank = &ranks[r];
            if (rank->from[i] < 0)
                continue;
            const Rank *other = &ranks[(int)rank->from[i]];
            const uint32_t at = (uint32_t)rank->at[i];
            const int here = (int)rank->chunk[i], there = (int)other->chunk[at];
            assert_true(at < other->count && other->microbatch[at] == rank->microbatch[i]);
            assert_true(other->pipe_of[there] == rank->pipe_of[here]);
            assert_true(other->stage_of[there] == rank->stage_of[here] + (rank->kinds[i] == 'F' ? -1 : 1));
            const double sent = (int)rank->from[i] == r ? 0 : latency,
                         late = rank->ready[i] - whole_end(other, at) - sent;
            assert_true(late > -1e-6 && late < 1e-6);
            assert_true(rank->ready[i] <= whole_start(rank, i) + 1e-6);
        }
}

/* A rank idles before a pass only until the inputs of the pass are there; before an F&B until the last of its inputs
   is. */
static void check_idle(int count)
{
    uint32_t gaps = 0;
    for (int r = 0; r < count; r++) {
        const Rank *rank = &ranks[r];
        for (uint32_t i = 0; i < rank->count; i += rank->pair[i] == 1 ? 2 : 1) {
            const double free = i ? rank->end[i - 1] : 0, start = rank->start[i];
            const double ready = rank->pair[i] == 1 ? fmax(rank->ready[i], rank->ready[i + 1]) : rank->ready[i];
            assert_true(start < free + 1e-6 || fabs(start - ready) < 1e-6);
            gaps += start > free + 1e-6;
        }
    }
    assert_true(gaps > 0);
}

/* The critical path goes from 0 to the makespan, without gaps except the latency of messages. */
static void check_critical_path(const char *data, double latency)
{
    const char *list = json_member(data, "critical");
    double clock = -1;
    int before = -1;
    for (const char *step = json_next(list, NULL); step; step = json_next(list, step)) {
        const char *rank_text = json_next(step, NULL);
        const int r = (int)strtod(rank_text, NULL);
        const uint32_t i = (uint32_t)strtod(json_next(step, rank_text), NULL);
        const double gap = before < 0 ? whole_start(&ranks[r], i) : whole_start(&ranks[r], i) - clock;
        assert_true(gap > -1e-6 && gap < (before >= 0 && before != r ? latency : 0) + 1e-6);
        clock = whole_end(&ranks[r], i);
        before = r;
    }
    const double makespan = json_number(data, "makespan");
    assert_true(clock > makespan - 1e-6 && clock < makespan + 1e-6);
}

/* A page that loads nothing: the only http address in it is the name space of SVG, there is no https address, and no
   element has a src. */
static void check_loads_nothing(const char *page)
{
    static const char svg[] = "http://www.w3.org/2000/svg";
    for (const char *address = strstr(page, "http:"); address; address = strstr(address + 1, "http:"))
        assert_true(strncmp(address, svg, strlen(svg)) == 0);
    assert_null(strstr(page, "https:"));
    assert_null(strstr(page, "src="));
}

TEST(test_data)
{
    static const double latencies[PICTURED] = {0, 0.1, 0, 0.601, 0, 0, 0.05, 0, 0};
    for (int i = 0; i < PICTURED; i++) {
        char *page = run("dpc --emit=html %s", pictured[i]), *csv = run("dpc --emit=csv %s", pictured[i]);
        check_loads_nothing(page);
        const char *data = strstr(page, begin);
        assert_non_null(data);
        data += strlen(begin);
        assert_true(strncmp(json_skip(data), "</script>", 9) == 0);
        const int count = read_ranks(data);
        char *order = order_of(count, strchr(csv, ':') != NULL);
        assert_string_equal(order, csv);
        check_needs(count, latencies[i]);
        check_idle(count);
        check_critical_path(data, latencies[i]);
        free(page);
        free(csv);
        free(order);
    }
}

/* A comment in a schedule that looks like HTML stays text in the page. */
TEST(test_hostile_source)
{
    char folder[] = "/tmp/picture.XXXXXX";
    assert_non_null(mkdtemp(folder));
    char *page =
        run("{ printf '# </script><script>alert(1)</script> \"\\\\ \\001\\n'; cat schedules/1f1b.dps; } > %s/x.dps && "
            "dpc --emit=html %s/x.dps; rm -r %s",
            folder, folder, folder);
    const char *data = strstr(page, begin) + strlen(begin);
    assert_true(strncmp(json_skip(data), "</script>", 9) == 0);
    assert_null(strstr(page, "<script>alert"));
    free(page);
}

/* The colour that a CSS rule gives a name: its hexadecimal digits as a number. `style`: the start of the rule. Negative
   if the rule gives none. */
static long colour_of(const char *style, const char *name)
{
    char wanted[32];
    snprintf(wanted, sizeof wanted, " --%s: #", name);
    const char *found = strstr(style, wanted);
    if (!found || found > strchr(style, '}'))
        return -1;
    found += strlen(wanted);
    const size_t digits = strspn(found, "0123456789abcdef");
    const long value = strtol(found, NULL, 16);
    return digits == 6 ? value : digits >= 3 ? (value >> 4 * (digits - 3)) : -1;
}

/* The page has each colour that it uses for light and for dark screens. On light ones the ink is dark and the paper
   white, on dark ones the ink is light and the paper dark. */
TEST(test_light_and_dark)
{
    char *page = run("dpc --emit=html schedules/dualpipe.dps");
    const char *light = strstr(page, ":root {"), *dark = strstr(strstr(page, "prefers-color-scheme: dark"), ":root");
    int names = 0;
    static const char *const uses[] = {"var(--", "theme."};
    for (size_t i = 0; i < sizeof uses / sizeof *uses; i++)
        for (const char *use = strstr(page, uses[i]); use; use = strstr(use + 1, uses[i])) {
            char name[16];
            use += strlen(uses[i]);
            snprintf(name, sizeof name, "%.*s", (int)strspn(use, "abcdefghijklmnopqrstuvwxyz"), use);
            if (colour_of(light, name) < 0 || colour_of(dark, name) < 0)
                fail_msg("no colour %s", name);
            names++;
        }
    assert_true(names > 30);
    assert_true(colour_of(light, "ink") == 0x111 && colour_of(light, "paper") == 0xfff);
    assert_true(colour_of(dark, "ink") == 0xeee && colour_of(dark, "paper") < 0x202020);
    free(page);
}

/* The HTML of the page that the command `make` writes to $F/x.html, after Chromium has run it with the file `script`
   added, and with `hash` after the # of its address. NULL: Chromium is not installed. The caller frees it. */
static char *in_chromium(const char *make, const char *hash, const char *script)
{
    if (system("command -v chromium >/dev/null 2>&1") != 0)
        return NULL;
    char folder[] = "/tmp/picture.XXXXXX";
    assert_non_null(mkdtemp(folder));
    char *tree = run("F=%s; %s && { cat $F/x.html; echo '<script>'; cat %s; echo '</script>'; } > $F/y.html && "
                     "chromium --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --window-size=1500,700 "
                     "--user-data-dir=$F/profile --dump-dom "
                     "\"file://$F/y.html#%s\" 2>$F/err; code=$?; rm -rf $F; exit $code",
                     folder, make, script, hash);
    return tree;
}

TEST(test_runs_in_chromium)
{
    char *tree = in_chromium("dpc --emit=html:$F/x.html schedules/dualpipe.dps",
                             "critical,messages,memory,rank=3,pass=20", "/dev/null");
    if (!tree)
        skip();
    assert_non_null(strstr(tree, "data-passes=\"364\""));
    assert_non_null(strstr(tree, "data-peak=\"9\""));
    assert_non_null(strstr(tree, "dualpipe.dps:")); /* the line of the selected pass */
    free(tree);
    tree = in_chromium("dpc --emit=html:$F/x.html schedules/decode.dps", "memory", "/dev/null");
    assert_non_null(strstr(tree, "data-peak=\"0\"")); /* a forward-only schedule keeps no activations */
    assert_null(strstr(tree, "activations on a rank"));
    free(tree);
    tree = in_chromium("dpc --emit=trace:$F/x.json schedules/dualpipe.dps && "
                       "dpc diff --emit=html:$F/x.html schedules/dualpipe.dps $F/x.json",
                       "", "/dev/null");
    const char *predicted = strstr(tree, "<h1>dualpipe, predicted"),
               *measured = strstr(tree, "<h1>dualpipe, measured (step 1)");
    assert_non_null(predicted);
    assert_true(measured > predicted);
    assert_non_null(strstr(tree, "\"unit\":\"ms\""));
    assert_non_null(strstr(tree, "framed: F&amp;B, overlapped"));
    free(tree);
}

/* Fit shows all of 1024 ranks, also in a low window. */
TEST(test_fits)
{
    char *tree = in_chromium("dpc --ranks 1024 --microbatches 4 --emit=html:$F/x.html schedules/gpipe.dps", "",
                             "tests/picture/fit.js");
    if (!tree)
        skip();
    assert_non_null(strstr(tree, "<pre id=\"said\">all all all all all all row 17</pre>"));
    free(tree);
}

/* The output of page.js for dualpipe. */
static const char said_by_page[] =
    "linked: idle for 5.5 | "
    "rank 0, from 23.5 to 29 | "
    "waits for p1:6F4 of rank 1, which ends at 28.5 | its message arrives at 29, for p1:7F4\n"
    "first: idle for 1.5 | "
    "rank 1, from 0 to 1.5 | "
    "waits for p0:0F0 of rank 0, which ends at 1 | its message arrives at 1.5, for p0:1F0\n"
    "last: idle for 0.5 | rank 1, from 79 to 79.5 | nothing left to do\n"
    "clicked: microbatch 3 of pipe a: 16 passes from 3 to 52.5\n"
    "in the field: 3 0 faint: true false\n"
    "ranks: 8 passes: p0:0F3 p0:1F3 p0:2F3 p0:3F3 p0:4F3 p0:5F3 p0:6F3 p0:7F3 p0:7B3\n"
    "next: microbatch 4 of pipe a: 16 passes from 4 to 59.5\n"
    "before: microbatch 2 of pipe a: 17 passes from 2 to 45.5\n"
    "svg: svg true 8 ranks\n"
    "png: true 255,255,255,255\n"
    "saved: dualpipe.svg true\n"
    "faint numbers: true #111\n"
    "none: true no tip\n"
    "typed: microbatch 7 of pipe a: 19 passes from 20.5 to 74.5\n"
    "home: p0:0F0 | "
    "forward of microbatch 0, stage 0 of pipe a, rank 0 | "
    "from 0 to 1, takes 1 | dualpipe.dps:30: nF0        : 2*(H-h-1);\n"
    "followed: microbatch 0 of pipe a: 19 passes from 0 to 32\n"
    "at: p1:7F3 | "
    "forward of microbatch 3, stage 7 of pipe b, rank 0 | "
    "from 19.5 to 20.5, takes 1 | needs p1:6F3 of rank 1, which ends at 19; its message arrives at 19.5\n"
    "idle: idle for 5.5 | "
    "rank 0, from 23.5 to 29 | "
    "waits for p1:6F4 of rank 1, which ends at 28.5 | its message arrives at 29, for p1:7F4\n"
    "maker: p1:6F4 | "
    "forward of microbatch 4, stage 6 of pipe b, rank 1 | "
    "overlapped with p0:1B0 | from 25.5 to 28.5, takes 3\n"
    "trace: 8 ranks, waits that differ: 0 true";

/* The script page.js points, clicks, types and exports in the page, and writes the results into the page. */
TEST(test_reader)
{
    char *tree = in_chromium("dpc --emit=trace:$F/x.json --cost comm=0.5 schedules/dualpipe.dps && "
                             "dpc --emit=html:$F/x.html --cost comm=0.5 schedules/dualpipe.dps && "
                             "{ echo '<script type=application/json id=trace>'; cat $F/x.json; echo '</script>'; } "
                             ">> $F/x.html",
                             "rank=0,pass=19,idle", "tests/picture/page.js");
    if (!tree)
        skip();
    const char *said = strstr(tree, "<pre id=\"said\">");
    assert_non_null(said);
    said = strchr(said, '>') + 1;
    char text[4096];
    snprintf(text, sizeof text, "%.*s", (int)strcspn(said, "<"), said);
    assert_string_equal(text, said_by_page);
    free(tree);
}

int main(void) { return test_program("page", NULL, NULL); }
