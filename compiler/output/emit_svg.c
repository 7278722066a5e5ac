/* The timeline as papers draw it: a row a rank, a cell a pass, an F&B as two cells in one frame. Every cell carries what it
   shows as data-pass, data-start and data-end, for programs that read the picture. */

#include "compiler/output/emit.h"

#include <math.h>
#include <string.h>

/* In pixels; a figure of a paper is this scaled to the width of its page. */
enum {
    MARGIN = 12,
    TITLE_HEIGHT = 34,
    LABELS_WIDTH = 76,
    ROW_HEIGHT = 32,
    ROW_GAP = 3,
    AXIS_HEIGHT = 36,
    LEGEND_HEIGHT = 26,
    SWATCH_WIDTH = 20,
    LEAST_UPDATE = 4,   /* a U that takes no time */
    MOST_WIDTH = 30000, /* of the time axis: what viewers still open */
    NUMBER_SIZE = 14,
    LEAST_NUMBER = 8,
    TITLE_SIZE = 16,
    LEGEND_SIZE = 13,
};
static const double cell_width = 28;  /* of a mean pass; a small picture has them up to twice as wide */
static const double tick_width = 70;  /* at least, from tick to tick */
static const double digit_width = 0.64, text_width = 0.56, bold_width = 0.62; /* of a font's size: a wide font's */

static const char *const pass_names[] = {[ACTION_F] = "forward", [ACTION_B] = "backward", [ACTION_I] = "backward for input",
                                         [ACTION_W] = "backward for weights", [ACTION_U] = "update of weights"};
static const char pair_name[] = "overlapped forward & backward";

static void put_text(const char *text, FILE *stream)
{
    for (const char *c = text; *c; c++)
        switch (*c) {
        case '&': fputs("&amp;", stream); break;
        case '<': fputs("&lt;", stream); break;
        case '>': fputs("&gt;", stream); break;
        case '"': fputs("&quot;", stream); break;
        default: putc((unsigned char)*c < 0x20 ? ' ' : *c, stream); break;
        }
}

typedef struct Drawing {
    const Picture *picture;
    FILE *stream;
    double scale;     /* pixels of a unit of time */
    double width;     /* of the time axis, or what stands above and below it */
    uint32_t digits;  /* of the largest number */
    uint32_t variants;
    bool kinds[ACTION_U + 1]; /* those that occur */
    bool pairs;
    char *title, *words; /* words: the last line of the legend */
} Drawing;

static double x_of(const Drawing *drawing, double time) { return MARGIN + LABELS_WIDTH + time * drawing->scale; }

static double y_of(uint32_t rank) { return MARGIN + TITLE_HEIGHT + (double)rank * (ROW_HEIGHT + ROW_GAP); }

static uint32_t digits_of(uint32_t number) { return number < 10 ? 1 : 1 + digits_of(number / 10); }

static void count_pass(Drawing *drawing, const Action *pass)
{
    const uint32_t digits = digits_of(pass->microbatch);
    drawing->kinds[pass->kind] = true;
    drawing->digits = digits > drawing->digits ? digits : drawing->digits;
}

static char *title_of(const Picture *picture, Arena *arena)
{
    const Schedule *schedule = picture->schedule;
    return arena_format(arena, "%s: %u ranks, %u microbatches; makespan %g, bubble %.1f %%", schedule->name, schedule->ranks,
                        schedule->microbatches, picture->times->makespan, 100 * timeline_bubble(schedule, picture->times).rate);
}

static char *words_of(const Drawing *drawing, Arena *arena)
{
    const Schedule *schedule = drawing->picture->schedule;
    char *words = arena_format(arena, "numbers: microbatches%s", drawing->kinds[ACTION_U] ? ", of an update the version that it makes" : "");
    if (schedule->pipe_count > 1)
        for (uint32_t p = 0; p < schedule->pipe_count; p++)
            words = arena_format(arena, "%s%s %s", words, p ? "," : "; pipes, light to dark:", schedule->pipes[p].name);
    else if (drawing->variants > 1)
        words = arena_format(arena, "%s; chunks, light to dark: 0 %s %u", words, drawing->variants > 2 ? "to" : "and", drawing->variants - 1);
    return words;
}

