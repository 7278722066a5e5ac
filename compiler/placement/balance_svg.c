/* The loads of the GPUs before and after placing, as a picture (SVG): one row per layer, and in it one bar per GPU for
   each of the two placements. All bars have the same scale. Every bar has the attributes data-gpu and data-load, for
   programs that read the picture. */

#include "compiler/placement/balance_report.h"

#include "compiler/output/palette.h"
#include "compiler/output/svg_text.h"
#include "compiler/schedule/schedule.h"
#include "base/counted.h"

#include <math.h>
#include <string.h>

/* In pixels. */
enum {
    MARGIN = 12,
    TITLE_SIZE = 16,
    TITLE_LINE = 20,
    TEXT_SIZE = 13,
    LABELS_WIDTH = 64, /* "layer 60" */
    VALUES_WIDTH = 96, /* column to the right of a panel, with the balance of each layer */
    HEADS_HEIGHT = 30,
    AXIS_HEIGHT = 24,
    BAR_WIDTH = 16, /* width of a panel per GPU, but a panel is LEAST_PANEL to MOST_PANEL wide */
    LEAST_PANEL = 300,
    MOST_PANEL = 560,
    /* height of all rows together, but a row is never lower than LEAST_ROW or higher than MOST_ROW */
    ROWS_HEIGHT = 900,
    LEAST_ROW = 26,
    MOST_ROW = 110,
    ROW_GAP = 8,
    PANELS = 2,
};
/* width of a character as a share of the font size */
static const double bold_width = 0.62, text_width = 0.56;

typedef struct Drawing {
    const BalancePlan *plan;
    double *loads[PANELS]; /* [layers][gpus]: load of a GPU divided by the mean load in its layer */
    double top;            /* largest element of `loads`, at least 1 */
    double panel, row;     /* width of a panel, height of a row */
    double rows;           /* y of the upper edge of layer 0's row */
    const char *heads[PANELS];
    FILE *stream;
} Drawing;

static const char *const classes[PANELS] = {"before", "after"};

static double panel_x(const Drawing *d, int panel) { return MARGIN + LABELS_WIDTH + panel * (d->panel + VALUES_WIDTH); }

static double row_y(const Drawing *d, uint32_t layer) { return d->rows + layer * (d->row + ROW_GAP); }

/* Computes the loads and the sizes. The loads of a layer are divided by their mean, so that the bars of all layers have
   the same scale. */
static void measure(Drawing *d, Arena *arena)
{
    const BalancePlan *plan = d->plan;
    const BalanceShape *shape = &plan->shape;
    const uint32_t *const placements[PANELS] = {plan->before, plan->placement};
    d->top = 1;
    for (int p = 0; p < PANELS; p++) {
        d->loads[p] = arena_array(arena, (size_t)plan->layers * shape->gpus, sizeof(double));
        for (uint32_t l = 0; l < plan->layers; l++) {
            double *loads = d->loads[p] + (size_t)l * shape->gpus, sum = 0;
            balance_gpu_loads(shape, plan->loads + (size_t)l * shape->experts,
                              placements[p] + (size_t)l * shape->replicas, loads, arena);
            for (uint32_t g = 0; g < shape->gpus; g++)
                sum += loads[g];
            for (uint32_t g = 0; g < shape->gpus; g++) {
                loads[g] = sum > 0 ? loads[g] * shape->gpus / sum : 1;
                d->top = fmax(d->top, loads[g]);
            }
        }
    }
    d->panel = fmin(fmax(shape->gpus * BAR_WIDTH, LEAST_PANEL), MOST_PANEL);
    d->row = fmin(fmax(floor(ROWS_HEIGHT / (double)plan->layers) - ROW_GAP, LEAST_ROW), MOST_ROW);
}

static void put_style(const Drawing *d)
{
    const Colour before = palette_fill(ACTION_F, 1, 2), after = palette_fill(ACTION_W, 0, 2);
    fprintf(d->stream,
            "<style>\n"
            "text{font-family:Helvetica,Arial,'Liberation Sans',sans-serif;font-size:%dpx;fill:#000}\n"
            ".title{font-size:%dpx;font-weight:bold}.head{font-weight:bold}.value{font-variant-numeric:tabular-nums}\n"
            ".page{fill:#fff}.line{stroke:#999;stroke-width:.8}.mean{stroke:#333;stroke-width:1;stroke-dasharray:5 3}\n"
            ".before{fill:#%02x%02x%02x}.after{fill:#%02x%02x%02x}\n"
            "@media(prefers-color-scheme:dark){.page{fill:#16181d}text{fill:#e6e6e6}.line{stroke:#777}"
            ".mean{stroke:#ddd}}\n"
            "</style>\n"
            "<rect class=\"page\" width=\"100%%\" height=\"100%%\"/>\n",
            TEXT_SIZE, TITLE_SIZE, before.red, before.green, before.blue, after.red, after.green, after.blue);
}

static void put_text(const Drawing *d, const char *style, const char *anchor, double x, double y, const char *text)
{
    fprintf(d->stream, "<text class=\"%s\" text-anchor=\"%s\" x=\"%.1f\" y=\"%.1f\">", style, anchor, x, y);
    svg_put_text(text, strlen(text), d->stream);
    fputs("</text>\n", d->stream);
}

