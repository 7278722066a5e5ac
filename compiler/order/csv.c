#include "compiler/order/csv.h"

#include "compiler/order/torch_cells.h"
#include "compiler/source/csv_cell.h"
#include "base/counted.h"
#include "program/program.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* The version of the weights that a cell names: 0F3v1 says that microbatch 3 uses version 1. */
typedef struct NamedVersion {
    uint32_t pipe, microbatch, version;
    Span span;
} NamedVersion;

typedef struct Reader {
    const Source *source;
    Arena *arena;
    Diagnostics *diagnostics;
    Schedule *schedule;
    const char *next, *end; /* next: what has not been read of the current cell; end: its end */
    NamedVersion *versions; /* [version_count]: one for each F whose cell names a version */
    uint32_t version_count;
    TorchCells *torch; /* [rank] */
    Span plain;        /* position of the last F that names no version; plain.end == 0: there is none */
    bool explained;    /* the error in the current cell has been reported */
    bool listed;       /* the list of valid cells has been printed */
    bool good;
    /* of Primus' text. folded: the stages form a V, so chunk 1 of rank r is stage 2 * rows - 1 - r, not rows + r */
    bool folded;
    uint32_t rows; /* number of ranks */
} Reader;

static uint32_t offset(const Reader *reader, const char *place) { return (uint32_t)(place - reader->source->text); }

static Span span_of(const Reader *reader, const char *begin, const char *end)
{
    return (Span){offset(reader, begin), offset(reader, end)};
}

static bool number(Reader *reader, uint32_t limit, uint32_t *value)
{
    const char *begin = reader->next;
    uint64_t read = 0;
    while (reader->next < reader->end && isdigit((unsigned char)*reader->next)) {
        read = read * 10 + (uint64_t)(*reader->next++ - '0');
        if (read > limit) {
            diag_error(reader->diagnostics, span_of(reader, begin, reader->end),
                       "rank %u: this number is too large: at most %u", reader->schedule->ranks, limit);
            reader->explained = true;
            return false;
        }
    }
    *value = (uint32_t)read;
    return reader->next > begin;
}

/* Suggests the cell that the author may have meant. If there is no guess, lists the valid cells, but only once. */
static void help_cell(Reader *reader, const char *cell)
{
    const size_t digits = strspn(cell, "0123456789"), letters = strspn(cell + digits, "fbiwFBIW");
    const char *const rest = cell + digits + letters;
    const bool is_pass =
        letters == 1 && *rest && !rest[strspn(rest, "0123456789")] && (!digits || islower((unsigned char)cell[digits]));
    if (source_is_primus(reader->source))
        diag_help(reader->diagnostics,
                  "a row is Rank 0: and its cells, as (F|microbatch|chunk), of F, B, W, BW, SF, RF, SB and RB");
    else if (strchr(cell, '"'))
        diag_help(reader->diagnostics, "a cell in quotes begins and ends with one: \"0F0\",\"0F1\"");
    else if (*cell != '(' && strpbrk(cell, " ,;\t"))
        diag_help(reader->diagnostics, "cells are separated by commas: 0F0,0F1,0B0");
    else if (is_pass)
        diag_help(reader->diagnostics, "write %.*s%c%s, which is stage, pass, microbatch", digits ? (int)digits : 1,
                  digits ? cell : "0", toupper((unsigned char)cell[digits]), rest);
    else if (!reader->listed) {
        reader->listed = true;
        diag_help(
            reader->diagnostics,
            "cells are separated by commas; one is <stage><F|B|I|W><microbatch>, as 3F0, a message, as 3SEND_F0, an "
            "F&B, as (0F7;7B3)OVERLAP_F_B, an F&F, as (0F6;0F7)OVERLAP_F_F, or an update of weights, "
            "<stage>U<version>, as 3U1; an F may name its version of the weights, as 3F0v1; p1:3F0 is of pipe 1");
    }
}

static void bad_cell(Reader *reader, Span span)
{
    const char *begin = reader->source->text + span.begin;
    const size_t line = strcspn(begin, "\n"), whole = span.end - span.begin < line ? span.end - span.begin : line;
    const int length = whole > 60 ? 60 : (int)whole;
    diag_error(reader->diagnostics, span, "rank %u: '%.*s' is not a cell", reader->schedule->ranks, length, begin);
    help_cell(reader, arena_text(reader->arena, begin, (size_t)length));
}