static void measure(Drawing *drawing, Arena *arena)
{
    uint64_t passes = 0;
    double busy = 0;
    for (uint32_t r = 0; r < drawing->picture->schedule->ranks; r++) {
        Cell cell;
        for (uint32_t i = 0; picture_next(drawing->picture, r, &i, &cell);) {
            passes += cell.second ? 2 : 1;
            busy += cell.end - cell.start;
            count_pass(drawing, cell.first);
            if (cell.second) {
                count_pass(drawing, cell.second);
                drawing->pairs = true;
            }
        }
    }
    drawing->variants = picture_variants(drawing->picture->schedule);
    drawing->title = title_of(drawing->picture, arena);
    drawing->words = words_of(drawing, arena);
    const double title = bold_width * TITLE_SIZE * (double)strlen(drawing->title) - LABELS_WIDTH;
    const double makespan = drawing->picture->times->makespan;
    if (busy > 0) {
        const double usual = cell_width * (double)passes / busy;
        drawing->scale = fmin(fmax(usual, fmin(2 * usual, title / makespan)), MOST_WIDTH / makespan);
    }
    drawing->width = fmax(fmax(makespan * drawing->scale, title), text_width * LEGEND_SIZE * (double)strlen(drawing->words));
}

static void put_style(const Drawing *drawing)
{
    fprintf(drawing->stream,
            "<style>\n"
            "text{font-family:Helvetica,Arial,'Liberation Sans',sans-serif;fill:#000}\n"
            ".title{font-size:%dpx;font-weight:bold}.label,.legend{font-size:%dpx}.tick{font-size:11px;fill:#333}\n"
            ".number{text-anchor:middle;pointer-events:none}.letter{font-size:10px;text-anchor:middle;pointer-events:none}\n"
            ".pass{stroke:#333;stroke-width:.6}.frame{fill:none;stroke:#000;stroke-width:2;stroke-linejoin:round}\n"
            ".line{stroke:#999;stroke-width:.8}\n",
            TITLE_SIZE, LEGEND_SIZE);
    for (uint8_t kind = 0; kind <= ACTION_U; kind++)
        for (uint32_t v = 0; drawing->kinds[kind] && v < drawing->variants; v++) {
            const Colour fill = palette_fill(kind, v, drawing->variants), ink = palette_ink(fill);
            fprintf(drawing->stream, ".%c%u{fill:#%02x%02x%02x}", pass_letter(kind), v, fill.red, fill.green, fill.blue);
            fprintf(drawing->stream, "text.%c%u{fill:#%02x%02x%02x}\n", pass_letter(kind), v, ink.red, ink.green, ink.blue);
        }
    fputs("</style>\n", drawing->stream);
}

/* Cells of the same width have numbers of the same size; 0: none fits. */
static int number_size(const Drawing *drawing, double width)
{
    const int size = (int)fmin((width - 3) / (digit_width * drawing->digits), NUMBER_SIZE);
    return size < LEAST_NUMBER ? 0 : size;
}

