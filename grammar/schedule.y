/* The grammar of a schedule file: from tokens to a tree. LANGUAGE.md explains the language; check resolves names. */

%define api.pure full
%define api.prefix {schedule_}
%define api.token.prefix {TOKEN_}
%define api.value.type union
%define api.location.type {Span}
%define parse.error custom
%define parse.lac full
%locations
%expect 0

%initial-action { (void)yynerrs; } /* bison's count of errors, which nothing reads */

%param { yyscan_t scanner }
%parse-param { Reader *reader }

%code requires {
#include "grammar/reader.h"

#ifndef YY_TYPEDEF_YY_SCANNER_T
#define YY_TYPEDEF_YY_SCANNER_T
typedef void *yyscan_t;
#endif

typedef struct WrittenPass {
    ActionKind kind;
    int chunk;
} WrittenPass;

typedef struct WrittenVersion {
    Name microbatch;
    Expression *version;
} WrittenVersion;
}

%code {
#include "compiler/tree/parse.h"
#include "grammar/around.h"
#include "grammar/schedule.lex.h"
#include "grammar/syntax_error.h"

#include <setjmp.h>

#define YYLLOC_DEFAULT(place, right, count)                                               \
    do {                                                                                  \
        (place).begin = (count) ? YYRHSLOC(right, 1).begin : YYRHSLOC(right, 0).end;      \
        (place).end = YYRHSLOC(right, count).end;                                         \
    } while (0)

static void schedule_error(const Span *place, yyscan_t scanner, Reader *reader, const char *message);
static Expression *node(Reader *reader, ExpressionKind kind, Span span, Expression *left, Expression *right);
static Expression *named(Reader *reader, ExpressionKind kind, Span span, Symbol *symbol, Expression *operands);
static Symbol *symbol_at(Reader *reader, Span span);
static Item *item(Reader *reader, Item fields);
static Item *declared(Reader *reader, ItemKind kind, Span span, Name name, Expression *value);
static void second_microbatch(Reader *reader, const Pass *pass, Span span, const Expression *second);
static void recipe_pair(Reader *reader, WrittenPass first, WrittenPass second, Span span);
static Item *choice(Reader *reader, Span span, Expression *condition, Item *then, Item *otherwise);
static Item step(Span span, PassList passes, Expression *count, Item modifiers);
static Item both(Reader *reader, Item modifiers, Item added, Span span);

#define APPEND(list, element)                                                             \
    do {                                                                                  \
        if ((list).last)                                                                  \
            (list).last->next = (element);                                                \
        else                                                                              \
            (list).first = (element);                                                     \
        (list).last = (element);                                                          \
    } while (0)
}

%token SCHEDULE "schedule" RANKS "ranks" MICROBATCHES "microbatches" PARAM "param" LET "let" REQUIRE "require"
%token PIPE "pipe" STAGES "stages" STAGE "stage" MICROBATCH "microbatch" VERSION "version" ON "on" OF "of"
%token CHUNK "chunk" AT "at" REPEAT "repeat" IF "if" ELSE "else"
%token OVERLAP "overlap" SPLIT "split" FROM "from" ORDER "order" AUTO "auto" SQUEEZE "squeeze"
%token AND "&&" OR "||" EQUAL "==" UNEQUAL "!=" LESS_EQUAL "<=" GREATER_EQUAL ">="
%token <const char *> TITLE "name of the schedule"
%token <Symbol *> NAME "name"
%token <int64_t> NUMBER "number"
%token <const char *> STRING "message"
%token <WrittenPass> PASS "pass"
%token EOF 0 "end of the file"

%right '?' ':'
%left "||"
%left "&&"
%nonassoc "==" "!="
%nonassoc '<' "<=" '>' ">="
%left '+' '-'
%left '*' '/' '%'
%precedence UNARY

%type <ItemList> items block
%type <Item *> item if
%type <Item> step modifiers modifier
%type <PassList> passes
%type <Pass *> pass
%type <Symbol *> replica
%type <WrittenVersion> version
%type <StreamList> streams
%type <WrittenStream *> stream
%type <WrittenShare> share
%type <WrittenPair> pair
%type <EntryList> entries
%type <WrittenEntry *> entry
%type <Expression *> expression condition written cost
%type <ExpressionList> arguments
%type <SettingList> settings
%type <WrittenSetting *> setting

