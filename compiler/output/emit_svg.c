/* The timeline as papers draw it: a row a device, a cell a pass, an F&B as two cells in one frame. Every cell carries what it
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
    LEAST_WIDTH = 560,
    LEAST_UPDATE = 4, /* a U that takes no time */
    MOST_WIDTH = 30000, /* of the time axis: what viewers still open */
    NUMBER_SIZE = 14,
};
static const double cell_width = 28; /* of a mean pass */
static const double digit_width = 0.58 * NUMBER_SIZE;

static const char *const pass_names[] = {[ACTION_F] = "forward", [ACTION_B] = "backward", [ACTION_I] = "backward for input",
                                         [ACTION_W] = "backward for weights", [ACTION_U] = "update of weights"};

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
    double scale; /* pixels of a unit of time */
    double width; /* of the time axis */
    uint32_t variants;
    bool kinds[ACTION_U + 1]; /* those that occur */
    bool pairs;
} Drawing;

static double x_of(const Drawing *drawing, double time) { return MARGIN + LABELS_WIDTH + time * drawing->scale; }

static double y_of(uint32_t rank) { return MARGIN + TITLE_HEIGHT + (double)rank * (ROW_HEIGHT + ROW_GAP); }

static void measure(Drawing *drawing)
{
    uint64_t passes = 0;
    double busy = 0;
    for (uint32_t r = 0; r < drawing->picture->schedule->ranks; r++) {
        Cell cell;
        for (uint32_t i = 0; picture_next(drawing->picture, r, &i, &cell);) {
            passes += cell.second ? 2 : 1;
            busy += cell.end - cell.start;
            drawing->kinds[cell.first->kind] = true;
            if (cell.second)
                drawing->kinds[cell.second->kind] = drawing->pairs = true;
        }
    }
    const double makespan = drawing->picture->times->makespan;
    if (busy > 0)
        drawing->scale = fmin(cell_width * (double)passes / busy, MOST_WIDTH / makespan);
    drawing->width = fmax(makespan * drawing->scale, LEAST_WIDTH);
    drawing->variants = picture_variants(drawing->picture->schedule);
}

static void put_style(const Drawing *drawing)
{
    fprintf(drawing->stream,
            "<style>\n"
            "text{font-family:Helvetica,Arial,'Liberation Sans',sans-serif;fill:#000}\n"
            ".title{font-size:16px;font-weight:bold}.label,.legend{font-size:13px}.tick{font-size:11px;fill:#333}\n"
            ".number{font-size:%dpx;text-anchor:middle;pointer-events:none}.letter{font-size:10px;text-anchor:middle;pointer-events:none}\n"
            ".pass{stroke:#333;stroke-width:.6}.frame{fill:none;stroke:#000;stroke-width:2;stroke-linejoin:round}\n"
            ".line{stroke:#999;stroke-width:.8}\n",
            NUMBER_SIZE);
    for (uint8_t kind = 0; kind <= ACTION_U; kind++)
        for (uint32_t v = 0; drawing->kinds[kind] && v < drawing->variants; v++) {
            const Colour fill = palette_fill(kind, v, drawing->variants), ink = palette_ink(fill);
            fprintf(drawing->stream, ".%c%u{fill:#%02x%02x%02x}", pass_letter(kind), v, fill.red, fill.green, fill.blue);
            fprintf(drawing->stream, "text.%c%u{fill:#%02x%02x%02x}\n", pass_letter(kind), v, ink.red, ink.green, ink.blue);
        }
    fputs("</style>\n", drawing->stream);
}

static void put_pass(const Drawing *drawing, uint32_t rank, const Action *pass, double start, double end)
{
    const Picture *picture = drawing->picture;
    const bool is_update = pass->kind == ACTION_U;
    const double width = is_update ? fmax((end - start) * drawing->scale, LEAST_UPDATE) : (end - start) * drawing->scale;
    const double x = x_of(drawing, start) - (end > start ? 0 : width / 2), y = y_of(rank);
    const uint32_t variant = picture_variant(picture->schedule, pass);
    const char letter = pass_letter(pass->kind);
    char name[64], number[16];
    action_text(picture->schedule, pass, name, sizeof name);
    const int digits = snprintf(number, sizeof number, "%u", pass->microbatch);
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
    if (width >= digits * digit_width + 1)
        fprintf(drawing->stream, "<text class=\"number %c%u\" x=\"%.2f\" y=\"%g\">%s</text><text class=\"letter %c%u\" x=\"%.2f\" y=\"%g\">%c</text>",
                letter, variant, x + width / 2, y + 16, number, letter, variant, x + width / 2, y + 28, letter);
    putc('\n', drawing->stream);
}

