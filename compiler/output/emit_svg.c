/* The timeline as a picture (SVG), as papers draw it: one row per rank, one cell per pass; an F&B is two cells in one
   frame. Every cell has the attributes data-pass, data-start and data-end, for programs that read the picture. A second
   timeline, if there is one, is drawn below the first one over the same time axis. Each of its rows shows how much
   later the rank ends than in the first timeline. */

#include "compiler/output/emit.h"
#include "compiler/output/svg_text.h"

#include "base/counted.h"

#include <math.h>
#include <string.h>

/* Sizes in pixels, also of fonts. A paper scales the figure to the width of its page. */
enum {
    MARGIN = 12,
    TITLE_LINE = 20,
    TITLE_GAP = 14, /* distance from a title to the rows below it */
    LABELS_WIDTH = 76,
    ROW_HEIGHT = 32,
    ROW_GAP = 3,
    AXIS_HEIGHT = 36,
    LEGEND_HEIGHT = 26,
    LEGEND_LINE = 18,
    SWATCH_WIDTH = 20,
    /* Least width of a U. A U that takes no time is a bar whose right edge is at its time, over the end of the pass
       before it. */
    LEAST_UPDATE = 4,
    /* the widest time axis of a picture with numbers, unless the user gives a width; wider timelines are drawn without
       numbers */
    NUMBERED_WIDTH = 4000,
    FIGURE_WIDTH = 2400, /* least width of the time axis of a picture without numbers, unless the user gives a width */
    /* Height of all rows together in a picture without numbers, unless rows would then be lower than LEAST_ROW or
       higher than ROW_HEIGHT. */
    FIGURE_HEIGHT = 760,
    LEAST_ROW = 8,
    /* The widest time axis, as viewers cannot open much wider pictures. A pass of mean duration has LEAST_CELL pixels
       or more, unless the axis would then be wider than this. */
    MOST_WIDTH = 30000,
    LEAST_CELL = 2,
    LABEL_HEIGHT = 15,
    NUMBER_SIZE = 14,
    LEAST_NUMBER = 8,
    MIDDLE_NUMBER = 10,
    LETTER_SIZE = 10,
    TIMELINES_GAP = 16,
    /* width of a column of text to the right of the second timeline: how much later each rank ends than in the first
       one */
    ERROR_WIDTH = 78,
    TITLE_SIZE = 16,
    LEGEND_SIZE = 13,
};
/* Width of a pass of mean duration in a short timeline. It is up to twice this if the title is wider than the
   timeline. */
static const double cell_width = 28;
static const double tick_width = 70; /* least distance between two ticks */
/* estimated width of a character as a share of the font size */
static const double digit_width = 0.64, text_width = 0.56, bold_width = 0.62;

static const char *const pass_names[] = {[ACTION_F] = "forward",
                                         [ACTION_B] = "backward",
                                         [ACTION_I] = "backward for input",
                                         [ACTION_W] = "backward for weights",
                                         [ACTION_U] = "update of weights"};
static const char pair_name[] = "overlapped forward & backward";

typedef struct Drawing {
    const Picture *pictures[2]; /* pictures[1] is NULL if there is one timeline */
    const Picture *picture;     /* the picture that is being measured or drawn */
    FILE *stream;
    double wanted;   /* the width of the picture that the user asked for, in pixels; 0 if none */
    double top;      /* y of the upper edge of rank 0's row */
    double makespan; /* makespan of the longer timeline */
    double shortest; /* time of the shortest pass, without updates and passes that take no time */
    double scale;    /* pixels per unit of time of the costs */
    double cell;     /* width in pixels of a pass of mean duration */
    double row, gap; /* height of a row, and of the gap below it */
    bool numbers;    /* whether cells have numbers and letters */
    double number;   /* largest font size of the number in a cell */
    /* Width in pixels of everything to the right of the rank labels: the time axis and the column of errors, or the
       titles or the legend's last line if one of these is wider. */
    double width;
    uint32_t digits; /* digits of the largest number in a cell */
    uint32_t variants;
    bool kinds[ACTION_U + 1]; /* [kind]: whether the timelines have passes of this kind */
    bool pairs;
    char *titles[2], *words; /* words: the text that ends the legend */
} Drawing;

static double x_of(const Drawing *drawing, double time) { return MARGIN + LABELS_WIDTH + time * drawing->scale; }

