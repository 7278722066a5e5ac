/* The cells of the SVG are the passes of the schedule, in its order and at their times. */
#include "tests/picture/run.h"

#include <math.h>

static double attribute(const char *tag, const char *name)
{
    char wanted[64], alone[512]; /* a sanitizer's strstr reads the whole text, so a tag is copied first */
    snprintf(wanted, sizeof wanted, " %s=\"", name);
    snprintf(alone, sizeof alone, "%.*s", (int)strcspn(tag, ">"), tag);
    const char *found = strstr(alone, wanted);
    assert_non_null(found);
    return strtod(found + strlen(wanted), NULL);
}

static bool is_tag(const char *tag, const char *begin) { return strncmp(tag, begin, strlen(begin)) == 0; }

typedef struct Reading {
    FILE *order; /* the order that is read from the picture is written here, in the form of --emit=csv */
    bool in_pair, first_cell, first_of_pair;
    double edge; /* right edge of the last cell, in pixels */
    double pair_left, pair_right;
    double scale; /* pixels per unit of time, from the first cell */
    double left;  /* x of time 0 */
    double last_end;
} Reading;

static void read_cell(Reading *reading, const char *tag)
{
    const double x = attribute(tag, "x"), width = attribute(tag, "width");
    const double start = attribute(tag, "data-start"), end = attribute(tag, "data-end");
    if (reading->scale == 0) {
        reading->scale = width / (end - start);
        reading->left = x - start * reading->scale;
    }
    assert_true(fabs(x - reading->left - start * reading->scale) < 1 + 1e-3 * x);
    assert_true(fabs(width - (end - start) * reading->scale) < 1);
    assert_true(x > reading->edge - 0.02);
    reading->edge = x + width;
    if (reading->in_pair && reading->first_of_pair)
        reading->pair_left = x;
    reading->pair_right = x + width;
    reading->last_end = end > reading->last_end ? end : reading->last_end;

    const char *name = strstr(tag, " data-pass=\"") + strlen(" data-pass=\"");
    if (!reading->first_cell && (!reading->in_pair || reading->first_of_pair))
        putc(',', reading->order);
    if (reading->in_pair)
        putc(reading->first_of_pair ? '(' : ';', reading->order);
    fprintf(reading->order, "%.*s", (int)strcspn(name, "\""), name);
    reading->first_cell = reading->first_of_pair = false;
}

static char *read_picture(const char *svg, double *last_end)
{
    char *order = NULL;
    size_t size = 0;
    Reading reading = {.order = open_memstream(&order, &size)};
    bool in_rank = false;
    for (const char *tag = strchr(svg, '<'); tag; tag = strchr(tag + 1, '<')) {
        if (is_tag(tag, "<g class=\"rank\"")) {
            in_rank = reading.first_cell = true;
            reading.edge = 0;
        } else if (is_tag(tag, "<g class=\"pair\"")) {
            reading.in_pair = reading.first_of_pair = true;
        } else if (is_tag(tag, "<rect class=\"frame\"") && in_rank) {
            assert_true(fabs(attribute(tag, "x") - reading.pair_left) < 0.02);
            assert_true(fabs(attribute(tag, "x") + attribute(tag, "width") - reading.pair_right) < 0.02);
        } else if (is_tag(tag, "<rect class=\"pass") && in_rank) {
            read_cell(&reading, tag);
        } else if (is_tag(tag, "</g>")) {
            fputs(reading.in_pair ? ")OVERLAP_F_B" : "\n", reading.order);
            in_rank = reading.in_pair;
            reading.in_pair = false;
        }
    }
    fclose(reading.order);
    *last_end = reading.last_end;
    return order;
}

TEST(test_cells_are_passes)
{
    for (int i = 0; i < PICTURED; i++) {
        char *svg = run("dpc --emit=svg %s", pictured[i]), *csv = run("dpc --emit=csv %s", pictured[i]);
        char *stats = run("dpc --emit=stats %s", pictured[i]);
        double last_end;
        char *order = read_picture(svg, &last_end);
        assert_string_equal(order, csv);
        assert_true(fabs(last_end - strtod(strstr(stats, "\"makespan\": ") + 12, NULL)) < 1e-9 * last_end);
        free(svg);
        free(csv);
        free(stats);
        free(order);
    }
}

/* Every tag is closed in order, and text has no bare & or <: the basic rules of XML. */
static void check_well_formed(const char *xml)
{
    char open[16][16];
    int depth = 0;
    for (const char *c = xml; *c; c++) {
        if (*c == '&')
            assert_true(is_tag(c, "&amp;") || is_tag(c, "&lt;") || is_tag(c, "&gt;") || is_tag(c, "&quot;"));
        if (*c != '<')
            continue;
        const bool closes = c[1] == '/';
        const char *name = c + 1 + closes, *end = strchr(c, '>');
        assert_non_null(end);
        const size_t length = strcspn(name, " >/\n");
        assert_true(length > 0 && length < sizeof *open);
        if (closes) {
            assert_true(depth > 0 && strlen(open[depth - 1]) == length && strncmp(open[depth - 1], name, length) == 0);
            depth--;
        } else if (end[-1] != '/') {
            assert_true(depth < 16);
            snprintf(open[depth++], sizeof *open, "%.*s", (int)length, name);
        }
    }
    assert_int_equal(depth, 0);
}