%%

file: title items                       { reader->ast->items = $items.first; }

title: "schedule" TITLE end             { reader->ast->schedule = $TITLE; }
    | error

items: %empty                           { $$ = (ItemList){NULL, NULL}; }
    | items[list] item                  { $$ = $list; if ($item) APPEND($$, $item); }

item: "ranks" NAME '=' expression end   { $$ = declared(reader, ITEM_RANKS, @$, (Name){$NAME, @NAME}, $expression); }
    | "microbatches" NAME '=' expression end
                                        {
        $$ = declared(reader, ITEM_MICROBATCHES, @$, (Name){$NAME, @NAME}, $expression);
    }
    | "param" NAME '=' expression end   { $$ = declared(reader, ITEM_PARAM, @$, (Name){$NAME, @NAME}, $expression); }
    | "let" NAME '=' expression end     { $$ = declared(reader, ITEM_LET, @$, (Name){$NAME, @NAME}, $expression); }
    | "require" expression ',' STRING end
                                        {
        $$ = item(reader, (Item){.kind = ITEM_REQUIRE, .span = @expression, .value = $expression, .message = $STRING});
    }
    | "pipe" NAME[pipe] ':' expression[stages] "stages" ',' "stage" NAME[stage] replica "on" expression[rank] ','
      expression[microbatches] written "microbatches" version end
                                        {
        $$ = item(reader, (Item){.kind = ITEM_PIPE, .span = @$, .name = {$pipe, @pipe},
                                 .pipe = {.stages = $stages, .stage = {$stage, @stage},
                                          .microbatch = {$replica, @replica}, .rank = $rank,
                                          .microbatches = $microbatches, .written = $written,
                                          .version_of = $version.microbatch, .version = $version.version}});
    }
    | "chunk" NUMBER '=' expression end {
        $$ = item(reader, (Item){.kind = ITEM_CHUNK, .span = @$, .value = $expression,
                                 .chunk = $NUMBER < UINT32_MAX ? (uint32_t)$NUMBER : UINT32_MAX});
    }
    | "order" "auto" '(' settings ')' end
                                        {
        $$ = item(reader, (Item){.kind = ITEM_ORDER, .span = {@1.begin, @5.end},
                                 .order = {.written = $settings.first}});
    }
    | "overlap" pair '{' streams '}'    {
        $$ = item(reader, (Item){.kind = ITEM_RECIPE, .span = {@1.begin, @pair.end},
                                 .recipe = {.pair = $pair, .streams = $streams.first}});
    }
    | "overlap" pair "auto" share end   {
        $$ = item(reader, (Item){.kind = ITEM_RECIPE, .span = {@1.begin, @3.end},
                                 .recipe = {.pair = $pair, .automatic = true, .share = $share}});
    }
    | "overlap" error '}'               { $$ = NULL; }
    | step                              { $$ = item(reader, $step); }
    | "at" expression ':' step          {
        $step.span.begin = @1.begin;
        $step.step.slot = $expression;
        $$ = item(reader, $step);
    }
    | "squeeze" end                     { $$ = item(reader, (Item){.kind = ITEM_SQUEEZE, .span = @1}); }
    | "squeeze" "if" expression end     {
        $$ = item(reader, (Item){.kind = ITEM_SQUEEZE, .span = {@1.begin, @expression.end}, .value = $expression});
    }
    | "repeat" NAME '<' expression block
                                        {
        $$ = item(reader, (Item){.kind = ITEM_REPEAT, .span = {@1.begin, @expression.end}, .name = {$NAME, @NAME},
                                 .value = $expression, .block = {.body = $block.first}});
    }
    | "repeat" error block              { $$ = NULL; }
    | if
    | error ';'                         {
        $$ = NULL;
        while (reader->open && reader->open->bracket != '{')
            reader->open = reader->open->outer;
        if (!reader->open) /* in a block, bison does not report the next errors: they may follow from this one */
            yyerrok;
    }

end: ';'
    | error /* the `;` is missing: the next item is read as usual */