static double y_of(const Drawing *drawing, uint32_t rank)
{
    return drawing->top + rank * (drawing->row + drawing->gap);
}

static double errors_width(const Drawing *drawing) { return drawing->pictures[1] ? ERROR_WIDTH : 0; }

static uint32_t digits_of(uint32_t number) { return number < 10 ? 1 : 1 + digits_of(number / 10); }

static void count_pass(Drawing *drawing, const Action *pass, double time)
{
    if (time > 0 && pass->kind != ACTION_U)
        drawing->shortest = fmin(drawing->shortest, time);
    const uint32_t digits = digits_of(pass->microbatch);
    drawing->kinds[pass->kind] = true;
    drawing->digits = digits > drawing->digits ? digits : drawing->digits;
}

/* How much later the time `second` in the second timeline is than the time `first` in the first one, in percent of the
   makespan of the first timeline. */
static double percent_later(const Drawing *drawing, double first, double second)
{
    const double makespan = drawing->pictures[0]->times->makespan;
    return makespan > 0 ? 100 * (second - first) / makespan : 0;
}

static char *title_of(const Drawing *drawing, int number, Arena *arena)
{
    const Picture *picture = drawing->pictures[number];
    const Schedule *schedule = picture->schedule;
    const double makespan = picture->times->makespan,
                 error = percent_later(drawing, drawing->pictures[0]->times->makespan, makespan);
    return arena_format(arena, "%s: %s; makespan %g%s%s%s, bubble %.1f %%", schedule->name,
                        schedule_sizes(schedule).text, makespan, drawing->pictures[1] ? " ms" : "",
                        gap_note(&picture->gap, arena), number ? arena_format(arena, " (error %+.2f %%)", error) : "",
                        100 * timeline_bubble(schedule, picture->times).rate);
}

static char *words_of(const Drawing *drawing, Arena *arena)
{
    const Schedule *schedule = drawing->picture->schedule;
    char *words =
        arena_format(arena, "%sempty: idle",
                     !drawing->numbers          ? ""
                     : drawing->kinds[ACTION_U] ? "numbers: microbatches, of an update the version that it makes; "
                                                : "numbers: microbatches; ");
    const char *const pipes =
        drawing->variants > schedule->pipe_count ? "; chunks of pipes, light to dark:" : "; pipes, light to dark:";
    if (schedule->pipe_count > 1)
        for (uint32_t p = 0; p < schedule->pipe_count; p++)
            words = arena_format(arena, "%s%s %s", words, p ? "," : pipes, schedule->pipes[p].name);
    else if (drawing->variants > 1)
        words = arena_format(arena, "%s; chunks, light to dark: 0 %s %u", words, drawing->variants > 2 ? "to" : "and",
                             drawing->variants - 1);
    if (drawing->pictures[1])
        words = arena_format(arena, "%s; dashed: predicted end of the rank; errors: of the predicted makespan", words);
    return words;
}

/* Adds the number of passes of the current picture and their time to `*passes` and `*busy`. Also notes which kinds
   occur, the shortest pass, and the digits of the largest number. */
static void count_passes(Drawing *drawing, uint64_t *passes, double *busy)
{
    for (uint32_t r = 0; r < drawing->picture->schedule->ranks; r++) {
        Cell cell;
        for (uint32_t i = 0; picture_next(drawing->picture, r, &i, &cell);) {
            *passes += cell.second ? 2 : 1;
            *busy += cell.end - cell.start;
            count_pass(drawing, cell.first, (cell.second ? cell.middle : cell.end) - cell.start);
            if (cell.second) {
                count_pass(drawing, cell.second, cell.end - cell.middle);
                drawing->pairs = true;
            }
        }
    }
}

/* The font size at which the largest number fits into a cell of this width in pixels. */
static double font_of(const Drawing *drawing, double width) { return (width - 3) / (digit_width * drawing->digits); }

static double least_cell(const Drawing *drawing) { return LEAST_NUMBER * digit_width * drawing->digits + 3; }

/* Decides whether cells show numbers. Returns the width in pixels of a pass of mean duration. `mean`: the mean duration
   of a pass; `title`: the width in pixels that the titles need. */
