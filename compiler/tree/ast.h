#pragma once

/* The tree of a .dps file. The grammar builds it, check resolves its names; place, expand and others evaluate it. The
   arena of the compilation owns it. */

#include "compiler/schedule/schedule.h"
#include "compiler/source/diag.h"
#include "base/arena.h"
#include "program/times/costs.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum {
    NO_SLOT = UINT32_MAX,
    NO_CHUNK = -1,
    NO_HALF = -1,
    RANK_SLOT = 0, /* slot of the value of `r` */
    COST_SLOT = 1, /* slot of the value of cost(F); the other costs are in the slots after it */
    /* most levels of an expression: limits the recursion of the functions that visit the tree */
    EXPRESSION_DEPTH_MAX = 1000,
    BLOCK_DEPTH_MAX = 100,
};

/* The costs that cost() can name: the StageCosts up to COST_FB, which are times, and COST_MESSAGE, the time of a
   message. */
enum { COST_MESSAGE = COST_FB + 1, COST_VALUES };

/* A name in the source; equal texts have the same symbol. */
typedef struct Symbol {
    const char *text;
    struct Symbol *next;  /* next symbol with the same hash */
    uint32_t first;       /* offset in the source after the first time that the name comes */
    uint32_t declaration; /* while check runs: the slot of the declaration of this name that is in scope, or NO_SLOT */
} Symbol;

typedef struct Name {
    Symbol *symbol;
    Span span;
} Name;

/* an entry is EXPRESSION(name, text of the operator or kind) */
/* clang-format off */
#define EXPRESSION_KINDS                                                                                    \
    EXPRESSION(NUMBER, "number") EXPRESSION(NAME, "name") EXPRESSION(CALL, "call") EXPRESSION(CHOOSE, "?:") \
    EXPRESSION(NEGATE, "-") EXPRESSION(NOT, "!") EXPRESSION(ADD, "+") EXPRESSION(SUBTRACT, "-")             \
    EXPRESSION(MULTIPLY, "*") EXPRESSION(DIVIDE, "/") EXPRESSION(REMAINDER, "%")                            \
    EXPRESSION(EQUAL, "==") EXPRESSION(UNEQUAL, "!=") EXPRESSION(LESS, "<") EXPRESSION(LESS_EQUAL, "<=")    \
    EXPRESSION(GREATER, ">") EXPRESSION(GREATER_EQUAL, ">=") EXPRESSION(AND, "&&") EXPRESSION(OR, "||")
/* clang-format on */

typedef enum ExpressionKind {
#define EXPRESSION(name, text) EXPRESSION_##name,
    EXPRESSION_KINDS
#undef EXPRESSION
} ExpressionKind;

typedef enum Function { FUNCTION_MIN, FUNCTION_MAX, FUNCTION_ABS, FUNCTION_COST, FUNCTIONS } Function;
extern const char *const function_names[FUNCTIONS];
extern const char *const cost_form; /* a help that says how cost() is written */

typedef struct Expression Expression;
struct Expression {
    ExpressionKind kind;
    Span span;
    Expression *operands; /* the first operand; the others follow by `next` */
    Expression *next;
    uint32_t depth, size; /* depth: levels of the tree of this expression; size: its nodes */
    int64_t number;       /* NUMBER */
    Symbol *symbol;       /* NAME, CALL */
    uint32_t slot;        /* NAME: the slot of its value; set by check, which also turns a call cost(F) into a NAME */
    Function function;    /* CALL; set by check */
    uint8_t depends;      /* bits of Dependency; set by check */
};

/* What the value of a name or an expression may depend on. */
enum Dependency {
    DEPENDS_ON_RANK = 1,
    DEPENDS_ON_RANKS = 2,
    DEPENDS_ON_MICROBATCHES = 4,
    DEPENDS_ON_PARAMETERS = 8,
    DEPENDS_ON_COSTS = 16,
};

typedef struct Pass {
    Span span;
    ActionKind kind;                         /* as written: F, B, I, W or U */
    bool joined;                             /* an & joins it to the next pass */
    int chunk;                               /* the digits after the letter; NO_CHUNK: none */
    Expression *computed_chunk, *microbatch; /* the expressions in F{...} and F[...]; NULL: not given */
    struct Pass *next;
} Pass;

/* The settings of `order auto` that have a value; `overlap` has none. */
typedef enum Setting { SETTING_MEMORY, SETTING_INPUT, SETTING_WEIGHT, SETTING_EFFORT, SETTINGS } Setting;
extern const char *const setting_names[SETTINGS];

typedef struct WrittenSetting {
    Name name;
    Expression *value; /* NULL: the setting is the word `overlap`, which has no value */
    struct WrittenSetting *next;
} WrittenSetting;

/* An entry of a recipe's stream, such as attention(F): a component of a layer, and which of its passes runs. */
typedef struct WrittenEntry {
    Span span;
    Name component;
    ActionKind pass;
    int chunk; /* must be NO_CHUNK: recipe_read reports an entry that names a chunk */
    /* in a recipe of F&Fs: the number in attention(1), which must be 0 or 1 and names a half; NO_HALF: the entry names
       a pass, as in a recipe of F&Bs */
    int64_t half;
    struct WrittenEntry *next;
} WrittenEntry;

/* The share of the multiprocessors that communication gets: `on part of whole`. Both are NULL if it is not given. */
typedef struct WrittenShare {
    Expression *part, *whole;
} WrittenShare;

typedef struct WrittenStream {
    Name name;
    WrittenEntry *entries;
    WrittenShare share;
    struct WrittenStream *next;
} WrittenStream;

