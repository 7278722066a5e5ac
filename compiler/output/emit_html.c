/* Writes a self-contained HTML page: the files of page/, and between them the data of one or two timelines. */

#include "compiler/output/emit.h"
#include "compiler/schedule/critical_path.h"
#include "base/text.h"

#include <string.h>

/* The files of the page: the part before the data, and the script after them. */
static const char page_begin[] =
#include "compiler/output/page/page.html.text"
    ;
static const char page_end[] = "<script>\n\"use strict\";\n"
#include "compiler/output/page/data.js.text"
#include "compiler/output/page/drawing.js.text"
#include "compiler/output/page/panel.js.text"
#include "compiler/output/page/picture.js.text"
#include "compiler/output/page/controls.js.text"
                               "</script>\n</body>\n</html>\n";

static void put_source(const Source *source, FILE *stream)
{
    const char *slash = strrchr(source->path, '/'), *file = slash ? slash + 1 : source->path;
    json_put_member(",\n\"source\":{\"file\":", file, stream);
    fputs(",\"lines\":[", stream);
    for (uint32_t i = 0; i < source->line_count; i++) {
        const uint32_t begin = source->line_starts[i];
        const uint32_t end = i + 1 < source->line_count ? source->line_starts[i + 1] : (uint32_t)source->size;
        fputs(i ? ",\n" : "\n", stream);
        json_put_text(source->text + begin,
                      strcspn(source->text + begin, "\n") < end - begin ? strcspn(source->text + begin, "\n")
                                                                        : end - begin,
                      stream);
    }
    fputs("]}", stream);
}

static void put_palette(uint32_t variants, FILE *stream)
{
    fputs(",\n\"palette\":{", stream);
    for (uint8_t kind = 0; kind <= ACTION_U; kind++) {
        fprintf(stream, "%s\"%c\":[", kind ? "," : "", action_letter(kind));
        for (uint32_t v = 0; v < variants; v++) {
            const Colour fill = palette_fill(kind, v, variants), ink = palette_ink(fill);
            fprintf(stream, "%s[\"#%02x%02x%02x\",\"#%02x%02x%02x\"]", v ? "," : "", fill.red, fill.green, fill.blue,
                    ink.red, ink.green, ink.blue);
        }
        putc(']', stream);
    }
    putc('}', stream);
}

static void put_placement(const Schedule *schedule, uint32_t variants, FILE *stream)
{
    fputs(",\n\"pipes\":[", stream);
    for (uint32_t p = 0; p < schedule->pipe_count; p++) {
        if (p)
            putc(',', stream);
        json_put_string(schedule->pipes[p].name, stream);
    }
    fputs("],\n\"chunks\":[", stream); /* for each rank a list of its chunks: [pipe, stage, shade of the colour] */
    for (uint32_t r = 0; r < schedule->ranks; r++) {
        fputs(r ? ",[" : "[", stream);
        for (uint32_t c = 0; c < schedule->chunk_counts[r]; c++)
            fprintf(stream, "%s[%u,%u,%u]", c ? "," : "", schedule->chunks[r][c].pipe, schedule->chunks[r][c].stage,
                    picture_variant(schedule, variants, r, (uint8_t)c));
        putc(']', stream);
    }
    putc(']', stream);
}

/* A pass or U as the page draws it. The halves of an F&B or F&F are drawn one after the other, each with its share of
   the time. */
typedef struct Part {
    const Action *pass;
    double start, end;
    int half; /* 0: a pass alone; 1: the first half of an F&B or F&F; 2: the second half */
} Part;

/* Writes the parts of a rank, in order, and returns their number. `parts` has room for as many as the rank has
   actions. */
static uint32_t parts_of(const Picture *picture, uint32_t rank, Part *parts)
{
    uint32_t count = 0;
    Cell cell;
    for (uint32_t i = 0; picture_next(picture, rank, &i, &cell);) {
        parts[count++] = (Part){cell.first, cell.start, cell.middle, cell.second ? 1 : 0};
        if (cell.second)
            parts[count++] = (Part){cell.second, cell.middle, cell.end, 2};
    }
    return count;
}

/* Returns [rank][position]: the number of passes that the rank runs before the pass at this position; 0 for messages.
   */