/* Reads the version of the weights that may follow an F in its cell: v1 in 0F3v1. False: no number follows the v, or it
   is too large. */
static bool version(Reader *reader, uint32_t pipe, uint32_t microbatch, const char *begin)
{
    NamedVersion named = {.pipe = pipe, .microbatch = microbatch};
    if (reader->next == reader->end || *reader->next != 'v') {
        reader->plain = span_of(reader, begin, reader->next);
        return true;
    }
    reader->next++;
    if (!number(reader, PROGRAM_MICROBATCHES_MAX, &named.version))
        return false;
    named.span = span_of(reader, begin, reader->next);
    reader->versions = arena_extend(reader->arena, reader->versions, reader->version_count, sizeof *reader->versions);
    reader->versions[reader->version_count++] = named;
    return true;
}

static bool pass(Reader *reader, Action *action)
{
    const char *begin = reader->next;
    uint32_t pipe = 0, stage, microbatch;
    *action = (Action){0};
    if (reader->end - reader->next > 1 && *reader->next == 'p' && isdigit((unsigned char)reader->next[1])) {
        reader->next++;
        if (!number(reader, PROGRAM_PIPES_MAX - 1, &pipe) || reader->next == reader->end || *reader->next++ != ':')
            return false;
    }
    if (!number(reader, PROGRAM_STAGES_MAX - 1, &stage))
        return false;
    const char *name = reader->next;
    while (reader->next < reader->end && (isupper((unsigned char)*reader->next) || *reader->next == '_'))
        reader->next++;
    action->kind = action_kind_named(name, (size_t)(reader->next - name));
    if (action->kind == ACTION_KINDS || !number(reader, PROGRAM_MICROBATCHES_MAX - 1, &microbatch) ||
        (action->kind == ACTION_F && !version(reader, pipe, microbatch, begin)))
        return false;
    action->pipe = (uint16_t)pipe;
    action->stage = (uint16_t)stage;
    action->microbatch = microbatch;
    action->span = span_of(reader, begin, reader->next);
    return true;
}

static bool take(Reader *reader, const char *word)
{
    const size_t length = strlen(word);
    if ((size_t)(reader->end - reader->next) < length || memcmp(reader->next, word, length) != 0)
        return false;
    reader->next += length;
    return true;
}

static bool cell(Reader *reader, Order *order)
{
    Action first, second;
    if (!take(reader, "(")) {
        if (!pass(reader, &first) || reader->next != reader->end)
            return false;
        order_append(order, reader->arena, &first);
        reader->schedule->has_messages |= action_is_message(&first);
        return true;
    }
    if (!pass(reader, &first) || !take(reader, ";") || !pass(reader, &second) || !take(reader, ")") ||
        !take(reader, action_pair_name(&second)) || reader->next != reader->end || first.kind > ACTION_W ||
        second.kind > ACTION_W)
        return false;
    first.overlap = true;
    order_append(order, reader->arena, &first);
    order_append(order, reader->arena, &second);
    return true;
}

/* --- Primus' text: "Rank 0: (F|0|0),(SF|0|0)", with the microbatch and the chunk of the rank in each cell --- */

/* Reads the cell whose "(" is at `text`. Returns its kind; ACTION_KINDS: dpc knows no such pass or message. `numbers`
   gets its microbatch and its chunk, `end` where it ends. */
static uint8_t primus_cell(const char *text, uint32_t numbers[2], const char **end)
{
    static const char *const names[ACTION_KINDS] = {"F", "BW", "B", "W", "", "SF", "RF", "SB", "RB"};
    const size_t length = strspn(text + 1, "FBWSR");
    uint8_t kind = 0;
    while (kind < ACTION_KINDS && (strlen(names[kind]) != length || memcmp(names[kind], text + 1, length) != 0))
        kind++;
    *end = text + 1 + length;
    for (int i = 0; i < 2; i++) {
        if (!length || **end != '|' || !isdigit((unsigned char)(*end)[1]))
            return ACTION_KINDS;
        const unsigned long value = strtoul(*end + 1, (char **)end, 10);
        numbers[i] = value < PROGRAM_MICROBATCHES_MAX ? (uint32_t)value : PROGRAM_MICROBATCHES_MAX;
    }
    return *(*end)++ == ')' && numbers[0] < PROGRAM_MICROBATCHES_MAX && numbers[1] < PROGRAM_CHUNKS_MAX ? kind
                                                                                                        : ACTION_KINDS;
}