if: condition block                     { $$ = choice(reader, @condition, $condition, $block.first, NULL); }
    | condition block[then] "else" block[otherwise]
                                        { $$ = choice(reader, @condition, $condition, $then.first, $otherwise.first); }
    | condition block "else" if[otherwise]
                                        { $$ = choice(reader, @condition, $condition, $block.first, $otherwise); }

condition: "if" expression              { $$ = $expression; }
    | "if" error                        { $$ = NULL; }
    | error                             { $$ = NULL; } /* `for` or `elif` of another language, before a block */

block: '{' items '}'                    { $$ = $items; }
    | '{' items error '}'               { $$ = $items; }

step: passes end                        { $$ = step(@passes, $passes, NULL, (Item){.kind = ITEM_STEP}); }
    | passes modifiers end              { $$ = step((Span){@1.begin, @modifiers.end}, $passes, NULL, $modifiers); }
    | passes ':' expression end         {
        $$ = step((Span){@1.begin, @expression.end}, $passes, $expression, (Item){.kind = ITEM_STEP});
    }
    | passes ':' expression modifiers end
                                        {
        $$ = step((Span){@1.begin, @modifiers.end}, $passes, $expression, $modifiers);
    }

passes: pass                            { $$ = (PassList){$pass, $pass}; }
    | passes[list] pass                 { $$ = $list; APPEND($$, $pass); }
    | passes[list] '&' pass             { $$ = $list; $$.last->joined = true; APPEND($$, $pass); }

pass: PASS                              {
        $$ = arena_allocate(reader->arena, sizeof *$$);
        *$$ = (Pass){.span = @PASS, .kind = $PASS.kind, .chunk = $PASS.chunk};
    }
    | pass[inner] '{' expression '}'    {
        $$ = $inner;
        if ($$->computed_chunk || $$->microbatch)
            diag_error(reader->diagnostics, @$, "a pass is written F{chunk}[microbatch]: the chunk first, and "
                       "each part at most once");
        $$->computed_chunk = $expression;
        $$->span.end = @$.end;
    }
    | pass[inner] '[' expression ']'    {
        $$ = $inner;
        if ($$->microbatch)
            second_microbatch(reader, $$, @$, $expression);
        $$->microbatch = $expression;
        $$->span.end = @$.end;
    }

modifiers: modifier
    | modifiers[list] modifier          { $$ = both(reader, $list, $modifier, @modifier); }

modifier: "overlap"                     { $$ = (Item){.kind = ITEM_STEP, .step = {.overlap = true}}; }
    | "overlap" "from" expression       {
        $$ = (Item){.kind = ITEM_STEP, .step = {.overlap = true, .overlap_from = $expression}};
    }
    | "split" "from" expression         { $$ = (Item){.kind = ITEM_STEP, .step = {.split_from = $expression}}; }

replica: %empty                         { $$ = NULL; }
    | "of" NAME                         { $$ = $NAME; @$ = @NAME; }

written: %empty                         { $$ = NULL; }
    | "of" expression                   { $$ = $expression; }

version: %empty                         { $$ = (WrittenVersion){.version = NULL}; }
    | ',' "microbatch" NAME "on" "version" expression
                                        { $$ = (WrittenVersion){{$NAME, @NAME}, $expression}; }

