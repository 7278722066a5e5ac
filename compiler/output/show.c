/* The timeline in characters, as at the head of the files in schedules/: one row per rank; F0 is a pass of microbatch
   0, F3&b1 an F&B, small letters are chunk 1; with more than two chunks on a rank, F1:0 is microbatch 0 of chunk 1. |
   is a U that takes no time, - continues a pass (a colour does so on a terminal), . is idle time. A timeline that is
   wider than the terminal continues in further blocks of rows. */

#include "compiler/output/emit.h"

#include "base/counted.h"

#include <ctype.h>
#include <math.h>
#include <string.h>

enum {
    LABEL_SIZE = 64,
    LEAST_BLOCK = 20, /* least number of columns of a block, even on a narrower terminal */
    MOST_BLOCKS = 8,  /* if the timeline has more blocks than this, a note recommends a page or a picture */
    STYLE_PLAIN = -1,
    STYLE_IDLE = -2,
};

typedef struct Screen {
    const Picture *picture;
    FILE *stream;
    bool colours, many_chunks;
    uint32_t variants;
    uint32_t unit;        /* columns that the widest label of a pass needs, and one space */
    double scale;         /* columns per unit of time of the costs */
    uint32_t columns;     /* columns of the whole timeline */
    uint32_t first, last; /* the block that is being drawn has the columns first to last - 1 */
    uint64_t unnumbered;  /* passes whose number does not fit into their cell */
    bool dashes;          /* some cell has dashes after its label */
    char *text;           /* [last - first] */
    /* [last - first]: kind * variants + variant of the pass at a column; or STYLE_PLAIN, STYLE_IDLE */
    int *style;
} Screen;

static uint32_t label(const Screen *screen, const Action *pass, char *text)
{
    const char letter = action_letter(pass->kind);
    if (screen->many_chunks)
        return (uint32_t)snprintf(text, LABEL_SIZE, "%c%u:%u", letter, pass->chunk, pass->microbatch);
    return (uint32_t)snprintf(text, LABEL_SIZE, "%c%u", pass->chunk ? letter + ('a' - 'A') : letter, pass->microbatch);
}

static uint32_t cell_label(const Screen *screen, const Cell *cell, char *text)
{
    uint32_t length = label(screen, cell->first, text);
    if (cell->second) {
        text[length++] = '&';
        length += label(screen, cell->second, text + length);
    }
    return length;
}

static uint32_t column(const Screen *screen, double time) { return (uint32_t)lround(time * screen->scale); }

static uint32_t passes_in(const Cell *cell) { return cell->second ? 2 : 1; }

/* Whether the cell is a U that takes no time, which is drawn as a bar in the column before its time. */
static bool is_update_bar(const Cell *cell) { return cell->first->kind == ACTION_U && cell->end <= cell->start; }

/* Chooses the scale, in columns per unit of time: the smallest with which every label fits into its cell. But a pass of
   mean duration gets at most 6 times the columns of the widest label, and the timeline at most INT32_MAX / 2
   columns. */
static void measure(Screen *screen)
{
    const Schedule *schedule = screen->picture->schedule;
    double needed = 0, busy = 0;
    uint64_t cells = 0;
    for (uint32_t r = 0; r < schedule->ranks; r++)
        screen->many_chunks = screen->many_chunks || schedule->chunk_counts[r] > 2;
    for (uint32_t r = 0; r < schedule->ranks; r++) {
        Cell cell;
        for (uint32_t i = 0; picture_next(screen->picture, r, &i, &cell);) {
            char text[2 * LABEL_SIZE];
            const uint32_t length = cell_label(screen, &cell, text) + 1;
            const uint32_t each = cell.second ? (length + 1) / 2 : length;
            if (each > screen->unit && !is_update_bar(&cell))
                screen->unit = each;
        }
    }
    for (uint32_t r = 0; r < schedule->ranks; r++) {
        Cell cell;
        for (uint32_t i = 0; picture_next(screen->picture, r, &i, &cell);) {
            const double duration = cell.end - cell.start;
            if (duration > 0)
                needed = fmax(needed, (cell.second ? 2 * screen->unit : screen->unit) / duration);
            busy += duration;
            cells += !is_update_bar(&cell);
        }
    }
    if (busy > 0)
        screen->scale = fmin(needed, 6 * screen->unit * (double)cells / busy);
    if (screen->picture->times->makespan * screen->scale > INT32_MAX / 2.0)
        screen->scale = INT32_MAX / 2.0 / screen->picture->times->makespan;
    screen->columns = column(screen, screen->picture->times->makespan);
}

static void put(const Screen *screen, uint32_t at, char character, int style)
{
    if (at < screen->first || at >= screen->last)
        return;
    screen->text[at - screen->first] = character;
    screen->style[at - screen->first] = style;
}