static uint32_t **number_passes(const Schedule *schedule, Arena *arena)
{
    uint32_t **numbers = arena_array(arena, schedule->ranks, sizeof *numbers);
    for (uint32_t r = 0; r < schedule->ranks; r++) {
        const Order *order = &schedule->orders[r];
        numbers[r] = arena_array(arena, order->count, sizeof **numbers);
        for (uint32_t i = 0, passes = 0; i < order->count; i++)
            numbers[r][i] = action_is_message(&order->actions[i]) ? 0 : passes++;
    }
    return numbers;
}

static void put_rank(const Picture *picture, uint32_t **numbers, uint32_t rank, Arena *arena, FILE *stream)
{
    enum { MICROBATCH, CHUNK, START, END, LINE, PAIR, FROM, AT, READY, LISTS };
    static const char *const names[LISTS] = {"microbatch", "chunk", "start", "end",  "line",
                                             "pair",       "from",  "at",    "ready"};
    Part *parts = arena_array(arena, picture->schedule->orders[rank].count, sizeof *parts);
    const uint32_t count = parts_of(picture, rank, parts);
    fprintf(stream, "%s\n{\"kinds\":\"", rank ? "," : "");
    for (uint32_t i = 0; i < count; i++)
        putc(action_letter(parts[i].pass->kind), stream);
    putc('"', stream);
    for (int list = 0; list < LISTS; list++) {
        fprintf(stream, ",\n\"%s\":[", names[list]);
        for (uint32_t i = 0; i < count; i++) {
            const Action *pass = parts[i].pass;
            Dependence needed;
            const double ready =
                timeline_arrival(picture->schedule, picture->table, picture->times, rank, pass, &needed);
            if (i)
                putc(',', stream);
            switch (list) {
            case MICROBATCH: fprintf(stream, "%u", pass->microbatch); break;
            case CHUNK: fprintf(stream, "%u", pass->chunk); break;
            case START: fprintf(stream, "%.12g", parts[i].start); break;
            case END: fprintf(stream, "%.12g", parts[i].end); break;
            case LINE: fprintf(stream, "%u", source_line(picture->source, pass->span.begin)); break;
            case PAIR: fprintf(stream, "%d", parts[i].half); break;
            case FROM: fprintf(stream, "%d", ready >= 0 ? (int)needed.rank : -1); break;
            case AT: fprintf(stream, "%d", ready >= 0 ? (int)numbers[needed.rank][needed.position] : -1); break;
            default: fprintf(stream, "%.12g", ready); break;
            }
        }
        putc(']', stream);
    }
    putc('}', stream);
}

static void put_timeline(const char *name, const char *unit, const Picture *picture, Arena *arena, FILE *stream)
{
    const Schedule *schedule = picture->schedule;
    uint32_t **numbers = number_passes(schedule, arena);
    fprintf(stream, "<script type=\"application/json\" id=\"%s\">{\"schedule\":", name);
    json_put_string(schedule->name, stream);
    fprintf(stream,
            ",\"unit\":\"%s\",\"ranks\":%u,\"microbatches\":%u,\"makespan\":%.12g,\"bound\":%.12g,\"bubble\":%.12g",
            unit, schedule->ranks, schedule->microbatches, picture->times->makespan, picture->gap.bound,
            timeline_bubble(schedule, picture->times).rate);
    put_source(picture->source, stream);
    const uint32_t variants = picture_variants(schedule);
    put_palette(variants, stream);
    put_placement(schedule, variants, stream);
    CriticalPass *path;
    const uint32_t steps = critical_path(schedule, picture->table, picture->times, arena, &path);
    fputs(",\n\"critical\":[", stream);
    for (uint32_t i = 0; i < steps; i++)
        fprintf(stream, "%s[%u,%u]", i ? "," : "", path[i].rank, numbers[path[i].rank][path[i].position]);
    fputs("],\n\"rank\":[", stream);
    for (uint32_t r = 0; r < schedule->ranks; r++)
        put_rank(picture, numbers, r, arena, stream);
    fputs("]}</script>\n", stream);
}

void emit_html(const Picture *picture, const Picture *second, Arena *arena, FILE *stream)
{
    fputs(page_begin, stream);
    put_timeline("timeline", second ? "ms" : "", picture, arena, stream);
    if (second)
        put_timeline("below", "ms", second, arena, stream);
    fputs(page_end, stream);
}