expression: NUMBER                      { $$ = node(reader, EXPRESSION_NUMBER, @$, NULL, NULL); $$->number = $NUMBER; }
    | NAME                              { $$ = named(reader, EXPRESSION_NAME, @$, $NAME, NULL); }
    | NAME '(' arguments ')'            { $$ = named(reader, EXPRESSION_CALL, @$, $NAME, $arguments.first); }
    | NAME '(' cost ')'                 { $$ = named(reader, EXPRESSION_CALL, @$, $NAME, $cost); }
    | '(' expression[inner] ')'         { $$ = $inner; $$->span = @$; }
    | '-' expression[a] %prec UNARY     { $$ = node(reader, EXPRESSION_NEGATE, @$, $a, NULL); }
    | '!' expression[a] %prec UNARY     { $$ = node(reader, EXPRESSION_NOT, @$, $a, NULL); }
    | expression[a] '*' expression[b]   { $$ = node(reader, EXPRESSION_MULTIPLY, @$, $a, $b); }
    | expression[a] '/' expression[b]   { $$ = node(reader, EXPRESSION_DIVIDE, @$, $a, $b); }
    | expression[a] '%' expression[b]   { $$ = node(reader, EXPRESSION_REMAINDER, @$, $a, $b); }
    | expression[a] '+' expression[b]   { $$ = node(reader, EXPRESSION_ADD, @$, $a, $b); }
    | expression[a] '-' expression[b]   { $$ = node(reader, EXPRESSION_SUBTRACT, @$, $a, $b); }
    | expression[a] '<' expression[b]   { $$ = node(reader, EXPRESSION_LESS, @$, $a, $b); }
    | expression[a] "<=" expression[b]  { $$ = node(reader, EXPRESSION_LESS_EQUAL, @$, $a, $b); }
    | expression[a] '>' expression[b]   { $$ = node(reader, EXPRESSION_GREATER, @$, $a, $b); }
    | expression[a] ">=" expression[b]  { $$ = node(reader, EXPRESSION_GREATER_EQUAL, @$, $a, $b); }
    | expression[a] "==" expression[b]  { $$ = node(reader, EXPRESSION_EQUAL, @$, $a, $b); }
    | expression[a] "!=" expression[b]  { $$ = node(reader, EXPRESSION_UNEQUAL, @$, $a, $b); }
    | expression[a] "&&" expression[b]  { $$ = node(reader, EXPRESSION_AND, @$, $a, $b); }
    | expression[a] "||" expression[b]  { $$ = node(reader, EXPRESSION_OR, @$, $a, $b); }
    | expression[a] '?' expression[b] ':' expression[c]
                                        { $b->next = $c; $$ = node(reader, EXPRESSION_CHOOSE, @$, $a, $b); }

pair: PASS[first] '&' PASS[second]      {
        $$ = (WrittenPair){.forward = $second.kind == ACTION_F, .chunks = {$first.chunk, $second.chunk}};
        recipe_pair(reader, $first, $second, @$);
    }
    | PASS '{' expression '}' '&' PASS '{' expression '}'
                                        {
        $$ = (WrittenPair){.chunks = {NO_CHUNK, NO_CHUNK}};
        diag_error(reader->diagnostics, @$, "a recipe names its chunks with digits: overlap F0&B1 { ... }");
    }

streams: stream                         { $$ = (StreamList){$stream, $stream}; }
    | streams[list] stream              { $$ = $list; APPEND($$, $stream); }

stream: NAME ':' entries share ';'      {
        $$ = arena_allocate(reader->arena, sizeof *$$);
        *$$ = (WrittenStream){.name = {$NAME, @NAME}, .entries = $entries.first, .share = $share};
    }

share: %empty                           { $$ = (WrittenShare){NULL, NULL}; }
    | "on" expression[part] "of" expression[whole]
                                        { $$ = (WrittenShare){$part, $whole}; }

entries: entry                          { $$ = (EntryList){$entry, $entry}; }
    | entries[list] entry               { $$ = $list; APPEND($$, $entry); }

entry: NAME '(' PASS ')'                {
        $$ = arena_allocate(reader->arena, sizeof *$$);
        *$$ = (WrittenEntry){.span = @$, .component = {$NAME, @NAME}, .pass = $PASS.kind, .chunk = $PASS.chunk,
                             .half = NO_HALF};
    }
    | NAME '(' NUMBER ')'               {
        $$ = arena_allocate(reader->arena, sizeof *$$);
        *$$ = (WrittenEntry){.span = @$, .component = {$NAME, @NAME}, .pass = ACTION_F, .chunk = NO_CHUNK,
                             .half = $NUMBER};
    }

settings: setting                       { $$ = (SettingList){$setting, $setting}; }
    | settings[list] ',' setting        { $$ = $list; APPEND($$, $setting); }

setting: NAME '=' expression            {
        $$ = arena_allocate(reader->arena, sizeof *$$);
        *$$ = (WrittenSetting){.name = {$NAME, @NAME}, .value = $expression};
    }
    | "overlap"                         {
        $$ = arena_allocate(reader->arena, sizeof *$$);
        *$$ = (WrittenSetting){.name.span = @1};
    }

