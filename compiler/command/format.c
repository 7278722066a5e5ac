#include "compiler/command/format.h"

#include "compiler/compile.h"
#include "compiler/tree/parse.h"
#include "base/file.h"

#include <ctype.h>
#include <string.h>

/* Parts of a line that begin in the same column on neighbouring lines; the columns from left to right. */
typedef enum Column {
    COLUMN_NONE,
    COLUMN_COLON,    /* the : before the count of a step */
    COLUMN_BLOCK,    /* the { of a block on one line */
    COLUMN_LAST,     /* a pipe's microbatches */
    COLUMN_OF,       /* the `of` in a pipe's `M of N microbatches` */
    COLUMN_MODIFIER, /* the first modifier of a step */
    COLUMN_REQUIRE,  /* a require that is not first on its line; on a line without one, a comment that is not first */
    COLUMN_COMMENT,  /* a comment after a require of COLUMN_REQUIRE */
    COLUMNS
} Column;

enum { INDENTATION = 4 };

/* A token or a comment. In a word of passes that begins with n, such as nFB, the n and the first pass are one piece.
   */
typedef struct Piece {
    const char *text;
    uint32_t length;
    const char *kind;  /* Token.kind; "#" for a comment */
    uint32_t newlines; /* number of line breaks before this piece in the source; 1 for the first piece */
    bool spaced;       /* the source has white space or a comment before this piece */
    /* the role of the piece in its item: */
    bool of_pass; /* a bracket that belongs to a pass, not to a block or an expression */
    /* is_label: the : after the name of a pipe; is_count: the : before the count of a step */
    bool is_unary, is_label, is_count;
    Column column;
    uint32_t blanks; /* number of spaces before this piece in the formatted line */
} Piece;

typedef struct Line {
    Piece *first, *end;
    uint32_t depth;
    bool after_blank;
} Line;

static bool is(const Piece *piece, const char *text)
{
    return piece && strlen(text) == piece->length && memcmp(piece->text, text, piece->length) == 0 &&
           *piece->kind != '#';
}

static bool is_kind(const Piece *piece, const char *kind) { return piece && strcmp(piece->kind, kind) == 0; }

static bool is_mark(const Piece *piece, const char *marks)
{
    return piece && piece->length == 1 && !is_kind(piece, "name of the schedule") && strchr(marks, *piece->text);
}

/* --- pieces --- */

static void put_piece(Piece **next, Piece piece, const Source *source, uint32_t end)
{
    while (piece.kind[0] == '#' && end > 0 && isspace((unsigned char)source->text[end - 1]))
        end--;
    piece.length = (uint32_t)(source->text + end - piece.text);
    *(*next)++ = piece;
}

/* Splits the source into tokens and comments. */
static Piece *take_apart(const Source *source, Arena *arena, Piece **end)
{
    uint32_t count, comments = 0, at = 0;
    const Token *tokens = read_tokens(source, arena, &count);
    for (size_t i = 0; i < source->size; i++)
        comments += source->text[i] == '#';
    Piece *pieces = arena_array(arena, count + comments, sizeof *pieces), *next = pieces;
    for (uint32_t i = 0; i <= count; i++) {
        const uint32_t limit = i < count ? tokens[i].span.begin : (uint32_t)source->size;
        Piece piece = {.kind = "#"};
        for (; at < limit; at++) {
            const char byte = source->text[at];
            if (byte == '#') {
                const char *newline = memchr(source->text + at, '\n', limit - at);
                piece.text = source->text + at;
                at = newline ? (uint32_t)(newline - source->text) : limit;
                put_piece(&next, piece, source, at);
                piece = (Piece){.kind = "#", .newlines = at < limit, .spaced = true};
                if (at == limit)
                    break;
                /* the n before a word of passes is no token: it becomes part of the first pass */
            } else if (byte == 'n' && at + 1 == limit) {
                break;
            } else {
                piece.newlines += byte == '\n';
                piece.spaced = true;
            }
        }
        if (i == count)
            break;
        piece.kind = tokens[i].kind;
        piece.text = source->text + at;
        at = tokens[i].span.end;
        put_piece(&next, piece, source, at);
    }
    if (next > pieces)
        pieces->newlines = 1;
    *end = next;
    return pieces;
}

/* --- the role of each piece --- */

typedef struct Brackets {
    char *open; /* a stack of the open brackets, one byte each: ( [ {, and p for the { or [ of a pass */
    uint32_t count, blocks;
} Brackets;