static uint32_t primus_rank(const Reader *reader, uint32_t stage)
{
    return reader->folded && stage >= reader->rows ? 2 * reader->rows - 1 - stage : stage % reader->rows;
}

/* The text does not say which stage a second chunk is. In a V, chunk 1 of rank 0 is the last stage, which sends no
   activations. */
static void primus_place(Reader *reader)
{
    const char *const text = reader->source->text, *const row = text + strcspn(text, "\n");
    uint32_t numbers[2], most = 0;
    bool messages = false, onwards = false;
    const char *end;
    for (const char *at = text; (at = strchr(at, '(')); at++) {
        const uint8_t kind = primus_cell(at, numbers, &end);
        if (kind == ACTION_KINDS)
            continue;
        most = numbers[1] > most ? numbers[1] : most;
        messages = messages || kind > ACTION_U;
        onwards = onwards || (at < row && kind == ACTION_SEND_F && numbers[1] == 1);
    }
    reader->folded = most == 1 && !onwards;
    if (most == 0 || messages || reader->rows == 1)
        return;
    diag_error(reader->diagnostics, (Span){0, 1}, "without messages this text does not say which stages chunks are");
    diag_help(reader->diagnostics, "print the table with its messages: SF, RF, SB and RB");
    reader->good = false;
}

static bool primus(Reader *reader, Order *order)
{
    uint32_t numbers[2];
    const uint32_t rank = reader->schedule->ranks;
    const char *const begin = reader->next, *end = begin;
    if (strncmp(begin, "(O|", 3) == 0 || strncmp(begin, "(R|", 3) == 0)
        return true; /* offload and reload of activations */
    Action action = {.kind = *begin == '(' ? primus_cell(begin, numbers, &end) : ACTION_KINDS};
    if (action.kind == ACTION_KINDS || end != reader->end)
        return false;
    const uint32_t stage =
        reader->folded && numbers[1] == 1 ? 2 * reader->rows - 1 - rank : numbers[1] * reader->rows + rank;
    if (stage >= PROGRAM_STAGES_MAX)
        return false;
    action.stage = (uint16_t)stage;
    action.microbatch = numbers[0];
    action.span = span_of(reader, begin, reader->end);
    const int other = action_is_message(&action) ? action_other_stage(&action) : -1;
    if (other >= 0 && primus_rank(reader, (uint32_t)other) == rank)
        return true; /* it hands a value to the next chunk of the same rank */
    order_append(order, reader->arena, &action);
    reader->schedule->has_messages |= action_is_message(&action);
    return true;
}

/* Skips "Rank 3: ", if this is row 3. */
static bool primus_row(Reader *reader)
{
    uint32_t rank;
    if (!take(reader, "Rank ") || !number(reader, PROGRAM_RANKS_MAX, &rank) || rank != reader->schedule->ranks ||
        !take(reader, ":"))
        return false;
    take(reader, " ");
    return true;
}

/* --- */

/* Reads a cell that only PyTorch needs. False: it is none. */
static bool torch_cell(Reader *reader, const Order *order)
{
    TorchCells *row = &reader->torch[reader->schedule->ranks];
    TorchCell cell;
    if (!torch_cell_read(reader->next, reader->end, &cell))
        return false;
    cell.position = order->count;
    cell.span = span_of(reader, reader->next, reader->end);
    row->cells = arena_extend(reader->arena, row->cells, row->count, sizeof *row->cells);
    row->cells[row->count++] = cell;
    return true;
}

/* Reads the row that begins at the offset `at` and returns the offset of the next one. */
static uint32_t row(Reader *reader, uint32_t at, uint32_t end, Order *order)
{
    CsvCell read = {.last = false};
    const bool of_primus = source_is_primus(reader->source);
    for (bool first = of_primus; !read.last; first = false) {
        at = csv_cell(reader->source, at, end, &read);
        reader->next = reader->source->text + read.span.begin;
        reader->end = reader->source->text + read.span.end;
        reader->explained = false;
        if (read.fault)
            diag_error(reader->diagnostics, read.span, "rank %u: %s", reader->schedule->ranks, read.fault);
        else if (of_primus && (!first || primus_row(reader)) && (reader->next == reader->end || primus(reader, order)))
            continue;
        else if (!of_primus && (reader->next == reader->end || torch_cell(reader, order) || cell(reader, order)))
            continue;
        else if (!reader->explained)
            bad_cell(reader, read.span);
        reader->good = false;
    }
    return at;
}