static double cell_of_numbers(Drawing *drawing, double mean, double title)
{
    const double makespan = drawing->makespan, least = least_cell(drawing) * mean / drawing->shortest;
    const double numbered = fmin(cell_width, fmax(least, NUMBERED_WIDTH * mean / makespan));
    drawing->numbers = numbered * makespan <= NUMBERED_WIDTH * mean;
    return drawing->numbers ? fmax(numbered, fmin(2 * numbered, title * mean / makespan))
                            : fmin(fmax(FIGURE_WIDTH * mean / makespan, LEAST_CELL), MOST_WIDTH * mean / makespan);
}

/* Sets the width of cells, and the sizes that depend on it. `mean`: the mean duration of a pass; `title`: the width in
   pixels that the titles need. */
static void scale(Drawing *drawing, double mean, double title)
{
    const uint32_t ranks = drawing->picture->schedule->ranks;
    if (drawing->wanted > 0) {
        drawing->cell = (drawing->width - errors_width(drawing)) * mean / drawing->makespan;
        drawing->numbers = drawing->cell >= least_cell(drawing);
    } else {
        drawing->cell = cell_of_numbers(drawing, mean, title);
    }
    drawing->scale = drawing->cell / mean;
    /* the font size that fits into the narrowest cell, but at least MIDDLE_NUMBER: cells too narrow for that get
       smaller numbers */
    drawing->number = fmin(NUMBER_SIZE, fmax(font_of(drawing, drawing->shortest * drawing->scale), MIDDLE_NUMBER));
    if (!drawing->numbers) {
        const double pitch = fmax(FIGURE_HEIGHT / (double)ranks, LEAST_ROW + 1);
        drawing->gap = pitch < LABEL_HEIGHT ? 1 : ROW_GAP;
        drawing->row = fmin(floor(pitch) - drawing->gap, ROW_HEIGHT);
    }
}

static void measure(Drawing *drawing, Arena *arena)
{
    uint64_t passes = 0;
    double busy = 0, title = 0;
    for (int i = 0; i < 2 && drawing->pictures[i]; i++) {
        drawing->picture = drawing->pictures[i];
        count_passes(drawing, &passes, &busy);
        drawing->makespan = fmax(drawing->makespan, drawing->picture->times->makespan);
        drawing->titles[i] = title_of(drawing, i, arena);
        title = fmax(title, bold_width * TITLE_SIZE * (double)strlen(drawing->titles[i]) - LABELS_WIDTH);
    }
    drawing->variants = picture_variants(drawing->picture->schedule);
    drawing->numbers = true;
    drawing->row = ROW_HEIGHT;
    drawing->gap = ROW_GAP;
    drawing->width = drawing->wanted - 2 * MARGIN - LABELS_WIDTH;
    if (busy > 0)
        scale(drawing, busy / (double)passes, title);
    drawing->words = words_of(drawing, arena);
    if (drawing->wanted > 0)
        return;
    drawing->width = fmax(drawing->makespan * drawing->scale + errors_width(drawing), title);
    drawing->width = fmax(drawing->width, text_width * LEGEND_SIZE * (double)strlen(drawing->words));
}

static void put_style(const Drawing *drawing)
{
    fprintf(
        drawing->stream,
        "<style>\n"
        "text{font-family:Helvetica,Arial,'Liberation Sans',sans-serif;fill:#000}\n"
        ".title{font-size:%dpx;font-weight:bold}.label,.legend{font-size:%dpx}.tick{font-size:11px;fill:#333}\n"
        ".number,.letter{text-anchor:middle;pointer-events:none}\n"
        ".pass{stroke:#333;stroke-width:%.2g}.frame{fill:none;stroke:#000;stroke-width:%.2g;stroke-linejoin:round}\n"
        ".line{stroke:#999;stroke-width:.8}\n",
        TITLE_SIZE, LEGEND_SIZE, fmin(.6, drawing->cell / 20), fmin(2, drawing->cell / 7));
    if (drawing->pictures[1])
        fputs(".halo{stroke:#fff;stroke-width:4}.expected{stroke:#000;stroke-width:2;stroke-dasharray:5 3}\n",
              drawing->stream);
    for (uint8_t kind = 0; kind <= ACTION_U; kind++)
        for (uint32_t v = 0; drawing->kinds[kind] && v < drawing->variants; v++) {
            const Colour fill = palette_fill(kind, v, drawing->variants), ink = palette_ink(fill);
            fprintf(drawing->stream, ".%c%u{fill:#%02x%02x%02x}", action_letter(kind), v, fill.red, fill.green,
                    fill.blue);
            fprintf(drawing->stream, "text.%c%u{fill:#%02x%02x%02x}\n", action_letter(kind), v, ink.red, ink.green,
                    ink.blue);
        }
    fputs("</style>\n", drawing->stream);
}