cost: PASS                              { $$ = named(reader, EXPRESSION_NAME, @$, symbol_at(reader, @$), NULL); }
    | PASS PASS                         { $$ = named(reader, EXPRESSION_NAME, @$, symbol_at(reader, @$), NULL); }

arguments: expression                   { $$ = (ExpressionList){$expression, $expression}; }
    | arguments[list] ',' expression    { $$ = $list; APPEND($$, $expression); }

%%

static void too_deep(Reader *reader, Span span)
{
    if (!reader->too_deep)
        diag_error(reader->diagnostics, span, "this is nested too deeply or too long: name parts of an expression with "
                   "`let`, and nest fewer blocks");
    reader->too_deep = true;
}

/* bison calls this when its stack is full; it calls yyreport_syntax_error for syntax errors. */
static void schedule_error(const Span *place, yyscan_t scanner, Reader *reader, const char *message)
{
    (void)scanner;
    (void)message;
    too_deep(reader, *place);
}

static int yyreport_syntax_error(const yypcontext_t *context, yyscan_t scanner, Reader *reader)
{
    (void)scanner;
    _Static_assert(TOKEN_CODES > YYMAXUTOK, "syntax_error.h counts too few");
    yysymbol_kind_t expected[YYNTOKENS];
    const int count = yypcontext_expected_tokens(context, expected, YYNTOKENS);
    SyntaxError error = {.span = *yypcontext_location(context)};
    for (int code = 0; code <= YYMAXUTOK; code++) {
        if (YYTRANSLATE(code) == yypcontext_token(context))
            error.found = code;
        for (int i = 0; i < count; i++)
            error.expected[code] |= YYTRANSLATE(code) == expected[i];
    }
    syntax_error(reader, &error);
    return 0;
}

/* Makes an expression whose operands are `left` and then `right`, which may be a list of operands. */
static Expression *node(Reader *reader, ExpressionKind kind, Span span, Expression *left, Expression *right)
{
    if (left)
        left->next = right;
    Expression *made = expression_new(reader->arena, kind, span, left);
    if (made->depth > EXPRESSION_DEPTH_MAX)
        too_deep(reader, span);
    return made;
}

static Expression *named(Reader *reader, ExpressionKind kind, Span span, Symbol *symbol, Expression *operands)
{
    Expression *made = expression_new(reader->arena, kind, span, operands);
    made->symbol = symbol;
    return made;
}

static Symbol *symbol_at(Reader *reader, Span span)
{
    return reader_symbol(reader, reader->source->text + span.begin, span.end - span.begin);
}

static uint32_t deepest(const Item *items)
{
    uint32_t depth = 0;
    for (; items; items = items->next)
        depth = items->depth > depth ? items->depth : depth;
    return depth;
}

static Item *item(Reader *reader, Item fields)
{
    Item *made = arena_allocate(reader->arena, sizeof *made);
    *made = fields;
    if (made->kind == ITEM_REPEAT || made->kind == ITEM_IF) {
        const uint32_t body = deepest(made->block.body), otherwise = deepest(made->block.otherwise);
        made->depth = 1 + (body > otherwise ? body : otherwise);
        if (made->depth > BLOCK_DEPTH_MAX)
            too_deep(reader, made->span);
    }
    return made;
}

static Item *declared(Reader *reader, ItemKind kind, Span span, Name name, Expression *value)
{
    return item(reader, (Item){.kind = kind, .span = span, .name = name, .value = value});
}

/* F[c][m] */
static void second_microbatch(Reader *reader, const Pass *pass, Span span, const Expression *second)
{
    diag_error(reader->diagnostics, span, "a pass names one microbatch");
    if (pass->chunk == NO_CHUNK && !pass->computed_chunk)
        diag_help(reader->diagnostics, "a computed chunk is written in { }: %c{%s}[%s]",
                  action_letter((uint8_t)pass->kind),
                  text_of(reader, pass->microbatch->span), text_of(reader, second->span));
}