static void read_rows(Reader *reader)
{
    Schedule *schedule = reader->schedule;
    const char *text = reader->source->text;
    uint32_t end = (uint32_t)reader->source->size, rows = 0;
    while (end > 0 && isspace((unsigned char)text[end - 1]))
        end--;
    CsvCell read;
    for (uint32_t at = 0; at <= end; rows += read.last)
        at = csv_cell(reader->source, at, end, &read);
    if (rows > PROGRAM_RANKS_MAX) {
        diag_error(reader->diagnostics, (Span){0, 1}, "this order has %u rows, one for each rank: at most %d ranks",
                   rows, PROGRAM_RANKS_MAX);
        reader->good = false;
        return;
    }
    reader->rows = rows;
    if (source_is_primus(reader->source))
        primus_place(reader);
    schedule->orders = arena_array(reader->arena, rows, sizeof *schedule->orders);
    reader->torch = arena_array(reader->arena, rows, sizeof *reader->torch);
    for (uint32_t next, at = 0; schedule->ranks < rows; schedule->ranks++, at = next) {
        Order *order = &schedule->orders[schedule->ranks];
        next = row(reader, at, end, order);
        if (!order->count && reader->good) {
            diag_error(reader->diagnostics, (Span){at, next - 1}, "rank %u has nothing to do: its row has no pass",
                       schedule->ranks);
            diag_help(reader->diagnostics,
                      "write its passes, as 0F0,0B0; for an order of fewer ranks, remove this row");
            reader->good = false;
        }
    }
}

/* " of pipe 1"; "" if the order has only one pipe. */
static const char *of_pipe(const Reader *reader, uint32_t pipe)
{
    return reader->schedule->pipe_count > 1 ? arena_format(reader->arena, " of pipe %u", pipe) : "";
}

/* Reports a pipe of which no rank runs a pass. The error points to the first cell of this pipe, if there is one. */
static void report_no_pass(Reader *reader, uint32_t pipe)
{
    const Schedule *schedule = reader->schedule;
    reader->good = false;
    for (uint32_t r = 0; r < schedule->ranks; r++)
        for (uint32_t i = 0; i < schedule->orders[r].count; i++) {
            const Action *action = &schedule->orders[r].actions[i];
            char name[48];
            if (action->pipe != pipe)
                continue;
            action_text(schedule, action, name, sizeof name);
            diag_error(reader->diagnostics, action->span, "rank %u has %s, but no rank runs any F, B, I or W%s", r,
                       name, of_pipe(reader, pipe));
            diag_help(reader->diagnostics, "add cells for the passes, or remove this cell");
            return;
        }
    diag_error(reader->diagnostics, (Span){0, 1}, "there are cells of pipe %u, but none of pipe %u",
               schedule->pipe_count - 1, pipe);
    diag_help(reader->diagnostics, "pipes are numbered from 0");
}

/* Sets the sizes of the pipes from the cells of passes (not from messages and U). The number of stages is the highest
   stage + 1; the number of microbatches is the number of different microbatches in these cells. */
static void size_pipes(Reader *reader)
{
    Schedule *schedule = reader->schedule;
    uint32_t *highest = arena_array(reader->arena, PROGRAM_PIPES_MAX, sizeof *highest);
    for (uint32_t r = 0; r < schedule->ranks; r++)
        for (uint32_t i = 0; i < schedule->orders[r].count; i++) {
            const Action *action = &schedule->orders[r].actions[i];
            if (action->pipe >= schedule->pipe_count)
                schedule->pipe_count = action->pipe + 1u;
            if (action->kind != ACTION_U && action->microbatch >= highest[action->pipe])
                highest[action->pipe] = action->microbatch + 1;
        }
    schedule->pipes = arena_array(reader->arena, schedule->pipe_count, sizeof *schedule->pipes);
    for (uint32_t p = 0; p < schedule->pipe_count; p++) {
        PlacedPipe *pipe = &schedule->pipes[p];
        bool *seen = arena_array(reader->arena, highest[p], sizeof *seen);
        pipe->name = arena_format(reader->arena, "p%u", p);
        pipe->span = (Span){0, 1};
        pipe->first = schedule->microbatches;
        for (uint32_t r = 0; r < schedule->ranks; r++)
            for (uint32_t i = 0; i < schedule->orders[r].count; i++) {
                const Action *action = &schedule->orders[r].actions[i];
                if (action->pipe != p || action->kind > ACTION_W)
                    continue;
                if (action->stage >= pipe->stages)
                    pipe->stages = action->stage + 1u;
                pipe->microbatches += !seen[action->microbatch];
                seen[action->microbatch] = true;
            }
        if (!pipe->stages && reader->good)
            report_no_pass(reader, p);
        pipe->written = pipe->microbatches;
        schedule->microbatches += pipe->microbatches;
    }
}

