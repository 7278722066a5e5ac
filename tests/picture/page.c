/* The page of --emit=html: its data are the schedule's passes, it loads nothing, and it runs, where there is a Chromium. */
#include "tests/picture/json.h"

static const char begin[] = "<script type=\"application/json\" id=\"timeline\">";

/* One list of numbers of a rank; returns how many there are. */
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

enum { PASSES_MAX = 4096, RANKS_MAX = 16 };

typedef struct Rank {
    char kinds[PASSES_MAX];
    uint32_t count;
    double microbatch[PASSES_MAX], chunk[PASSES_MAX], start[PASSES_MAX], end[PASSES_MAX], line[PASSES_MAX], pair[PASSES_MAX],
        from[PASSES_MAX], at[PASSES_MAX];
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
        double *const lists[] = {read->microbatch, read->chunk, read->start, read->end, read->line, read->pair, read->from, read->at};
        static const char *const names[] = {"microbatch", "chunk", "start", "end", "line", "pair", "from", "at"};
        for (int i = 0; i < 8; i++)
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

/* What the data say, in the form of --emit=csv. */
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
            fprintf(stream, "%g%c%g%s", rank->stage_of[chunk], rank->kinds[i], rank->microbatch[i], rank->pair[i] == 2 ? ")OVERLAP_F_B" : "");
        }
        putc('\n', stream);
    }
    fclose(stream);
    return order;
}

static double whole_start(const Rank *rank, uint32_t i) { return rank->start[rank->pair[i] == 2 ? i - 1 : i]; }
static double whole_end(const Rank *rank, uint32_t i) { return rank->end[rank->pair[i] == 1 ? i + 1 : i]; }

/* What a pass waits for is the pass of the neighbouring stage, of the same pipe and microbatch, and has ended before. */
static void check_needs(int count)
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
            assert_true(whole_end(other, at) <= whole_start(rank, i) + 1e-6);
        }
}

/* From 0 to the makespan without a gap but the latency of messages. */
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

static void test_data(void **state)
{
    (void)state;
    static const double latencies[PICTURED] = {0, 0.1, 0, 0.601, 0, 0, 0.05, 0, 0};
    for (int i = 0; i < PICTURED; i++) {
        char *page = run("dpc --emit=html %s", pictured[i]), *csv = run("dpc --emit=csv %s", pictured[i]);
        assert_null(strstr(page, "http:"));
        assert_null(strstr(page, "https:"));
        assert_null(strstr(page, "src="));
        const char *data = strstr(page, begin);
        assert_non_null(data);
        data += strlen(begin);
        assert_true(strncmp(json_skip(data), "</script>", 9) == 0);
        const int count = read_ranks(data);
        char *order = order_of(count, strchr(csv, ':') != NULL);
        assert_string_equal(order, csv);
        check_needs(count);
        check_critical_path(data, latencies[i]);
        free(page);
        free(csv);
        free(order);
    }
}

/* A source cannot break out of the page. */
static void test_hostile_source(void **state)
{
    (void)state;
    char folder[] = "/tmp/picture.XXXXXX";
    assert_non_null(mkdtemp(folder));
    char *page = run("{ printf '# </script><script>alert(1)</script> \"\\\\ \\001\\n'; cat schedules/1f1b.dps; } > %s/x.dps && "
                     "dpc --emit=html %s/x.dps; rm -r %s", folder, folder, folder);
    const char *data = strstr(page, begin) + strlen(begin);
    assert_true(strncmp(json_skip(data), "</script>", 9) == 0);
    assert_null(strstr(page, "<script>alert"));
    free(page);
}

/* The colour that the page's style gives a name from `style` on; < 0: none. */
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

/* What the page is drawn with it has on light and on dark screens, and there paper and ink change places. */
static void test_light_and_dark(void **state)
{
    (void)state;
    char *page = run("dpc --emit=html schedules/dualpipe.dps");
    const char *light = strstr(page, ":root {"), *dark = strstr(strstr(page, "prefers-color-scheme: dark"), ":root {");
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

static void test_runs_in_chromium(void **state)
{
    (void)state;
    if (system("command -v chromium >/dev/null 2>&1") != 0)
        skip();
    char folder[] = "/tmp/picture.XXXXXX";
    assert_non_null(mkdtemp(folder));
    char *tree = run("dpc --emit=html:%s/x.html schedules/dualpipe.dps && chromium --headless --no-sandbox --disable-gpu "
                     "--user-data-dir=%s/profile --dump-dom 'file://%s/x.html#critical,messages,memory,rank=3,pass=20' 2>%s/err",
                     folder, folder, folder, folder);
    assert_non_null(strstr(tree, "data-passes=\"364\""));
    assert_non_null(strstr(tree, "data-peak=\"9\""));
    assert_non_null(strstr(tree, "dualpipe.dps:")); /* the line of the selected pass */
    free(tree);
    tree = run("dpc --emit=trace:%s/x.json schedules/dualpipe.dps && dpc diff --emit=html:%s/x.html schedules/dualpipe.dps %s/x.json && "
               "chromium --headless --no-sandbox --disable-gpu --user-data-dir=%s/profile --dump-dom 'file://%s/x.html' 2>%s/err",
               folder, folder, folder, folder, folder, folder);
    const char *predicted = strstr(tree, "<h1>dualpipe, predicted"), *measured = strstr(tree, "<h1>dualpipe, measured (step 1)");
    assert_non_null(predicted);
    assert_true(measured > predicted);
    assert_non_null(strstr(tree, "\"unit\":\"ms\""));
    assert_non_null(strstr(tree, "framed: F&amp;B, overlapped"));
    free(tree);
    free(run("rm -rf %s", folder));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_data), cmocka_unit_test(test_hostile_source),
                                       cmocka_unit_test(test_light_and_dark), cmocka_unit_test(test_runs_in_chromium)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