/* The font size of the number in a cell of this width in pixels; 0: the cell shows no number. */
static int number_size(const Drawing *drawing, double width)
{
    const int size = (int)fmin(font_of(drawing, width), drawing->number);
    return !drawing->numbers || size < LEAST_NUMBER ? 0 : size;
}

static void put_pass(const Drawing *drawing, uint32_t rank, const Action *pass, double start, double end)
{
    const Picture *picture = drawing->picture;
    const bool is_update = pass->kind == ACTION_U;
    const double width =
        is_update ? fmax((end - start) * drawing->scale, LEAST_UPDATE) : (end - start) * drawing->scale;
    const double x = x_of(drawing, start) - (end > start ? 0 : width), y = y_of(drawing, rank);
    const uint32_t variant = picture_variant(picture->schedule, drawing->variants, rank, pass->chunk);
    const char letter = action_letter(pass->kind);
    char name[64];
    action_text(picture->schedule, pass, name, sizeof name);
    fprintf(drawing->stream,
            "<rect class=\"pass %c%u\" x=\"%.2f\" y=\"%g\" width=\"%.2f\" height=\"%g\" data-pass=\"%s\" "
            "data-start=\"%.15g\" "
            "data-end=\"%.15g\"><title>%s %s %u, stage %u",
            letter, variant, x, y, width, drawing->row, name, start, end, pass_names[pass->kind],
            is_update ? "to version" : "of microbatch", pass->microbatch, pass->stage);
    if (picture->schedule->pipe_count > 1) {
        fputs(" of pipe ", drawing->stream);
        svg_put_text(picture->schedule->pipes[pass->pipe].name, strlen(picture->schedule->pipes[pass->pipe].name),
                     drawing->stream);
    }
    fprintf(drawing->stream, "; %g to %g; line %u</title></rect>", start, end,
            source_line(picture->source, pass->span.begin));
    const int size = number_size(drawing, width);
    if (size)
        fprintf(drawing->stream,
                "<text class=\"number %c%u\" font-size=\"%d\" x=\"%.2f\" y=\"%g\">%u</text>"
                "<text class=\"letter %c%u\" font-size=\"%d\" x=\"%.2f\" y=\"%g\">%c</text>",
                letter, variant, size, x + width / 2, y + 16, pass->microbatch, letter, variant,
                size - 1 < LETTER_SIZE ? size - 1 : LETTER_SIZE, x + width / 2, y + 28, letter);
    putc('\n', drawing->stream);
}

static void put_rank(const Drawing *drawing, uint32_t rank)
{
    FILE *stream = drawing->stream;
    const double y = y_of(drawing, rank);
    if (rank % (uint32_t)ceil(LABEL_HEIGHT / (drawing->row + drawing->gap)) == 0)
        fprintf(stream, "<text class=\"label\" x=\"%d\" y=\"%g\">rank %u</text>\n", MARGIN, y + drawing->row / 2 + 5,
                rank);
    fprintf(stream, "<g class=\"rank\" data-rank=\"%u\">\n", rank);
    Cell cell;
    for (uint32_t i = 0; picture_next(drawing->picture, rank, &i, &cell);) {
        if (!cell.second) {
            put_pass(drawing, rank, cell.first, cell.start, cell.end);
            continue;
        }
        fputs("<g class=\"pair\">\n", stream);
        put_pass(drawing, rank, cell.first, cell.start, cell.middle);
        put_pass(drawing, rank, cell.second, cell.middle, cell.end);
        fprintf(stream, "<rect class=\"frame\" x=\"%.2f\" y=\"%g\" width=\"%.2f\" height=\"%g\"/>\n</g>\n",
                x_of(drawing, cell.start), y, (cell.end - cell.start) * drawing->scale, drawing->row);
    }
    fputs("</g>\n", stream);
}

/* In a rank's row of the second timeline, draws a line at the time at which the rank ends in the first timeline, and
   prints how much later it ends in the second one, in percent of the makespan of the first one. */