/* Reports a stage of which no rank runs a pass. The error points to the first message or update of the stage, if there
   is one. */
static void report_nowhere(Reader *reader, uint32_t pipe, uint32_t stage)
{
    const Schedule *schedule = reader->schedule;
    const uint32_t stages = schedule->pipes[pipe].stages;
    reader->good = false;
    for (uint32_t r = 0; r < schedule->ranks && !diag_full(reader->diagnostics); r++)
        for (uint32_t i = 0; i < schedule->orders[r].count; i++) {
            const Action *action = &schedule->orders[r].actions[i];
            if (action->pipe != pipe || action->stage != stage)
                continue;
            char name[48];
            action_text(schedule, action, name, sizeof name);
            diag_error(reader->diagnostics, action->span,
                       "rank %u has %s, but no rank runs stage %u%s; the order has stages 0 to %u", r, name, stage,
                       of_pipe(reader, pipe), stages - 1);
            return;
        }
    diag_error(reader->diagnostics, (Span){0, 1}, "no rank runs stage %u%s; the order has stages 0 to %u", stage,
               of_pipe(reader, pipe), stages - 1);
}

enum { NOWHERE = UINT16_MAX };

/* For each stage of pipe `p`, sets ranks[stage] to the first rank with a pass of the stage. False, with diagnostics:
   some stage has no pass. */
static bool find_stages(Reader *reader, uint32_t p, uint16_t *ranks)
{
    const Schedule *schedule = reader->schedule;
    const uint32_t stages = schedule->pipes[p].stages;
    bool complete = true;
    memset(ranks, 0xff, stages * sizeof *ranks); /* NOWHERE */
    for (uint32_t r = 0; r < schedule->ranks; r++)
        for (uint32_t i = 0; i < schedule->orders[r].count; i++) {
            const Action *action = &schedule->orders[r].actions[i];
            if (action->pipe == p && action->kind <= ACTION_W && ranks[action->stage] == NOWHERE)
                ranks[action->stage] = (uint16_t)r;
        }
    for (uint32_t s = 0; s < stages; s++)
        if (ranks[s] == NOWHERE) {
            report_nowhere(reader, p, s);
            complete = false;
        }
    return complete;
}

/* Places the stage and microbatch of the pass at `position` on the pass's rank. It is an error if an earlier pass has
   placed them on another rank. first: [stage * microbatches + microbatch], the position of the pass that placed
   them. */
static void take_home(Reader *reader, const PlacedPipe *pipe, uint32_t rank, uint32_t position, uint32_t *first)
{
    const Schedule *schedule = reader->schedule;
    const Action *action = &schedule->orders[rank].actions[position];
    const size_t at = (size_t)action->stage * pipe->microbatches + action->microbatch;
    Home *home = &pipe->homes[at];
    if (home->rank == NOWHERE) {
        home->rank = (uint16_t)rank;
        first[at] = position;
    } else if (home->rank != rank && reader->good) {
        const Action *before = &schedule->orders[home->rank].actions[first[at]];
        char here[48], there[48];
        action_text(schedule, action, here, sizeof here);
        action_text(schedule, before, there, sizeof there);
        diag_error(reader->diagnostics, action->span,
                   "rank %u: %s: microbatch %u already goes through stage %u on rank %u", rank, here,
                   action->microbatch, action->stage, home->rank);
        diag_note(reader->diagnostics, before->span, "%s is here", there);
        diag_help(reader->diagnostics,
                  "a stage may be on several ranks, but runs all passes of a microbatch on one of them");
        reader->good = false;
    }
}