/* Walks along the pieces of a source that parses. */
typedef struct Walk {
    Brackets brackets;
    /* item: the first piece of the current item, NULL between items; before: the last piece that is no comment */
    const Piece *item, *before;
    /* questions: number of ? whose : is still to come; commas: number of commas in the item so far, outside brackets
       */
    uint32_t questions, commas;
    bool of_pass; /* the last piece that is no comment is a pass or the closing bracket of a pass */
    bool has_modifier;
} Walk;

static bool ends_value(const Piece *piece)
{
    return is_kind(piece, "name") || is_kind(piece, "number") || is_mark(piece, ")");
}

static bool is_word(const Piece *piece)
{
    return isalpha((unsigned char)*piece->text) && !is_kind(piece, "name") && !is_kind(piece, "pass") &&
           !is_kind(piece, "name of the schedule");
}

static void open_bracket(Walk *walk, Piece *piece)
{
    const bool of_pass = *piece->text != '(' && walk->of_pass && !is(walk->item, "overlap");
    piece->of_pass = of_pass;
    walk->brackets.open[walk->brackets.count++] = of_pass ? 'p' : *piece->text;
    walk->brackets.blocks += *piece->text == '{' && !of_pass;
}

static void close_bracket(Walk *walk, Piece *piece)
{
    const char open = walk->brackets.count ? walk->brackets.open[--walk->brackets.count] : '{';
    piece->of_pass = open == 'p';
    walk->brackets.blocks -= open == '{';
}

static bool in_step(const Walk *walk) { return is_kind(walk->item, "pass") || is(walk->item, "at"); }

static Column column_of(const Walk *walk, const Piece *piece, bool first_in_line, bool first_item)
{
    if (first_in_line)
        return COLUMN_NONE;
    if (*piece->kind == '#')
        return COLUMN_REQUIRE;
    if (piece->is_count && first_item)
        return COLUMN_COLON;
    if (is_mark(piece, "{") && !piece->of_pass && first_item)
        return COLUMN_BLOCK;
    if (is(walk->item, "pipe") && first_item && walk->commas == 2 && is_mark(walk->before, ","))
        return COLUMN_LAST;
    if (is(walk->item, "pipe") && first_item && walk->commas == 2 && is(piece, "of"))
        return COLUMN_OF;
    if (in_step(walk) && first_item && !walk->has_modifier && piece != walk->item && is_word(piece))
        return COLUMN_MODIFIER;
    return is(piece, "require") ? COLUMN_REQUIRE : COLUMN_NONE;
}

static void understand_colon(Walk *walk, Piece *piece)
{
    if (walk->questions)
        walk->questions--;
    else if (in_step(walk))
        piece->is_count = true;
    else
        piece->is_label = true;
}

static void understand(Walk *walk, Piece *piece, bool first_in_line, const Piece **line_item)
{
    if (*piece->kind == '#') {
        piece->column = column_of(walk, piece, first_in_line, false);
        return;
    }
    if (!walk->item && !is_mark(piece, "}")) {
        walk->item = piece;
        walk->questions = walk->commas = 0;
        walk->has_modifier = false;
    }
    if (first_in_line)
        *line_item = walk->item;
    if (is_mark(piece, "([{"))
        open_bracket(walk, piece);
    else if (is_mark(piece, ")]}"))
        close_bracket(walk, piece);
    else if (is_mark(piece, "?"))
        walk->questions++;
    else if (is_mark(piece, ":"))
        understand_colon(walk, piece);
    piece->is_unary = is_mark(piece, "!") || (is_mark(piece, "-") && !ends_value(walk->before));
    piece->column = column_of(walk, piece, first_in_line, walk->item && walk->item == *line_item);
    walk->has_modifier |= piece->column == COLUMN_MODIFIER;
    walk->commas += is_mark(piece, ",") && walk->brackets.count == walk->brackets.blocks;
    walk->of_pass = is_kind(piece, "pass") || (is_mark(piece, "]}") && piece->of_pass);
    walk->before = piece;
    if (is_mark(piece, ";") || (is_mark(piece, "{}") && !piece->of_pass))
        walk->item = NULL;
}

/* --- lines --- */

static bool is_sum(const Piece *piece) { return is_mark(piece, "+-*/%") && !piece->is_unary; }

