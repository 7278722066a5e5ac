#ifndef GRAMMAR_READER_H
#define GRAMMAR_READER_H

/* The state that the scanner and the parser of one file share. */

#include "compiler/tree/ast.h"

typedef struct OpenBracket {
    char bracket; /* ( [ { */
    Span span;
    struct OpenBracket *outer;
} OpenBracket;

typedef struct ReadToken {
    int kind; /* the parser's code; 0: none yet */
    Span span;
} ReadToken;

enum { SYMBOL_BUCKETS = 8192 };

typedef struct Reader {
    const Source *source;
    Arena *arena;
    Diagnostics *diagnostics;
    Ast *ast;
    /* scanner */
    uint32_t offset; /* of the next byte */
    Span word;       /* the word of passes that is being split, or the last one */
    ReadToken last, previous;
    ReadToken item;    /* the first token of the current item */
    bool choosing;     /* between `if` and `else` of Python's `a if c else b`, which was reported */
    OpenBracket *open; /* the innermost open bracket */
    Symbol *symbols[SYMBOL_BUCKETS];
    /* parser */
    bool too_deep; /* this was reported */
    bool reported; /* a syntax error was reported, the last one at reported_at */
    uint32_t reported_at;
    bool broken_if; /* the head of an `if` had an error, so its `else` may come unexpectedly */
} Reader;

/* The symbol of that text; equal texts have the same symbol. */
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

#endif