/* Sets `*chunk` to the rank's chunk for a stage: the chunk added last if it is of this stage, else a new one. So all
   calls for a stage of a pipe must follow each other. False: the rank would hold too many chunks. */
static bool take_chunk(Reader *reader, uint32_t rank, uint32_t pipe, uint32_t stage, uint8_t *chunk)
{
    Schedule *schedule = reader->schedule;
    uint32_t *count = &schedule->chunk_counts[rank];
    if (!schedule->chunks[rank])
        schedule->chunks[rank] = arena_array(reader->arena, PROGRAM_CHUNKS_MAX, sizeof **schedule->chunks);
    const PlacedChunk *last = *count ? &schedule->chunks[rank][*count - 1] : NULL;
    if (!last || last->pipe != pipe || last->stage != stage) {
        if (*count == PROGRAM_CHUNKS_MAX) {
            diag_error(reader->diagnostics, schedule->orders[rank].actions[0].span, "rank %u holds more than %d stages",
                       rank, PROGRAM_CHUNKS_MAX);
            return reader->good = false;
        }
        schedule->chunks[rank][(*count)++] = (PlacedChunk){(uint16_t)pipe, (uint16_t)stage};
    }
    *chunk = (uint8_t)(*count - 1);
    return true;
}

/* Completes the homes of a stage: `rank` becomes the home of each microbatch for which no cell has a pass of the stage.
   Also makes the chunks. False: a rank would hold too many chunks. */
static bool place_stage(Reader *reader, uint32_t p, uint32_t stage, uint16_t rank)
{
    PlacedPipe *pipe = &reader->schedule->pipes[p];
    Home *homes = &pipe->homes[(size_t)stage * pipe->microbatches];
    for (uint32_t m = 0; m < pipe->microbatches; m++) {
        if (homes[m].rank == NOWHERE)
            homes[m].rank = rank;
        pipe->replicated |= homes[m].rank != homes[0].rank;
        if (!take_chunk(reader, homes[m].rank, p, stage, &homes[m].chunk))
            return false;
    }
    return true;
}

static bool place_pipe(Reader *reader, uint32_t p)
{
    const Schedule *schedule = reader->schedule;
    PlacedPipe *pipe = &schedule->pipes[p];
    uint16_t *ranks = arena_array(reader->arena, pipe->stages, sizeof *ranks);
    if (!find_stages(reader, p, ranks))
        return false;
    const size_t count = (size_t)pipe->stages * pipe->microbatches;
    /* far too many passes: the file is too large, or most of these passes have no cell */
    if (count > SCHEDULE_PASSES_MAX / 2) {
        diag_error(reader->diagnostics, (Span){0, 1},
                   "%s and %s are %llu forward and backward passes: a schedule can have at most %d",
                   counted(pipe->stages, "stage").text, counted(pipe->microbatches, "microbatch").text, 2ull * count,
                   SCHEDULE_PASSES_MAX);
        return reader->good = false;
    }
    uint32_t *first = arena_array(reader->arena, count, sizeof *first);
    pipe->homes = arena_array(reader->arena, count, sizeof *pipe->homes);
    memset(pipe->homes, 0xff, count * sizeof *pipe->homes); /* NOWHERE */
    for (uint32_t r = 0; r < schedule->ranks; r++)
        for (uint32_t i = 0; i < schedule->orders[r].count; i++) {
            const Action *action = &schedule->orders[r].actions[i];
            if (action->pipe == p && action->kind <= ACTION_W && action->microbatch < pipe->microbatches)
                take_home(reader, pipe, r, i, first);
        }
    for (uint32_t s = 0; s < pipe->stages; s++)
        if (!place_stage(reader, p, s, ranks[s]))
            return false;
    for (uint32_t s = 0; s < pipe->stages && !pipe->replicated; s++)
        pipe->homes[s] = pipe->homes[(size_t)s * pipe->microbatches];
    return true;
}