static uint32_t blanks_between(const Piece *before, const Piece *piece, bool spaced_behind)
{
    if (is_mark(piece, ";,)]") || (is_mark(piece, "{}[") && piece->of_pass) || piece->is_label)
        return 0;
    if (is_mark(before, "([") || (is_mark(before, "{") && before->of_pass) || before->is_unary)
        return 0;
    if (is_mark(piece, "(") && (is_kind(before, "name") || is(before, "auto")))
        return 0;
    if (is_mark(piece, "&") || is_mark(before, "&"))
        return 0;
    if (is_sum(piece))
        return piece->spaced || spaced_behind;
    if (is_sum(before))
        return before->newlines || before->blanks;
    if (is_kind(piece, "pass") && (is_kind(before, "pass") || before->of_pass))
        return piece->spaced;
    return 1;
}

/* Corrects the columns of the pieces of a line. A { gets no column if its block does not end on the line. If several
   pieces have the same column, only the first keeps it. A comment after a require moves to COLUMN_COMMENT. */
static void choose_columns(Line *line)
{
    bool taken[COLUMNS] = {false};
    uint32_t open = 0;
    for (Piece *piece = line->end; piece-- > line->first;) {
        open += is_mark(piece, "}") && !piece->of_pass;
        if (is_mark(piece, "{") && !piece->of_pass) {
            if (!open)
                piece->column = COLUMN_NONE;
            open -= open > 0;
        }
    }
    for (Piece *piece = line->first; piece < line->end; piece++) {
        if (piece->column == COLUMN_REQUIRE && taken[COLUMN_REQUIRE])
            piece->column = *piece->kind == '#' ? COLUMN_COMMENT : COLUMN_NONE;
        if (taken[piece->column])
            piece->column = COLUMN_NONE;
        taken[piece->column] |= piece->column != COLUMN_NONE;
    }
}

static void set_blanks(Line *line)
{
    for (Piece *piece = line->first + 1; piece < line->end; piece++)
        piece->blanks = blanks_between(piece - 1, piece, piece + 1 < line->end ? piece[1].spaced : true);
}

static Line *find_lines(Piece *pieces, Piece *end, Arena *arena, uint32_t *count)
{
    Walk walk = {.brackets.open = arena_array(arena, (size_t)(end - pieces), 1)};
    Line *lines = arena_array(arena, (size_t)(end - pieces), sizeof *lines), *line = NULL;
    const Piece *line_item = NULL;
    *count = 0;
    for (Piece *piece = pieces; piece < end; piece++) {
        const bool first = piece->newlines > 0;
        if (first) {
            line = &lines[(*count)++];
            *line = (Line){.first = piece, .depth = walk.brackets.blocks, .after_blank = piece->newlines > 1};
            line->depth += walk.item && !is_mark(piece, "{"); /* a line that continues an item is one level deeper */
            line->depth -= line->depth && is_mark(piece, "}") && !walk.item;
            line_item = NULL;
        }
        understand(&walk, piece, first, &line_item);
        line->end = piece + 1;
    }
    for (uint32_t i = 0; i < *count; i++) {
        choose_columns(&lines[i]);
        set_blanks(&lines[i]);
    }
    return lines;
}

/* --- columns --- */

static Piece *in_column(const Line *line, Column column)
{
    for (Piece *piece = line->first; piece < line->end; piece++)
        if (piece->column == column)
            return piece;
    return NULL;
}

/* The width of the formatted line in characters, up to the end of the piece before `end`. */
static uint32_t width_before(const Line *line, const Piece *end)
{
    uint32_t width = INDENTATION * line->depth;
    for (const Piece *piece = line->first; piece < end; piece++) {
        width += piece->blanks;
        for (uint32_t i = 0; i < piece->length; i++)
            width += ((unsigned char)piece->text[i] & 0xc0) != 0x80;
    }
    return width;
}

/* Whether the line has only a comment. */
static bool is_comment(const Line *line) { return *line->first->kind == '#'; }

/* Aligns the pieces that a group of lines has in the column. A group ends before a blank line and before a line of
   another depth; for columns before COLUMN_MODIFIER, also at a line without a piece in the column. Lines with only a
   comment do not end a group. */
