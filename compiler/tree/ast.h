#ifndef TREE_AST_H
#define TREE_AST_H

/* The tree of a .dps file: the grammar builds it, check resolves its names, place and expand evaluate it. The arena
   of the compilation owns all of it. */

#include "compiler/schedule/schedule.h"
#include "compiler/source/diag.h"
#include "runtime/base/arena.h"
#include "runtime/program/costs.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum {
    NO_SLOT = UINT32_MAX,
    NO_CHUNK = -1,
    NO_HALF = -1,
    RANK_SLOT = 0,               /* the value of `r` */
    COST_SLOT = 1,               /* the value of cost(F); the values of the other costs are in the slots after it */
    EXPRESSION_DEPTH_MAX = 1000, /* limits the recursion of the functions that walk the tree */
    BLOCK_DEPTH_MAX = 100,
};

/* The costs that cost() knows: the StageCosts up to COST_FB, which are times, and a message. */
enum { COST_MESSAGE = COST_FB + 1, COST_VALUES };

/* A name in the source; equal texts have the same symbol. */
typedef struct Symbol {
    const char *text;
    struct Symbol *next;  /* with the same hash */
    uint32_t declaration; /* while check runs: the slot of the declaration of this name that is in scope, or NO_SLOT */
} Symbol;

typedef struct Name {
    Symbol *symbol;
    Span span;
} Name;

/* EXPRESSION(name, text) */
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
extern const char *const cost_form; /* help: how cost() is written */

typedef struct Expression Expression;
struct Expression {
    ExpressionKind kind;
    Span span;
    Expression *operands; /* the first one; the others follow by `next` */
    Expression *next;
    uint32_t depth, size; /* number of levels and of nodes of the tree of this expression */
    int64_t number;       /* NUMBER */
    Symbol *symbol;       /* NAME, CALL */
    uint32_t slot;        /* NAME: the slot of its value. Filled in by check, which also makes cost(F) a NAME */
    Function function;    /* CALL. Filled in by check */
    uint8_t depends;      /* Dependency bits. Filled in by check */
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
    bool joined;                             /* joined to the next pass by & */
    int chunk;                               /* NO_CHUNK: not written as a digit */
    Expression *computed_chunk, *microbatch; /* F{...}, F[...]; NULL: not given */
    struct Pass *next;
} Pass;

/* The settings of `order auto`. */
typedef enum Setting { SETTING_MEMORY, SETTING_INPUT, SETTING_WEIGHT, SETTING_EFFORT, SETTINGS } Setting;
extern const char *const setting_names[SETTINGS];

typedef struct WrittenSetting {
    Name name;
    Expression *value; /* NULL: the word `overlap` */
    struct WrittenSetting *next;
} WrittenSetting;

/* An entry of a recipe's stream, such as attention(F): a component of a layer, and which of its passes runs. */
typedef struct WrittenEntry {
    Span span;
    Name component;
    ActionKind pass;
    int chunk; /* NO_CHUNK; any other value is an error, which recipe_read reports */
    /* in the recipe of an F&F: the half, 0 or 1; NO_HALF: the entry is written with a pass, as of an F&B */
    int64_t half;
    struct WrittenEntry *next;
} WrittenEntry;

/* The multiprocessors for communication; NULL: not given. */
typedef struct WrittenShare {
    Expression *part, *whole;
} WrittenShare;

typedef struct WrittenStream {
    Name name;
    WrittenEntry *entries;
    WrittenShare share;
    struct WrittenStream *next;
} WrittenStream;

/* The head of a recipe: the pairs that follow it. */
typedef struct WrittenPair {
    bool forward;  /* F&Fs, not F&Bs */
    int chunks[2]; /* of the two halves; NO_CHUNK: of all pairs without a recipe of their own */
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
    Span span; /* the span of its first line, for messages about the whole item */
    Item *next;
    uint32_t depth; /* levels of blocks below it */
    Name name;      /* ranks, microbatches, param, let, pipe; repeat: the variable */
    uint32_t slot;  /* the slot of the value of `name`. Filled in by check */
    /* ranks, microbatches, param, let: the value of the name; require, if: the condition; chunk: the pipe; repeat,
       step: the count (step: NULL means once) */
    Expression *value;
    union {
        const char *message; /* require */
        struct {
            uint32_t number; /* the number of the pipe, in the order of the file. Filled in by check */
            Expression *stages;
            Name stage;          /* the variable in `rank` */
            uint32_t stage_slot; /* Filled in by check */
            Name microbatch;     /* the variable for the microbatch; symbol NULL: the rank depends on the stage alone */
            uint32_t microbatch_slot;
            Expression *rank;
            Expression *microbatches;
            Expression *written;   /* `M of N microbatches`: N; NULL: M */
            Name version_of;       /* the variable in `version`: the number of the microbatch */
            uint32_t version_slot; /* Filled in by check */
            Expression *version;   /* the version of the weights that the microbatch uses; NULL: the newest */
        } pipe;
        uint32_t chunk;
        struct {
            WrittenSetting *written;
            bool overlap;                   /* Filled in by check */
            Expression *settings[SETTINGS]; /* NULL: not given. Filled in by check */
        } order;
        struct {
            WrittenPair pair;
            bool automatic; /* searched: it has no streams */
            WrittenStream *streams;
            /* the share of multiprocessors after `auto`; in a written recipe the share of comm, filled in by check */
            WrittenShare share;
            Recipe made; /* the recipe, without its share. Filled in by check */
        } recipe;
        struct {
            Expression *slot; /* `at`; NULL: none */
            Pass *passes;
            bool overlap;
            Expression *overlap_from, *split_from; /* NULL: not given; overlap without `from` starts at 0 */
            bool forward_pairs;                    /* `overlap` joins F and F. Filled in by check */
            bool spells_weight;                    /* it has a W among its passes, so B is I. Filled in by check */
        } step;
        struct {
            Item *body, *otherwise; /* if: otherwise is the else branch, or NULL */
        } block;
    };
};

typedef struct Declaration {
    const char *name;
    const Item *item; /* NULL: r, or a cost */
    Span span;
    uint8_t depends;
} Declaration;

typedef struct Ast {
    const char *schedule;
    Symbol *rank; /* `r` */
    Item *items;
    /* filled in by check */
    Declaration *declarations; /* [declaration_count], by slot */
    uint32_t declaration_count;
    uint32_t pipe_count;
    bool has_slots; /* some step has an `at` */
    const Item *ranks, *microbatches;
    const Item *first_step; /* the first item that is a step, repeat or if; NULL: there is none */
    const Item *order;      /* `order auto`; NULL: steps give the orders */
    const Item *squeeze;    /* NULL: none */
    const Item *recipe;     /* of all pairs: `overlap F&B ...` or `overlap F&F ...`; NULL: none */
    const Item *any_recipe; /* the first recipe, of all pairs or of certain chunks; NULL: none */
    bool has_pairs;         /* some step has an F&B */
    bool has_forward_pairs; /* some step has an F&F */
    const Expression *cost; /* the first cost(); NULL: none */
} Ast;

/* Whether the source has `overlap F&B auto`. ast may be NULL. */
bool ast_searches_recipe(const Ast *ast);
/* Whether the item is a recipe of certain chunks. */
bool item_is_chunk_recipe(const Item *item);

const char *expression_text(ExpressionKind kind);
/* Computes depth and size from the operands. */
Expression *expression_new(Arena *arena, ExpressionKind kind, Span span, Expression *operands);

/* Whether the name of that slot occurs in the expression; false for NULL. After check. */
bool expression_mentions(const Expression *expression, uint32_t slot);

#endif