/* Places the stages of every pipe on the ranks that run them. */
static void place_stages(Reader *reader)
{
    Schedule *schedule = reader->schedule;
    schedule->chunk_counts = arena_array(reader->arena, schedule->ranks, sizeof *schedule->chunk_counts);
    schedule->chunks = arena_array(reader->arena, schedule->ranks, sizeof *schedule->chunks);
    for (uint32_t p = 0; p < schedule->pipe_count; p++) {
        const uint32_t stages = schedule->pipes[p].stages;
        if (stages != schedule->pipes[0].stages) {
            diag_error(reader->diagnostics, (Span){0, 1}, "pipe %u has %s, pipe 0 has %u", p,
                       counted(stages, "stage").text, schedule->pipes[0].stages);
            diag_help(reader->diagnostics, "pipes are copies of the same stages");
            reader->good = false;
        }
        if (!place_pipe(reader, p))
            return;
    }
}

/* Fills in what a cell does not say: the chunk of its action, and the other rank of a message. */
static void complete_actions(Reader *reader)
{
    const Schedule *schedule = reader->schedule;
    for (uint32_t r = 0; r < schedule->ranks; r++)
        for (uint32_t i = 0; i < schedule->orders[r].count; i++) {
            Action *action = &schedule->orders[r].actions[i];
            const PlacedPipe *pipe = &schedule->pipes[action->pipe];
            if (action->stage >= pipe->stages)
                continue;
            if (action->kind == ACTION_U) {
                const PlacedChunk *chunks = schedule->chunks[r];
                for (uint32_t c = 0; c < schedule->chunk_counts[r]; c++)
                    if (chunks[c].pipe == action->pipe && chunks[c].stage == action->stage)
                        action->chunk = (uint8_t)c;
                continue;
            }
            if (action->microbatch >= pipe->microbatches)
                continue; /* the proofs report it */
            action->chunk = stage_home(pipe, action->stage, action->microbatch).chunk;
            const uint32_t other = (uint32_t)action_other_stage(action);
            if (action_is_message(action) && other < pipe->stages)
                action->peer = stage_home(pipe, other, action->microbatch).rank;
        }
}

/* Sets the version of the weights that each microbatch uses. If some F names a version, every F must name one, and all
   F of a microbatch the same one. */
static void place_versions(Reader *reader)
{
    if (!reader->version_count)
        return;
    if (reader->plain.end) {
        diag_error(reader->diagnostics, reader->plain,
                   "this F does not say which version of the weights it uses, but others do");
        diag_note(reader->diagnostics, reader->versions[0].span, "as here");
        reader->good = false;
        return;
    }
    for (uint32_t p = 0; p < reader->schedule->pipe_count; p++) {
        PlacedPipe *pipe = &reader->schedule->pipes[p];
        pipe->versions = arena_array(reader->arena, pipe->microbatches, sizeof *pipe->versions);
        const NamedVersion **first = arena_array(reader->arena, pipe->microbatches, sizeof *first);
        for (uint32_t i = 0; i < reader->version_count; i++) {
            const NamedVersion *named = &reader->versions[i];
            /* prove_passes reports an F of a microbatch that does not exist */
            if (named->pipe != p || named->microbatch >= pipe->microbatches)
                continue;
            if (first[named->microbatch] && pipe->versions[named->microbatch] != named->version) {
                diag_error(reader->diagnostics, named->span,
                           "microbatch %u uses version %u of the weights here, but another one elsewhere",
                           named->microbatch, named->version);
                diag_note(reader->diagnostics, first[named->microbatch]->span,
                          "version %u here; a microbatch uses one version on all stages",
                          pipe->versions[named->microbatch]);
                reader->good = false;
                return;
            }
            first[named->microbatch] = named;
            pipe->versions[named->microbatch] = named->version;
            pipe->version_span = named->span;
        }
    }
}

bool csv_read(const Source *source, Arena *arena, Diagnostics *diagnostics, Schedule *schedule)
{
    Reader reader = {.source = source, .arena = arena, .diagnostics = diagnostics, .schedule = schedule, .good = true};
    const char *slash = strrchr(source->path, '/');
    const char *file = slash ? slash + 1 : source->path;
    *schedule = (Schedule){.name = arena_text(arena, file, strcspn(file, "."))};
    read_rows(&reader);
    if (reader.good)
        size_pipes(&reader);
    if (reader.good)
        place_versions(&reader);
    if (reader.good)
        place_stages(&reader);
    if (reader.good)
        complete_actions(&reader);
    return reader.good && torch_cells_check(reader.torch, arena, diagnostics, schedule);
}