static int style_of(const Screen *screen, uint32_t rank, const Action *pass)
{
    return (int)(pass->kind * screen->variants +
                 picture_variant(screen->picture->schedule, screen->variants, rank, pass->chunk));
}

/* Copies a label without its numbers, for a cell that is too narrow for the whole label: a truncated number would look
   like another number. */
static uint32_t cell_letters(const char *label, char *letters)
{
    uint32_t length = 0;
    for (; *label; label++)
        if (isalpha((unsigned char)*label) || *label == '&')
            letters[length++] = *label;
    return length;
}

/* Draws the part of a cell that is in this block. If the cell begins in the last columns of a block and its label, such
   as F12, does not fit there, only the letters of the label are drawn there (F), and the whole label in the next
   block. */
static void draw_cell(Screen *screen, uint32_t rank, const Cell *cell)
{
    const uint32_t begin = column(screen, cell->start), middle = column(screen, cell->middle),
                   end = column(screen, cell->end);
    const uint32_t from = begin > screen->first ? begin : screen->first, last = end < screen->last ? end : screen->last;
    const int style = style_of(screen, rank, cell->first),
              second = cell->second ? style_of(screen, rank, cell->second) : style;
    char label[2 * LABEL_SIZE], letters[2 * LABEL_SIZE];
    uint32_t length = cell_label(screen, cell, label);
    const char *text = label;
    const bool labelled = begin + length <= from;
    if (from == last)
        return;
    if (labelled || length > last - from) {
        screen->unnumbered += labelled || last < end ? 0 : passes_in(cell);
        length = begin < from ? 0 : cell_letters(label, letters);
        text = letters;
    }
    /* The last column of a cell stays empty, to separate it from the next cell, unless the label needs it or the cell
       continues in the next block. */
    const uint32_t body = last < end || last == from + length ? last : last - 1;
    for (uint32_t at = from; at < body; at++) {
        const uint32_t i = at - from;
        const bool dash = i >= length && !(i == length && length) && !screen->colours;
        put(screen, at, i < length ? text[i] : dash ? '-' : ' ', at >= middle ? second : style);
        screen->dashes |= dash;
    }
}

static void draw_idle(const Screen *screen, uint32_t begin, uint32_t end)
{
    for (uint32_t at = begin; at < end && at < screen->last; at += screen->unit)
        put(screen, at, '.', STYLE_IDLE);
}

/* Draws the part of a rank's row that is in this block. *next: the position of the first cell that may reach into this
   block; *free: the column at which the cell before *next ends. Updates *next and *free for the next block. */
static void draw_rank(Screen *screen, uint32_t rank, uint32_t *next, uint32_t *free)
{
    memset(screen->text, ' ', screen->last - screen->first);
    for (uint32_t i = 0; i < screen->last - screen->first; i++)
        screen->style[i] = STYLE_PLAIN;
    Cell cell;
    for (uint32_t i = *next; picture_next(screen->picture, rank, &i, &cell);) {
        uint32_t begin = column(screen, cell.start);
        const uint32_t end = column(screen, cell.end);
        draw_idle(screen, *free, begin);
        if (is_update_bar(&cell) && begin > 0)
            begin--;
        if (begin >= screen->last)
            return;
        if (is_update_bar(&cell))
            put(screen, begin, '|', style_of(screen, rank, cell.first));
        else
            draw_cell(screen, rank, &cell);
        if (end > screen->last)
            return;
        *free = end;
        *next = i;
    }
    draw_idle(screen, *free, screen->columns);
}

static void set_style(const Screen *screen, int style)
{
    if (style == STYLE_PLAIN || style == STYLE_IDLE) {
        fputs(style == STYLE_IDLE ? "\033[0;2m" : "\033[0m", screen->stream);
        return;
    }
    const uint32_t variant = (uint32_t)style % screen->variants;
    const Colour fill = palette_fill((uint8_t)((uint32_t)style / screen->variants), variant, screen->variants);
    fprintf(screen->stream, "\033[0;38;5;%d;48;5;%dm", palette_ink(fill).red ? 231 : 16, palette_terminal(fill));
}

static void print_row(const Screen *screen)
{
    uint32_t end = screen->last - screen->first;
    while (end > 0 && screen->text[end - 1] == ' ' && (!screen->colours || screen->style[end - 1] == STYLE_PLAIN))
        end--;
    int style = STYLE_PLAIN;
    for (uint32_t i = 0; i < end; i++) {
        if (screen->colours && screen->style[i] != style)
            set_style(screen, style = screen->style[i]);
        putc(screen->text[i], screen->stream);
    }
    if (style != STYLE_PLAIN)
        set_style(screen, STYLE_PLAIN);
}

