#pragma once

/* The state that the scanner and the parser of one file share. */

#include "compiler/tree/ast.h"

#include <setjmp.h>

typedef struct OpenBracket {
    char bracket; /* ( [ { */
    Span span;
    struct OpenBracket *outer;
} OpenBracket;

typedef struct ReadToken {
    int kind; /* the parser's code of the token; 0: no token yet */
    Span span;
} ReadToken;

enum { SYMBOL_BUCKETS = 8192 };

typedef struct Reader {
    const Source *source;
    Arena *arena;
    Diagnostics *diagnostics;
    Ast *ast;
    /* scanner */
    jmp_buf failed;  /* where the scanner jumps when it cannot go on, after it has reported why */
    uint32_t offset; /* offset of the next byte */
    Span word;       /* the last word of passes, such as nF0B1; the scanner may still be splitting it into passes */
    ReadToken last, previous;
    ReadToken item; /* the first token of the current item */
    /* the scanner is between the `if` and the `else` of Python's `a if c else b`, which was reported */
    bool choosing;
    OpenBracket *open; /* the innermost open bracket */
    Symbol *symbols[SYMBOL_BUCKETS];
    /* parser */
    bool too_deep; /* an error about too deep nesting was reported */
    bool reported; /* a syntax error was reported; reported_at is where the last one is */
    uint32_t reported_at;
    bool broken_if; /* an `if` or `else` had an error before its `{`; from then on no error at an `else` is reported */
} Reader;

/* The symbol of a text; equal texts have the same symbol. */
Symbol *reader_symbol(Reader *reader, const char *text, size_t length);

typedef struct ItemList {
    Item *first, *last;
} ItemList;

typedef struct PassList {
    Pass *first, *last;
} PassList;

typedef struct SettingList {
    WrittenSetting *first, *last;
} SettingList;

typedef struct EntryList {
    WrittenEntry *first, *last;
} EntryList;

typedef struct StreamList {
    WrittenStream *first, *last;
} StreamList;

typedef struct ExpressionList {
    Expression *first, *last;
} ExpressionList;