/* Checks the head of a recipe: overlap F&B, overlap F0&B1, overlap F&F or overlap F0&F1. */
static void recipe_pair(Reader *reader, WrittenPass first, WrittenPass second, Span span)
{
    if (first.kind != ACTION_F || (second.kind != ACTION_B && second.kind != ACTION_F))
        diag_error(reader->diagnostics, span, "a recipe is for an F and a B, or for two F: write overlap F&B { ... } "
                   "or overlap F&F { ... }");
    else if ((first.chunk == NO_CHUNK) != (second.chunk == NO_CHUNK))
        diag_error(reader->diagnostics, span, "a recipe names the chunks of both halves, as in overlap F0&%c1 { ... }, "
                   "or of neither", action_letter((uint8_t)second.kind));
}

static Item *choice(Reader *reader, Span span, Expression *condition, Item *then, Item *otherwise)
{
    return item(reader, (Item){.kind = ITEM_IF, .span = span, .value = condition,
                               .block = {.body = then, .otherwise = otherwise}});
}

static Item step(Span span, PassList passes, Expression *count, Item modifiers)
{
    modifiers.span = span;
    modifiers.step.passes = passes.first;
    modifiers.value = count;
    return modifiers;
}

/* Adds the modifier `added`, which is at `span`, to the modifiers of a step. Reports a modifier that is given twice. */
static Item both(Reader *reader, Item modifiers, Item added, Span span)
{
    if (modifiers.step.overlap && added.step.overlap)
        diag_error(reader->diagnostics, span, "`overlap` is given twice in this step");
    if (modifiers.step.split_from && added.step.split_from)
        diag_error(reader->diagnostics, span, "`split` is given twice in this step");
    if (added.step.split_from)
        modifiers.step.split_from = added.step.split_from;
    else
        modifiers.step.overlap = true, modifiers.step.overlap_from = added.step.overlap_from;
    return modifiers;
}

static yyscan_t scanner_open(Reader *reader)
{
    yyscan_t scanner = NULL;
    schedule_lex_init_extra(reader, &scanner);
    schedule__scan_bytes(reader->source->text, (int)reader->source->size, scanner);
    return scanner;
}

static Reader *reader_new(const Source *source, Arena *arena, Diagnostics *diagnostics)
{
    Reader *reader = arena_allocate(arena, sizeof *reader);
    *reader = (Reader){.source = source, .arena = arena, .diagnostics = diagnostics};
    reader->ast = arena_allocate(arena, sizeof *reader->ast);
    reader->ast->rank = reader_symbol(reader, "r", 1);
    return reader;
}

Ast *parse(const Source *source, Arena *arena, Diagnostics *diagnostics)
{
    enum { SOURCE_MAX = 1 << 24 };
    if (source->size > SOURCE_MAX) {
        diag_error(diagnostics, (Span){0, 0}, "a schedule file can have at most %d MiB", SOURCE_MAX >> 20);
        return NULL;
    }
    Reader *reader = reader_new(source, arena, diagnostics);
    if (setjmp(reader->failed) == 0)
        schedule_parse(scanner_open(reader), reader);
    return diag_failed(diagnostics) ? NULL : reader->ast;
}

Token *read_tokens(const Source *source, Arena *arena, uint32_t *count)
{
    Reader *reader = reader_new(source, arena, diag_new(arena, source)); /* errors are dropped: parse reports them */
    YYSTYPE value;
    Token token, *tokens = NULL;
    *count = 0;
    if (setjmp(reader->failed)) {
        *count = 0;
        return NULL;
    }
    yyscan_t scanner = scanner_open(reader);
    for (int code; (code = schedule_lex(&value, &token.span, scanner)) != TOKEN_EOF;) {
        tokens = arena_extend(arena, tokens, *count, sizeof *tokens);
        token.kind = yysymbol_name(YYTRANSLATE(code));
        tokens[(*count)++] = token;
    }
    return tokens;
}

void dump_tokens(const Source *source, FILE *stream)
{
    jmp_buf exhausted;
    Arena arena = {.exhausted = &exhausted};
    if (setjmp(exhausted) == 0) {
        uint32_t count;
        const Token *tokens = read_tokens(source, &arena, &count);
        for (const Token *token = tokens; count--; token++)
            fprintf(stream, "%u:%u\t%-14s\t%.*s\n", source_line(source, token->span.begin),
                    source_column(source, token->span.begin), token->kind, (int)(token->span.end - token->span.begin),
                    source->text + token->span.begin);
    }
    arena_free(&arena);
}