static void print_key(const Screen *screen)
{
    uint64_t hidden = 0; /* passes shorter than a column */
    bool kinds[ACTION_U + 1] = {false}, bars = false, pairs = false, chunks = false;
    for (uint32_t r = 0; r < screen->picture->schedule->ranks; r++) {
        Cell cell;
        for (uint32_t i = 0; picture_next(screen->picture, r, &i, &cell);) {
            const bool is_bar = is_update_bar(&cell);
            hidden += !is_bar && column(screen, cell.start) == column(screen, cell.end) ? passes_in(&cell) : 0;
            bars |= is_bar;
            kinds[cell.first->kind] |= !is_bar;
            chunks = chunks || cell.first->chunk;
            if (cell.second)
                kinds[cell.second->kind] = pairs = true;
        }
    }
    static const char *const words[] = {"F forward", "B backward", "I backward for input", "W backward for weights",
                                        "U update of weights"};
    const char *comma = "";
    putc('\n', screen->stream);
    for (int kind = 0; kind <= ACTION_U; kind++)
        if (kinds[kind]) {
            fprintf(screen->stream, "%s%s", comma, words[kind]);
            comma = ", ";
        }
    fprintf(screen->stream, "%s%s%s%s; . idle\n", bars ? ", | update of weights" : "",
            !pairs                                    ? ""
            : screen->picture->schedule->forward_only ? ", F&F overlapped"
                                                      : ", F&B overlapped",
            screen->many_chunks ? "; F1:0 is chunk 1, microbatch 0"
            : chunks            ? "; small letters: chunk 1"
                                : "",
            screen->dashes ? "; - goes on" : "");
    if (hidden)
        fprintf(screen->stream, "left out, shorter than a column: %s\n", counted(hidden, "pass").text);
    if (screen->unnumbered)
        fprintf(screen->stream, "without a number, for which there is no room: %s\n",
                counted(screen->unnumbered, "pass").text);
}

void emit_text(const Picture *picture, Terminal terminal, Arena *arena, FILE *stream)
{
    const Schedule *schedule = picture->schedule;
    Screen screen = {
        .picture = picture, .stream = stream, .colours = terminal.colours, .variants = picture_variants(schedule)};
    measure(&screen);
    char rank_label[16];
    const uint32_t label_width = (uint32_t)snprintf(rank_label, sizeof rank_label, "r%u  ", schedule->ranks - 1);
    uint32_t block = screen.columns;
    if (label_width + block > terminal.width) {
        const uint32_t room = terminal.width > label_width + LEAST_BLOCK ? terminal.width - label_width : LEAST_BLOCK;
        block = room > screen.unit ? room / screen.unit * screen.unit : room;
    }
    uint32_t blocks = block ? (screen.columns + block - 1) / block : 1;
    if (blocks > 1 && block > screen.unit) { /* make the blocks about equally wide */
        block = ((screen.columns + blocks - 1) / blocks + screen.unit - 1) / screen.unit * screen.unit;
        blocks = (screen.columns + block - 1) / block;
    }
    screen.text = arena_array(arena, block, sizeof *screen.text);
    screen.style = arena_array(arena, block, sizeof *screen.style);
    uint32_t *next = arena_array(arena, schedule->ranks, sizeof *next),
             *free = arena_array(arena, schedule->ranks, sizeof *free);

    fprintf(stream, "%s: %s; makespan %g%s%s, bubble %.1f %%\n\n", schedule->name, schedule_sizes(schedule).text,
            picture->times->makespan, costs_unit_text(picture->times->costs), gap_note(&picture->gap, arena),
            100 * timeline_bubble(schedule, picture->times).rate);
    for (uint32_t b = 0; b < blocks; b++) {
        screen.first = b * block;
        screen.last = b + 1 < blocks ? screen.first + block : screen.columns;
        if (blocks > 1)
            fprintf(stream, "%stime %.4g to %.4g (part %u of %u)\n", b ? "\n" : "", screen.first / screen.scale,
                    b + 1 < blocks ? screen.last / screen.scale : picture->times->makespan, b + 1, blocks);
        for (uint32_t r = 0; r < schedule->ranks; r++) {
            snprintf(rank_label, sizeof rank_label, "r%u", r);
            fprintf(stream, "%-*s", (int)label_width, rank_label);
            draw_rank(&screen, r, &next[r], &free[r]);
            print_row(&screen);
            putc('\n', stream);
        }
    }
    print_key(&screen);
    if (blocks > MOST_BLOCKS)
        fprintf(stream, "%u parts: --emit=html:FILE writes a page to zoom in, --emit=svg:FILE a picture\n", blocks);
}