TEST(test_well_formed)
{
    char folder[] = "/tmp/picture.XXXXXX";
    assert_non_null(mkdtemp(folder));
    char *svg =
        run("dpc --emit=csv schedules/dualpipe.dps > '%s/a&b<\"c>.csv' && dpc --emit=svg '%s/a&b<\"c>.csv'; rm -r %s",
            folder, folder, folder);
    check_well_formed(svg);
    assert_non_null(strstr(svg, "a&amp;b&lt;&quot;c&gt;"));
    free(svg);
}

/* Numbers fit into their cells in a font with wide digits (DejaVu Sans: 0.64 of the font size), the title and the
   legend into the picture, and the labels of ranks do not overlap. Returns how many cells have a number. */
static int check_texts(const char *svg)
{
    const double right = attribute(svg, "width");
    double cell_left = INFINITY, cell_right = 0, label = -1;
    int numbers = 0;
    for (const char *tag = strchr(svg, '<'); tag; tag = strchr(tag + 1, '<')) {
        if (is_tag(tag, "<rect class=\"pass")) {
            cell_left = attribute(tag, "x");
            cell_right = cell_left + attribute(tag, "width");
        }
        if (!is_tag(tag, "<text"))
            continue;
        const double x = attribute(tag, "x"), length = (double)strcspn(strchr(tag, '>') + 1, "<");
        if (is_tag(tag, "<text class=\"number")) {
            const double half = length * 0.64 * attribute(tag, "font-size") / 2;
            assert_true(x - half > cell_left + 1 && x + half < cell_right - 1);
            numbers++;
        } else if (is_tag(tag, "<text class=\"title") || is_tag(tag, "<text class=\"legend")) {
            assert_true(x + length * (is_tag(tag, "<text class=\"title") ? 0.6 * 16 : 0.55 * 13) < right);
        } else if (is_tag(tag, "<text class=\"label\"") && x < cell_left) {
            assert_true(attribute(tag, "y") > label + 13); /* labels do not overlap */
            label = attribute(tag, "y");
        }
    }
    return numbers;
}

TEST(test_texts_fit)
{
    static const char *const sizes[] = {"", "--ranks 2 --microbatches 4", "--ranks 4 --microbatches 24"};
    for (int i = 0; i < PICTURED; i++)
        for (int s = 0; s < 3; s++) {
            char *svg = run("dpc --emit=svg %s %s", pictured[i], sizes[s]);
            assert_true(check_texts(svg) > 0);
            free(svg);
        }
    char *svg = run("sed 's/^schedule .*/schedule a-name-that-is-much-longer-than-what-there-is-to-be-seen-under-it;/' "
                    "schedules/1f1b.dps > /tmp/picture.$$.dps; "
                    "dpc --emit=svg --ranks 1 --microbatches 1 /tmp/picture.$$.dps; rm /tmp/picture.$$.dps");
    assert_true(check_texts(svg) > 0);
    free(svg);
}

/* A large picture has the size of a figure and no numbers. Its frames are thin: thick ones around all pairs would make
   it black. */
TEST(test_large)
{
    for (int i = 0; i < PICTURED; i++) {
        char *svg = run("dpc --emit=svg %s --ranks 48 --microbatches 192", pictured[i]);
        check_well_formed(svg);
        assert_int_equal(check_texts(svg), 0);
        assert_true(attribute(svg, "width") < 2600 && attribute(svg, "height") < 1000);
        const char *frame = strstr(svg, ".frame{");
        assert_true(strtod(strstr(frame, "stroke-width:") + 13, NULL) < 1);
        free(svg);
    }
}

/* No rectangle is beyond the right or the lower edge of the picture, and no text is below it. */
static void check_inside(const char *svg)
{
    const double right = attribute(svg, "width"), bottom = attribute(svg, "height");
    for (const char *tag = strstr(svg, "</style>"); tag; tag = strchr(tag + 1, '<')) {
        if (is_tag(tag, "<rect class"))
            assert_true(attribute(tag, "x") + attribute(tag, "width") < right &&
                        attribute(tag, "y") + attribute(tag, "height") < bottom);
        if (is_tag(tag, "<text"))
            assert_true(attribute(tag, "y") < bottom);
    }
}