static void put_pass(const Drawing *drawing, uint32_t rank, const Action *pass, double start, double end)
{
    const Picture *picture = drawing->picture;
    const bool is_update = pass->kind == ACTION_U;
    const double width = is_update ? fmax((end - start) * drawing->scale, LEAST_UPDATE) : (end - start) * drawing->scale;
    const double x = x_of(drawing, start) - (end > start ? 0 : width / 2), y = y_of(rank);
    const uint32_t variant = picture_variant(picture->schedule, pass);
    const char letter = pass_letter(pass->kind);
    char name[64];
    action_text(picture->schedule, pass, name, sizeof name);
    fprintf(drawing->stream,
            "<rect class=\"pass %c%u\" x=\"%.2f\" y=\"%g\" width=\"%.2f\" height=\"%d\" data-pass=\"%s\" data-start=\"%.15g\" "
            "data-end=\"%.15g\"><title>%s %s %u, stage %u",
            letter, variant, x, y, width, ROW_HEIGHT, name, start, end, pass_names[pass->kind],
            is_update ? "to version" : "of microbatch", pass->microbatch, pass->stage);
    if (picture->schedule->pipe_count > 1) {
        fputs(" of pipe ", drawing->stream);
        put_text(picture->schedule->pipes[pass->pipe].name, drawing->stream);
    }
    fprintf(drawing->stream, "; %g to %g; line %u</title></rect>", start, end, source_line(picture->source, pass->span.begin));
    const int size = number_size(drawing, width);
    if (size)
        fprintf(drawing->stream, "<text class=\"number %c%u\" font-size=\"%d\" x=\"%.2f\" y=\"%g\">%u</text>"
                                 "<text class=\"letter %c%u\" x=\"%.2f\" y=\"%g\">%c</text>",
                letter, variant, size, x + width / 2, y + 16, pass->microbatch, letter, variant, x + width / 2, y + 28, letter);
    putc('\n', drawing->stream);
}

static void put_rank(const Drawing *drawing, uint32_t rank)
{
    FILE *stream = drawing->stream;
    const double y = y_of(rank);
    fprintf(stream, "<text class=\"label\" x=\"%d\" y=\"%g\">rank %u</text>\n<g class=\"rank\" data-rank=\"%u\">\n", MARGIN, y + 21,
            rank, rank);
    Cell cell;
    for (uint32_t i = 0; picture_next(drawing->picture, rank, &i, &cell);) {
        if (!cell.second) {
            put_pass(drawing, rank, cell.first, cell.start, cell.end);
            continue;
        }
        fputs("<g class=\"pair\">\n", stream);
        put_pass(drawing, rank, cell.first, cell.start, cell.middle);
        put_pass(drawing, rank, cell.second, cell.middle, cell.end);
        fprintf(stream, "<rect class=\"frame\" x=\"%.2f\" y=\"%g\" width=\"%.2f\" height=\"%d\"/>\n</g>\n", x_of(drawing, cell.start), y,
                (cell.end - cell.start) * drawing->scale, ROW_HEIGHT);
    }
    fputs("</g>\n", stream);
}

/* 1, 2 or 5 times a power of ten. */
static double tick_step(double scale)
{
    const double least = tick_width / scale, power = pow(10, floor(log10(least)));
    return power * (least <= power ? 1 : least <= 2 * power ? 2 : least <= 5 * power ? 5 : 10);
}

static void put_axis(const Drawing *drawing, double y)
{
    const double makespan = drawing->picture->times->makespan;
    fprintf(drawing->stream, "<line class=\"line\" x1=\"%.2f\" y1=\"%g\" x2=\"%.2f\" y2=\"%g\"/>\n", x_of(drawing, 0), y,
            x_of(drawing, makespan), y);
    const double step = drawing->scale > 0 ? tick_step(drawing->scale) : 1;
    for (uint32_t i = 0; i * step <= makespan * (1 + 1e-9); i++) {
        const double x = x_of(drawing, i * step);
        fprintf(drawing->stream,
                "<line class=\"line\" x1=\"%.2f\" y1=\"%g\" x2=\"%.2f\" y2=\"%g\"/><text class=\"tick\" text-anchor=\"middle\" "
                "x=\"%.2f\" y=\"%g\">%g</text>\n",
                x, y, x, y + 5, x, y + 17, i * step);
    }
    fprintf(drawing->stream, "<text class=\"tick\" x=\"%d\" y=\"%g\">time</text>\n", MARGIN, y + 17);
}

/* Entries follow each other, and go on in a further line where the one before is full. */
typedef struct Legend {
    const Drawing *drawing;
    FILE *stream; /* NULL: only to count the lines */
    double x, y;  /* of the next entry */
    uint32_t lines;
} Legend;