static void put_bars(const Drawing *d, int panel, uint32_t layer)
{
    const uint32_t gpus = d->plan->shape.gpus;
    const double *loads = d->loads[panel] + (size_t)layer * gpus, bottom = row_y(d, layer) + d->row;
    const double pitch = d->panel / gpus, gap = pitch > 4 ? 1 : 0;
    for (uint32_t g = 0; g < gpus; g++) {
        const double height = d->row * loads[g] / d->top;
        fprintf(d->stream,
                "<rect class=\"%s\" x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\" data-gpu=\"%u\" "
                "data-load=\"%.6g\"><title>layer %u, GPU %u: %.4f of the mean load</title></rect>\n",
                classes[panel], panel_x(d, panel) + g * pitch, bottom - height, pitch - gap, height, g, loads[g], layer,
                g, loads[g]);
    }
}

static void put_panel(const Drawing *d, int panel, uint32_t layer)
{
    const LayerBalance *balance = &d->plan->layer[layer];
    const double x = panel_x(d, panel), bottom = row_y(d, layer) + d->row, mean = bottom - d->row / d->top;
    char value[32];
    put_bars(d, panel, layer);
    for (int i = 0; i < 2; i++)
        fprintf(d->stream, "<line class=\"%s\" x1=\"%.2f\" y1=\"%.2f\" x2=\"%.2f\" y2=\"%.2f\"/>\n",
                i ? "mean" : "line", x, i ? mean : bottom, x + d->panel, i ? mean : bottom);
    snprintf(value, sizeof value, "%.4f", panel ? balance->after : balance->before);
    put_text(d, "value", "start", x + d->panel + 8, bottom - d->row / 2 + 5, value);
}

static void put_row(const Drawing *d, uint32_t layer)
{
    char label[32];
    snprintf(label, sizeof label, "layer %u", layer);
    put_text(d, "label", "start", MARGIN, row_y(d, layer) + d->row / 2 + 5, label);
    fprintf(d->stream, "<g data-layer=\"%u\">\n", layer);
    for (int panel = 0; panel < PANELS; panel++)
        put_panel(d, panel, layer);
    fputs("</g>\n", d->stream);
}

static void put_heads_and_axes(const Drawing *d)
{
    const double bottom = row_y(d, d->plan->layers) - ROW_GAP + 16;
    char last[32];
    snprintf(last, sizeof last, "%u", d->plan->shape.gpus - 1);
    for (int panel = 0; panel < PANELS; panel++) {
        const double x = panel_x(d, panel);
        put_text(d, "head", "start", x, d->rows - 10, d->heads[panel]);
        put_text(d, "head", "start", x + d->panel + 8, d->rows - 10, "balance");
        put_text(d, "label", "start", x, bottom, "GPU 0");
        put_text(d, "label", "end", x + d->panel, bottom, last);
    }
}

static char *title_of(const BalancePlan *plan, Arena *arena)
{
    double before = 0, after = 0;
    for (uint32_t l = 0; l < plan->layers; l++) {
        before += plan->layer[l].before / plan->layers;
        after += plan->layer[l].after / plan->layers;
    }
    return arena_format(arena, "%s: %s of %s on %s; balance %.4f before, %.4f after",
                        counted(plan->layers, "layer").text, counted(plan->shape.replicas, "replica").text,
                        counted(plan->shape.experts, "expert").text, counted(plan->shape.gpus, "GPU").text, before,
                        after);
}

void balance_put_svg(const BalancePlan *plan, Arena *arena, FILE *stream)
{
    static const char legend[] = "bars: load of each GPU, dashed: the mean of the layer; "
                                 "balance: mean divided by the largest";
    Drawing d = {.plan = plan, .stream = stream};
    d.heads[0] = plan->from ? "before" : "experts in order";
    d.heads[1] = plan->eplb ? "after (eplb)" : "after";
    measure(&d, arena);
    const char *title = title_of(plan, arena);
    const double width = panel_x(&d, PANELS) + MARGIN, room = width - 2 * MARGIN;
    const SvgLines lines = {"title", MARGIN, room, bold_width * TITLE_SIZE, TITLE_LINE};
    const SvgLines words = {"legend", MARGIN, room, text_width * TEXT_SIZE, TITLE_LINE};
    d.rows = MARGIN + svg_put_lines(&lines, title, 0, NULL) + HEADS_HEIGHT;
    const double bottom = row_y(&d, plan->layers) + AXIS_HEIGHT;
    const double height = bottom + svg_put_lines(&words, legend, 0, NULL) + MARGIN;
    fprintf(stream,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" viewBox=\"0 0 %.0f %.0f\" "
            "role=\"img\">\n<title>Loads of the GPUs</title>\n",
            width, height, width, height);
    put_style(&d);
    svg_put_lines(&lines, title, MARGIN + TITLE_SIZE - 2, stream);
    put_heads_and_axes(&d);
    for (uint32_t l = 0; l < plan->layers; l++)
        put_row(&d, l);
    svg_put_lines(&words, legend, bottom + TEXT_SIZE, stream);
    fputs("</svg>\n", stream);
}
