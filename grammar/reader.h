#ifndef GRAMMAR_READER_H
#define GRAMMAR_READER_H

/* What the scanner and the parser of one file share. */

#include "compiler/tree/ast.h"

typedef struct OpenBracket {
    char bracket; /* ( [ { */
    Span span;
    struct OpenBracket *outer;
} OpenBracket;

enum { SYMBOL_BUCKETS = 8192 };

typedef struct Reader {
    const Source *source;
    Arena *arena;
    Diagnostics *diagnostics;
    Ast *ast;
    /* scanner */
    uint32_t offset;       /* of the next byte */
    uint32_t word_end;     /* of the word of passes that is being taken apart */
    uint32_t previous_end; /* of the token before the last */
    uint32_t last_end;
    OpenBracket *open;     /* the innermost not yet closed */
    Symbol *symbols[SYMBOL_BUCKETS];
    /* parser */
    bool too_deep;         /* reported already */
} Reader;

/* The one symbol of that text. */
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