static void put_rank(const Drawing *drawing, uint32_t rank)
{
    FILE *stream = drawing->stream;
    const double y = y_of(rank);
    fprintf(stream, "<text class=\"label\" x=\"%d\" y=\"%g\">Device %u</text>\n<g class=\"rank\" data-rank=\"%u\">\n", MARGIN, y + 21,
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

/* 1, 2 or 5 times a power of ten: ticks about every 110 pixels. */
static double tick_step(double scale)
{
    const double least = 110 / scale, power = pow(10, floor(log10(least)));
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

static void put_legend(const Drawing *drawing, double y)
{
    FILE *stream = drawing->stream;
    double x = x_of(drawing, 0);
    const uint32_t shown = drawing->variants < 4 ? drawing->variants : 4;
    for (uint8_t kind = 0; kind <= ACTION_U; kind++) {
        if (!drawing->kinds[kind])
            continue;
        for (uint32_t v = 0; v < shown; v++, x += SWATCH_WIDTH) {
            const uint32_t variant = shown > 1 ? v * (drawing->variants - 1) / (shown - 1) : 0;
            fprintf(stream, "<rect class=\"pass %c%u\" x=\"%.1f\" y=\"%g\" width=\"%d\" height=\"18\"/>"
                            "<text class=\"letter %c%u\" x=\"%.1f\" y=\"%g\">%c</text>",
                    pass_letter(kind), variant, x, y, SWATCH_WIDTH, pass_letter(kind), variant, x + SWATCH_WIDTH / 2.0, y + 13,
                    pass_letter(kind));
        }
        fprintf(stream, "<text class=\"legend\" x=\"%.1f\" y=\"%g\">%s</text>\n", x + 6, y + 14, pass_names[kind]);
        x += 6 + 6.6 * (double)strlen(pass_names[kind]) + 22;
    }
    if (drawing->pairs)
        fprintf(stream, "<rect class=\"F0\" x=\"%.1f\" y=\"%g\" width=\"%d\" height=\"18\"/><rect class=\"%c0\" x=\"%.1f\" y=\"%g\" "
                        "width=\"%d\" height=\"18\"/><rect class=\"frame\" x=\"%.1f\" y=\"%g\" width=\"%d\" height=\"18\"/>"
                        "<text class=\"legend\" x=\"%.1f\" y=\"%g\">overlapped forward &amp; backward</text>\n",
                x, y, SWATCH_WIDTH, pass_letter(drawing->kinds[ACTION_B] ? ACTION_B : ACTION_I), x + SWATCH_WIDTH, y, SWATCH_WIDTH, x, y,
                2 * SWATCH_WIDTH, x + 2 * SWATCH_WIDTH + 6, y + 14);
    if (drawing->variants == 1)
        return;
    const Schedule *schedule = drawing->picture->schedule;
    fprintf(stream, "<text class=\"legend\" x=\"%.1f\" y=\"%g\">%s, light to dark:", x_of(drawing, 0), y + LEGEND_HEIGHT + 14,
            schedule->pipe_count > 1 ? "pipes" : "chunks");
    for (uint32_t v = 0; v < drawing->variants; v++) {
        if (schedule->pipe_count > 1) {
            fputs(v ? ", " : " ", stream);
            put_text(schedule->pipes[v].name, stream);
        } else {
            fprintf(stream, "%s%u", v ? ", " : " ", v);
        }
    }
    fputs("</text>\n", stream);
}

void emit_svg(const Picture *picture, FILE *stream)
{
    const Schedule *schedule = picture->schedule;
    Drawing drawing = {.picture = picture, .stream = stream};
    measure(&drawing);
    const double bottom = y_of(schedule->ranks);
    const double width = 2 * MARGIN + LABELS_WIDTH + drawing.width, height = bottom + AXIS_HEIGHT + (drawing.variants > 1 ? 2 : 1) * LEGEND_HEIGHT + MARGIN;
    fprintf(stream,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" viewBox=\"0 0 %.0f %.0f\" role=\"img\">\n"
            "<title>",
            width, height, width, height);
    put_text(schedule->name, stream);
    fputs("</title>\n", stream);
    put_style(&drawing);
    fprintf(stream, "<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n<text class=\"title\" x=\"%d\" y=\"%d\">", MARGIN, MARGIN + 16);
    put_text(schedule->name, stream);
    fprintf(stream, ": %u ranks, %u microbatches; makespan %g, bubble %.1f %%</text>\n", schedule->ranks, schedule->microbatches,
            picture->times->makespan, 100 * timeline_bubble(schedule, picture->times).rate);
    for (uint32_t r = 0; r < schedule->ranks; r++)
        put_rank(&drawing, r);
    put_axis(&drawing, bottom + 4);
    put_legend(&drawing, bottom + AXIS_HEIGHT);
    fputs("</svg>\n", stream);
}