static void put_error(const Drawing *drawing, uint32_t rank)
{
    double end[2];
    for (int i = 0; i < 2; i++)
        end[i] = timeline_rank(drawing->pictures[i]->schedule, drawing->pictures[i]->times, rank).end;
    const double y = y_of(drawing, rank), x = x_of(drawing, end[0]), error = percent_later(drawing, end[0], end[1]);
    static const char *const lines[] = {"halo", "expected"};
    for (int i = 0; i < 2; i++)
        fprintf(drawing->stream, "<line class=\"%s\" x1=\"%.2f\" y1=\"%g\" x2=\"%.2f\" y2=\"%g\"/>", lines[i], x, y - 1,
                x, y + drawing->row + 1);
    fprintf(drawing->stream, "<text class=\"label\" x=\"%.2f\" y=\"%g\" data-error=\"%.2f\">%+.2f %%</text>\n",
            x_of(drawing, drawing->makespan) + 8, y + drawing->row / 2 + 5, error, error);
}

/* The time between two ticks of the axis: 1, 2 or 5 times a power of ten, so that they are at least tick_width pixels
   apart. `scale`: pixels per unit of time. */
static double tick_step(double scale)
{
    const double least = tick_width / scale, power = pow(10, floor(log10(least)));
    return power * (least <= power ? 1 : least <= 2 * power ? 2 : least <= 5 * power ? 5 : 10);
}

static void put_axis(const Drawing *drawing, double y)
{
    const double makespan = drawing->makespan;
    fprintf(drawing->stream, "<line class=\"line\" x1=\"%.2f\" y1=\"%g\" x2=\"%.2f\" y2=\"%g\"/>\n", x_of(drawing, 0),
            y, x_of(drawing, makespan), y);
    const double step = drawing->scale > 0 ? tick_step(drawing->scale) : 1;
    for (uint32_t i = 0; i * step <= makespan * (1 + 1e-9); i++) {
        const double x = x_of(drawing, i * step);
        fprintf(drawing->stream,
                "<line class=\"line\" x1=\"%.2f\" y1=\"%g\" x2=\"%.2f\" y2=\"%g\"/><text class=\"tick\" "
                "text-anchor=\"middle\" "
                "x=\"%.2f\" y=\"%g\">%g</text>\n",
                x, y, x, y + 5, x, y + 17, i * step);
    }
    fprintf(drawing->stream, "<text class=\"tick\" x=\"%d\" y=\"%g\">time%s</text>\n", MARGIN, y + 17,
            drawing->pictures[1] ? ", ms" : "");
}

/* A legend while it is written: entry after entry, and a new line when a line is full. */
typedef struct Legend {
    const Drawing *drawing;
    FILE *stream; /* NULL: the legend is only measured */
    double x, y;  /* upper left corner of the next entry */
} Legend;

static void put_entry(Legend *legend, const uint8_t *kinds, const uint32_t *variants, uint32_t swatches, bool frame,
                      const char *name)
{
    const double width = swatches * SWATCH_WIDTH + 6 + text_width * LEGEND_SIZE * (double)strlen(name),
                 left = x_of(legend->drawing, 0);
    if (legend->x > left && legend->x + width > left + legend->drawing->width) {
        legend->x = left;
        legend->y += LEGEND_HEIGHT;
    }
    double x = legend->x;
    const double y = legend->y;
    legend->x += width + 22;
    if (!legend->stream)
        return;
    for (uint32_t i = 0; i < swatches; i++, x += SWATCH_WIDTH)
        fprintf(legend->stream,
                "<rect class=\"pass %c%u\" x=\"%.1f\" y=\"%g\" width=\"%d\" height=\"18\"/>"
                "<text class=\"letter %c%u\" font-size=\"%d\" x=\"%.1f\" y=\"%g\">%c</text>",
                action_letter(kinds[i]), variants[i], x, y, SWATCH_WIDTH, action_letter(kinds[i]), variants[i],
                LETTER_SIZE, x + SWATCH_WIDTH / 2.0, y + 13, action_letter(kinds[i]));
    if (frame)
        fprintf(legend->stream, "<rect class=\"frame\" x=\"%.1f\" y=\"%g\" width=\"%d\" height=\"18\"/>",
                x - 2 * SWATCH_WIDTH, y, 2 * SWATCH_WIDTH);
    fprintf(legend->stream, "<text class=\"legend\" x=\"%.1f\" y=\"%g\">", x + 6, y + 14);
    svg_put_text(name, strlen(name), legend->stream);
    fputs("</text>\n", legend->stream);
}