/* The head of a recipe: the F&Bs or F&Fs that the recipe is for. */
typedef struct WrittenPair {
    bool forward;  /* F&Fs; false: F&Bs */
    int chunks[2]; /* chunks of the two halves; both NO_CHUNK: all F&Bs or F&Fs that have no recipe of their own */
} WrittenPair;

typedef enum ItemKind {
    ITEM_RANKS,
    ITEM_MICROBATCHES,
    ITEM_PARAM,
    ITEM_LET,
    ITEM_REQUIRE,
    ITEM_PIPE,
    ITEM_CHUNK,
    ITEM_ORDER,
    ITEM_SQUEEZE,
    ITEM_RECIPE,
    ITEM_STEP,
    ITEM_REPEAT,
    ITEM_IF,
} ItemKind;

typedef struct Item Item;
struct Item {
    ItemKind kind;
    Span span; /* span of the head of the item, for messages about the item */
    Item *next;
    uint32_t depth; /* of repeat and if: levels of nested blocks, its own included; otherwise 0 */
    Name name;      /* ranks, microbatches, param, let, pipe: the name that it declares; repeat: its variable */
    uint32_t slot;  /* slot of the value of `name`; set by check */
    /* ranks, microbatches, param, let: the value of `name` in the file; require, if: the condition; squeeze: the
       condition, NULL means always; chunk: the pipe; repeat: the count; step: the count, NULL means once */
    Expression *value;
    union {
        const char *message; /* require */
        struct {
            uint32_t number; /* index of the pipe in the file; set by check */
            Expression *stages;
            Name stage;          /* the variable s in `stage s on RANK` */
            uint32_t stage_slot; /* slot of `stage`; set by check */
            /* the variable m in `stage s of m on RANK`; symbol NULL: not given, so the rank depends on the stage
               alone */
            Name microbatch;
            uint32_t microbatch_slot;
            Expression *rank;
            Expression *microbatches;
            Expression *written;   /* the N in `M of N microbatches`; NULL: not given, the same as M */
            Name version_of;       /* the variable m in `microbatch m on version VERSION` */
            uint32_t version_slot; /* slot of `version_of`; set by check */
            Expression *version;   /* the version of the weights that microbatch m uses; NULL: the newest */
        } pipe;
        uint32_t chunk;
        struct {
            WrittenSetting *written;
            bool overlap;                   /* the setting `overlap` is given; set by check */
            Expression *settings[SETTINGS]; /* values of the settings; NULL: not given; set by check */
        } order;
        struct {
            WrittenPair pair;
            bool automatic; /* `auto`: dpc searches the recipe, and `streams` is NULL */
            WrittenStream *streams;
            /* the share of the multiprocessors that communication gets. With `auto`: the share written after that word.
               Otherwise: that of the stream comm; check copies it to here */
            WrittenShare share;
            Recipe made; /* set by check: the recipe, without its share; it has no entries with `auto` */
        } recipe;
        struct {
            Expression *slot; /* the slot in `at SLOT:`; NULL: not given */
            Pass *passes;
            bool overlap;
            /* the numbers after `overlap from` and `split from`: from which pair on F and B are joined, from which B on
               each is an I. NULL: not given: `overlap` begins at pair 0, `split` is absent */
            Expression *overlap_from, *split_from;
            /* the step has only F, and `overlap` joins its F number 0 and 1, 2 and 3, ... (counted through all
               repetitions) into F&Fs; set by check */
            bool forward_pairs;
            bool spells_weight; /* the step has a W, so its B are I; set by check */
        } step;
        struct {
            /* body: of repeat or if; otherwise: the else branch of an if, NULL if it has none */
            Item *body, *otherwise;
        } block;
    };
};

typedef struct Declaration {
    const char *name;
    const Item *item; /* the item that declares the name; NULL: the name is `r` or a cost */
    Span span;
    uint8_t depends;
} Declaration;

typedef struct Ast {
    const char *schedule;
    Symbol *rank; /* `r` */
    Item *items;
    /* set by check */
    Declaration *declarations; /* [declaration_count], indexed by slot */
    uint32_t declaration_count;
    uint32_t pipe_count;
    bool has_slots; /* a step has `at SLOT:` */
    const Item *ranks, *microbatches;
    const Item *first_step; /* the first top-level item that is a step, repeat or if; NULL: there is none */
    const Item *order;      /* the `order auto`; NULL: steps give the orders */
    const Item *squeeze;    /* NULL: none */
    const Item *recipe;     /* the recipe without chunks: `overlap F&B ...` or `overlap F&F ...`; NULL: none */
    const Item *any_recipe; /* the first recipe, with or without chunks; NULL: none */
    bool has_pairs;         /* a step has an F&B, by `&` or `overlap`, or `order auto` has the setting `overlap` */
    bool has_forward_pairs; /* a step has an F&F, by `&` or `overlap` */
    const Expression *cost; /* the first cost() in the file; NULL: none */
} Ast;

/* Whether the source has `overlap F&B auto`. ast may be NULL. */
bool ast_searches_recipe(const Ast *ast);
/* Whether the item is a recipe for certain chunks. */
bool item_is_chunk_recipe(const Item *item);

const char *expression_text(ExpressionKind kind);
/* Makes an expression. Computes its depth and size from its operands, a list linked by `next`; NULL: none. */
Expression *expression_new(Arena *arena, ExpressionKind kind, Span span, Expression *operands);

/* Whether the name with this slot occurs in the expression; false for NULL. Only after check. */
bool expression_mentions(const Expression *expression, uint32_t slot);