/* --width is the width in pixels; the passes are the same. */
TEST(test_width)
{
    static const int widths[] = {400, 700, 1200, 5000};
    for (int i = 0; i < PICTURED; i++) {
        char *csv = run("dpc --emit=csv %s", pictured[i]);
        for (size_t w = 0; w < sizeof widths / sizeof *widths; w++) {
            char *svg = run("dpc --emit=svg --width %d %s", widths[w], pictured[i]);
            double last_end;
            check_well_formed(svg);
            check_inside(svg);
            assert_true(attribute(svg, "width") == widths[w]);
            assert_int_equal(check_texts(svg) > 0, strstr(svg, "numbers: microbatches") != NULL);
            assert_true(widths[w] < 5000 || strstr(svg, "numbers: microbatches"));
            char *order = read_picture(svg, &last_end);
            assert_string_equal(order, csv);
            free(order);
            free(svg);
        }
        free(csv);
    }
    free(run("dpc --emit=trace --cost unit=1e-3 schedules/dualpipe.dps > /tmp/picture.$$.json && "
             "dpc diff --emit=svg --width 500 schedules/dualpipe.dps /tmp/picture.$$.json | grep -q '^<svg [^>]* "
             "width=\"500\"'; "
             "code=$?; rm /tmp/picture.$$.json; exit $code"));
}

static uint32_t count_of(const char *text, const char *part)
{
    uint32_t count = 0;
    for (const char *at = strstr(text, part); at; at = strstr(at + 1, part))
        count++;
    return count;
}

/* dpc diff draws every pass twice, predicted and measured, over one time axis that is long enough for both, and gives
   the error of the prediction for each rank. */
TEST(test_two_timelines)
{
    static const char *const costs[] = {"F=1,I=1.1,W=0.7,FB=2.5,unit=1e-3", "F=1.5,I=1,W=1,unit=1e-3"};
    char folder[] = "/tmp/picture.XXXXXX";
    assert_non_null(mkdtemp(folder));
    for (int i = 0; i < PICTURED; i++)
        for (int measured = 0; measured < 2; measured++) {
            char *alone = run("dpc --emit=svg %s", pictured[i]);
            char *both = run("dpc --emit=trace:%s/x.json --cost %s %s && dpc diff --emit=svg --cost %s %s %s/x.json",
                             folder, costs[measured], pictured[i], costs[!measured], pictured[i], folder);
            check_well_formed(both);
            assert_true(check_texts(both) > 0);
            assert_int_equal(count_of(both, "data-pass="), 2 * count_of(alone, "data-pass="));
            assert_int_equal(count_of(both, "data-error="), count_of(alone, "class=\"rank\""));
            const double right = attribute(both, "width");
            for (const char *pass = strstr(both, "<rect class=\"pass"); pass;
                 pass = strstr(pass + 1, "<rect class=\"pass"))
                assert_true(attribute(pass, "x") + attribute(pass, "width") < right);
            free(alone);
            free(both);
        }
    free(run("rm -r %s", folder));
}

/* Every picture has one shade of F for each chunk of the rank that has most chunks. */
TEST(test_chunks_have_shades)
{
    for (int i = 0; i < PICTURED; i++) {
        char *svg = run("dpc --emit=svg %s", pictured[i]), *placed = run("dpc --dump=schedule %s", pictured[i]);
        uint32_t chunks = 0, shades = 0;
        for (const char *chunk = strstr(placed, "  chunk "); chunk; chunk = strstr(chunk + 1, "  chunk ")) {
            const uint32_t number = (uint32_t)strtoul(chunk + 8, NULL, 10);
            chunks = number >= chunks ? number + 1 : chunks;
        }
        char class[64];
        for (; snprintf(class, sizeof class, "<rect class=\"pass F%u\"", shades),
               strstr(strstr(svg, "<g class=\"rank\""), class);
             shades++)
            continue;
        assert_int_equal(shades, chunks);
        free(svg);
        free(placed);
    }
}

/* An update that takes no time is drawn as a bar that nothing covers. */
TEST(test_updates_are_seen)
{
    char *svg = run("dpc --emit=svg schedules/pipedream-rr.dps");
    uint32_t updates = 0;
    double edge = 0;
    for (const char *tag = strchr(svg, '<'); tag; tag = strchr(tag + 1, '<')) {
        if (is_tag(tag, "<g class=\"rank\""))
            edge = 0;
        if (!is_tag(tag, "<rect class=\"pass") || !strstr(tag, "data-pass") ||
            strstr(tag, "data-pass") > strchr(tag, '>'))
            continue;
        const bool is_update = is_tag(tag, "<rect class=\"pass U");
        /* an update may cover the pass before it: it is later in the file, so it is drawn above */
        assert_true(is_update || attribute(tag, "x") > edge - 0.02);
        edge = attribute(tag, "x") + attribute(tag, "width");
        updates += is_update;
    }
    assert_int_equal(updates, 4 + 4 + 8 + 8);
    free(svg);
}

int main(void) { return test_program("svg", NULL, NULL); }