/* Writes the legend; `y` is its upper edge. Returns its height in pixels. stream NULL: only measures. */
static double put_legend(const Drawing *drawing, double y, FILE *stream)
{
    Legend legend = {.drawing = drawing, .stream = stream, .x = x_of(drawing, 0), .y = y};
    const uint32_t shown = drawing->variants < 4 ? drawing->variants : 4;
    uint32_t variants[4] = {0};
    for (uint32_t v = 0; v < shown; v++)
        variants[v] = shown > 1 ? v * (drawing->variants - 1) / (shown - 1) : 0;
    for (uint8_t kind = 0; kind <= ACTION_U; kind++)
        if (drawing->kinds[kind])
            put_entry(&legend, (uint8_t[]){kind, kind, kind, kind}, variants, shown, false, pass_names[kind]);
    const bool both_forward = drawing->picture->schedule->forward_only;
    const uint8_t second = both_forward ? ACTION_F : drawing->kinds[ACTION_B] ? ACTION_B : ACTION_I;
    if (drawing->pairs)
        put_entry(&legend, (uint8_t[]){ACTION_F, second}, (uint32_t[]){0, drawing->variants - 1}, 2, true,
                  both_forward ? "two overlapped forwards" : pair_name);
    const SvgLines words = {"legend", x_of(drawing, 0), drawing->width, text_width * LEGEND_SIZE, LEGEND_LINE};
    return legend.y + LEGEND_HEIGHT - y + svg_put_lines(&words, drawing->words, legend.y + LEGEND_HEIGHT + 14, stream) +
           LEGEND_HEIGHT - LEGEND_LINE;
}

/* Writes the title of a timeline; `top` is its upper edge. Returns its height in pixels, with the gap below it. stream
   NULL: only measures. */
static double put_title(const Drawing *drawing, int number, double top, FILE *stream)
{
    const SvgLines title = {"title", MARGIN, LABELS_WIDTH + drawing->width, bold_width * TITLE_SIZE, TITLE_LINE};
    return svg_put_lines(&title, drawing->titles[number], top + TITLE_SIZE, stream) + TITLE_GAP;
}

/* Draws a timeline: its title and its rows. `top` is the y of its upper edge. Returns the y of its lower edge. */
static double put_timeline(Drawing *drawing, int number, double top)
{
    FILE *stream = drawing->stream;
    drawing->picture = drawing->pictures[number];
    drawing->top = top + put_title(drawing, number, top, stream);
    for (uint32_t r = 0; r < drawing->picture->schedule->ranks; r++) {
        put_rank(drawing, r);
        if (number)
            put_error(drawing, r);
    }
    if (number)
        fprintf(stream, "<text class=\"tick\" x=\"%.2f\" y=\"%g\">error of end</text>\n",
                x_of(drawing, drawing->makespan) + 8, drawing->top - 6);
    return y_of(drawing, drawing->picture->schedule->ranks);
}

void emit_svg(const Picture *picture, const Picture *second, uint32_t width, Arena *arena, FILE *stream)
{
    const Schedule *schedule = picture->schedule;
    Drawing drawing = {.pictures = {picture, second}, .stream = stream, .wanted = width, .shortest = INFINITY};
    measure(&drawing, arena);
    const double rows = schedule->ranks * (drawing.row + drawing.gap);
    double height = 2 * MARGIN + put_title(&drawing, 0, 0, NULL) + rows + AXIS_HEIGHT + put_legend(&drawing, 0, NULL);
    if (second)
        height += TIMELINES_GAP + put_title(&drawing, 1, 0, NULL) + rows;
    const double whole = 2 * MARGIN + LABELS_WIDTH + drawing.width;
    fprintf(stream,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" viewBox=\"0 0 %.0f %.0f\" "
            "role=\"img\">\n"
            "<title>",
            whole, height, whole, height);
    for (int i = 0; i < 2 && drawing.pictures[i]; i++) {
        const char *const name = drawing.pictures[i]->schedule->name;
        fputs(i ? "; " : "", stream);
        svg_put_text(name, strlen(name), stream);
    }
    fputs("</title>\n", stream);
    put_style(&drawing);
    fputs("<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n", stream);
    double bottom = put_timeline(&drawing, 0, MARGIN);
    if (second)
        bottom = put_timeline(&drawing, 1, bottom + TIMELINES_GAP);
    put_axis(&drawing, bottom + 4);
    put_legend(&drawing, bottom + AXIS_HEIGHT, stream);
    fputs("</svg>\n", stream);
}