static void align(Line *lines, uint32_t count, Column column)
{
    static const uint32_t gaps[COLUMNS] = {
        [COLUMN_COLON] = 1,    [COLUMN_BLOCK] = 1,   [COLUMN_LAST] = 3,   [COLUMN_OF] = 1,
        [COLUMN_MODIFIER] = 3, [COLUMN_REQUIRE] = 4, [COLUMN_COMMENT] = 4};
    const bool may_lack = column >= COLUMN_MODIFIER;
    uint32_t next;
    for (uint32_t i = 0; i < count; i = next) {
        uint32_t width = 0, rows = 0, modified = 0;
        for (next = i; next < count; next++) {
            const Piece *piece = in_column(&lines[next], column);
            if (next > i &&
                (lines[next].after_blank || (!is_comment(&lines[next]) && lines[next].depth != lines[i].depth)))
                break;
            if (!piece && !may_lack && !is_comment(&lines[next])) {
                next += next == i;
                break;
            }
            const uint32_t before = piece ? width_before(&lines[next], piece) : 0;
            width = before > width ? before : width;
            rows += piece != NULL;
            modified += in_column(&lines[next], COLUMN_MODIFIER) != NULL;
        }
        uint32_t gap = gaps[column];
        if (column == COLUMN_LAST && rows < 2)
            gap = 1;
        /* if a step of the group has a modifier, passes, counts and modifiers form a table, with wider gaps */
        if (column == COLUMN_COLON && modified)
            gap = 2;
        for (uint32_t k = i; k < next; k++) {
            Piece *piece = in_column(&lines[k], column);
            if (piece)
                piece->blanks = width + gap - width_before(&lines[k], piece);
        }
    }
}

/* --- the whole file --- */

char *format_source(const Source *source, Arena *arena, Diagnostics *diagnostics, size_t *size)
{
    if (!parse(source, arena, diagnostics))
        return NULL;
    Piece *end, *pieces = take_apart(source, arena, &end);
    uint32_t count;
    Line *lines = find_lines(pieces, end, arena, &count);
    for (Column column = COLUMN_COLON; column < COLUMNS; column++)
        align(lines, count, column);
    *size = 0;
    for (uint32_t i = 0; i < count; i++) {
        *size += 2 + INDENTATION * lines[i].depth;
        for (const Piece *piece = lines[i].first; piece < lines[i].end; piece++)
            *size += piece->blanks + piece->length;
    }
    char *text = arena_allocate(arena, *size + 1), *next = text;
    for (uint32_t i = 0; i < count; i++) {
        if (i && lines[i].after_blank)
            *next++ = '\n';
        lines[i].first->blanks = INDENTATION * lines[i].depth;
        for (const Piece *piece = lines[i].first; piece < lines[i].end; piece++) {
            memset(next, ' ', piece->blanks);
            memcpy(next + piece->blanks, piece->text, piece->length);
            next += piece->blanks + piece->length;
        }
        *next++ = '\n';
    }
    *next = '\0';
    *size = (size_t)(next - text);
    return text;
}

/* --- the command --- */

static Status format_file(const char *path, bool check, Arena *arena, bool *changes, Error *error)
{
    Source source;
    OutputFile file;
    size_t size;
    const bool is_filter = strcmp(path, "-") == 0;
    TRY(source_read(path, arena, &source, error));
    if (source_is_order(&source))
        return error_set(error, STATUS_BAD_USAGE, "fmt: %s is an order, not a schedule file", path);
    if (is_filter)
        source.path = "standard input";
    Diagnostics *diagnostics = diag_new(arena, &source);
    const char *text = format_source(&source, arena, diagnostics, &size);
    if (!text) {
        diag_print(diagnostics, stderr);
        return STATUS_BAD_INPUT;
    }
    *changes = size != source.size || memcmp(text, source.text, size) != 0;
    if (check && *changes)
        printf("%s\n", source.path);
    if (check || (!*changes && !is_filter))
        return STATUS_OK;
    TRY(file_begin(path, &file, error));
    fwrite(text, 1, size, file.stream);
    return file_finish(&file, error);
}

Status format_command(int argc, char **argv, Arena *arena, Error *error)
{
    const bool check = argc > 0 && strcmp(argv[0], "--check") == 0;
    Status worst = STATUS_OK;
    if (argc == check)
        return error_set(error, STATUS_BAD_USAGE,
                         "fmt: no file given: dpc fmt [--check] FILE.dps..., or - for standard input; "
                         "dpc --help says more");
    for (int i = check; i < argc; i++) {
        bool changes = false;
        if (argv[i][0] == '-' && argv[i][1])
            return error_set(error, STATUS_BAD_USAGE, "fmt: %s: the only option is --check, before the files", argv[i]);
        const Status status = format_file(argv[i], check, arena, &changes, error);
        if (status > STATUS_BAD_INPUT || *error->text)
            return status;
        if (status != STATUS_OK || (check && changes))
            worst = STATUS_BAD_INPUT;
    }
    return worst;
}