static void put_entry(Legend *legend, const uint8_t *kinds, const uint32_t *variants, uint32_t swatches, bool frame, const char *name)
{
    const double width = swatches * SWATCH_WIDTH + 6 + text_width * LEGEND_SIZE * (double)strlen(name), left = x_of(legend->drawing, 0);
    if (legend->x > left && legend->x + width > left + legend->drawing->width) {
        legend->x = left;
        legend->y += LEGEND_HEIGHT;
        legend->lines++;
    }
    double x = legend->x;
    const double y = legend->y;
    legend->x += width + 22;
    if (!legend->stream)
        return;
    for (uint32_t i = 0; i < swatches; i++, x += SWATCH_WIDTH)
        fprintf(legend->stream, "<rect class=\"pass %c%u\" x=\"%.1f\" y=\"%g\" width=\"%d\" height=\"18\"/>"
                                "<text class=\"letter %c%u\" x=\"%.1f\" y=\"%g\">%c</text>",
                pass_letter(kinds[i]), variants[i], x, y, SWATCH_WIDTH, pass_letter(kinds[i]), variants[i], x + SWATCH_WIDTH / 2.0, y + 13,
                pass_letter(kinds[i]));
    if (frame)
        fprintf(legend->stream, "<rect class=\"frame\" x=\"%.1f\" y=\"%g\" width=\"%d\" height=\"18\"/>", x - 2 * SWATCH_WIDTH, y,
                2 * SWATCH_WIDTH);
    fprintf(legend->stream, "<text class=\"legend\" x=\"%.1f\" y=\"%g\">", x + 6, y + 14);
    put_text(name, legend->stream);
    fputs("</text>\n", legend->stream);
}

/* Returns the number of lines, [y, y + lines * LEGEND_HEIGHT) high. */
static uint32_t put_legend(const Drawing *drawing, double y, FILE *stream)
{
    Legend legend = {.drawing = drawing, .stream = stream, .x = x_of(drawing, 0), .y = y, .lines = 2};
    const uint32_t shown = drawing->variants < 4 ? drawing->variants : 4;
    uint32_t variants[4] = {0};
    for (uint32_t v = 0; v < shown; v++)
        variants[v] = shown > 1 ? v * (drawing->variants - 1) / (shown - 1) : 0;
    for (uint8_t kind = 0; kind <= ACTION_U; kind++)
        if (drawing->kinds[kind])
            put_entry(&legend, (uint8_t[]){kind, kind, kind, kind}, variants, shown, false, pass_names[kind]);
    const uint8_t backward = drawing->kinds[ACTION_B] ? ACTION_B : ACTION_I;
    if (drawing->pairs)
        put_entry(&legend, (uint8_t[]){ACTION_F, backward}, (uint32_t[]){0, drawing->variants - 1}, 2, true, pair_name);
    if (stream) {
        fprintf(stream, "<text class=\"legend\" x=\"%.1f\" y=\"%g\">", x_of(drawing, 0), legend.y + LEGEND_HEIGHT + 14);
        put_text(drawing->words, stream);
        fputs("</text>\n", stream);
    }
    return legend.lines;
}

void emit_svg(const Picture *picture, Arena *arena, FILE *stream)
{
    const Schedule *schedule = picture->schedule;
    Drawing drawing = {.picture = picture, .stream = stream};
    measure(&drawing, arena);
    const double bottom = y_of(schedule->ranks), width = 2 * MARGIN + LABELS_WIDTH + drawing.width;
    const double height = bottom + AXIS_HEIGHT + put_legend(&drawing, 0, NULL) * LEGEND_HEIGHT + MARGIN;
    fprintf(stream,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" viewBox=\"0 0 %.0f %.0f\" role=\"img\">\n"
            "<title>",
            width, height, width, height);
    put_text(schedule->name, stream);
    fputs("</title>\n", stream);
    put_style(&drawing);
    fprintf(stream, "<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n<text class=\"title\" x=\"%d\" y=\"%d\">", MARGIN, MARGIN + 16);
    put_text(drawing.title, stream);
    fputs("</text>\n", stream);
    for (uint32_t r = 0; r < schedule->ranks; r++)
        put_rank(&drawing, r);
    put_axis(&drawing, bottom + 4);
    put_legend(&drawing, bottom + AXIS_HEIGHT, stream);
    fputs("</svg>\n", stream);
}
