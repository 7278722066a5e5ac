#include "compiler/tree/check.h"

#include "compiler/tree/recipe.h"
#include "base/names.h"
#include "program/program.h"

#include <string.h>

enum { NAMES_LISTED = 12 };

typedef struct Checker {
    Ast *ast;
    Arena *arena;
    Diagnostics *diagnostics;
    Symbol **symbols; /* [declaration]: the symbol of the declared name, indexed by slot */
    /* NULL: the expression that is being checked may use r, the rank. Otherwise it may not, and this is a phrase for
       messages, such as "the number of stages is". */
    const char *without_rank;
} Checker;

static uint32_t declare(Checker *c, Name name, const Item *item, uint8_t depends)
{
    Ast *ast = c->ast;
    if (name.symbol->declaration != NO_SLOT) {
        const Declaration *first = &ast->declarations[name.symbol->declaration];
        if (first->item) {
            diag_error(c->diagnostics, name.span, "`%s` is declared twice", name.symbol->text);
            diag_note(c->diagnostics, first->span, "first here");
            diag_help(c->diagnostics, "rename one of them: an inner name cannot hide an outer one");
        } else {
            diag_error(c->diagnostics, name.span, "`%s` is the rank in every schedule and cannot be declared",
                       name.symbol->text);
        }
        return name.symbol->declaration;
    }
    for (Function f = 0; f < FUNCTIONS; f++)
        if (strcmp(name.symbol->text, function_names[f]) == 0)
            diag_error(c->diagnostics, name.span, "`%s` is a function and cannot be a name", name.symbol->text);
    const uint32_t slot = ast->declaration_count++;
    ast->declarations = arena_extend(c->arena, ast->declarations, slot, sizeof *ast->declarations);
    c->symbols = arena_extend(c->arena, c->symbols, slot, sizeof(Symbol *));
    ast->declarations[slot] =
        (Declaration){.name = name.symbol->text, .item = item, .span = name.span, .depends = depends};
    c->symbols[slot] = name.symbol;
    name.symbol->declaration = slot;
    return slot;
}

/* Ends the scope of the names declared from slot `from` on; their slots stay reserved. */
static void leave_scope(Checker *c, uint32_t from)
{
    for (uint32_t slot = from; slot < c->ast->declaration_count; slot++)
        c->symbols[slot]->declaration = NO_SLOT;
}

/* --- expressions --- */

static const Item *declared_below(const Ast *ast, const Symbol *symbol)
{
    for (const Item *item = ast->items; item; item = item->next)
        if (item->name.symbol == symbol && item->kind != ITEM_REPEAT)
            return item;
    return NULL;
}

/* Lists the names in scope as text, the last declared first; at most NAMES_LISTED of them. */
static const char *known_names(const Checker *c)
{
    const char *text = "";
    uint32_t count = 0;
    for (uint32_t slot = c->ast->declaration_count; slot-- > 0;) {
        if (c->symbols[slot]->declaration != slot)
            continue;
        if (count++ == NAMES_LISTED)
            return arena_format(c->arena, "%s, ...", text);
        text = arena_format(c->arena, "%s%s%s", text, *text ? ", " : "", c->symbols[slot]->text);
    }
    return text;
}

/* Names and functions of other languages, with what to write instead. */
static const struct {
    const char *name, *help;
} elsewhere[] = {
    {"rank", "r is the rank"},
    {"True", "write 1"},
    {"true", "write 1"},
    {"False", "write 0"},
    {"false", "write 0"},
    {"not", "write !(...)"},
    {"floor", "/ rounds towards 0: floor(a/b) is a/b"},
    {"int", "/ rounds towards 0: int(a/b) is a/b"},
    {"ceil", "ceil(a/b) is (a + b - 1)/b"},
    {"round", "round(a/b) is (a + b/2)/b"},
    {"range", "a loop is written repeat i < M { ... }"},
    {"len", "write the name that the file gives the number: ranks P = 4; declares P"},
    {"pow", "there are no powers: write a product, k*k"},
    {"log2", "there are no logarithms: compare, as in P < 2 ? 0 : P < 4 ? 1 : P < 8 ? 2 : 3"},
};

static bool help_elsewhere(Checker *c, const char *name)
{
    for (size_t i = 0; i < sizeof elsewhere / sizeof *elsewhere; i++)
        if (strcmp(elsewhere[i].name, name) == 0) {
            diag_help(c->diagnostics, "%s", elsewhere[i].help);
            return true;
        }
    return false;
}

/* The help for an unknown name like num_microbatches or world_size: how this file names that size. NULL: the name is
   not like these, or the file does not declare that size. */
static const char *size_meant(const Checker *c, const char *name)
{
    const Ast *ast = c->ast;
    if (strstr(name, "microbatch") && ast->microbatches)
        return arena_format(c->arena, "the number of microbatches is %s", ast->microbatches->name.symbol->text);
    if ((strstr(name, "rank") || strstr(name, "world_size") || strstr(name, "pp_size")) && ast->ranks)
        return arena_format(c->arena, "r is the rank, %s the number of ranks", ast->ranks->name.symbol->text);
    return NULL;
}

static void unknown_name(Checker *c, const Expression *name)
{
    diag_error(c->diagnostics, name->span, "unknown name `%s`", name->symbol->text);
    if (diag_full(c->diagnostics))
        return;
    const Item *below = declared_below(c->ast, name->symbol);
    if (below) {
        diag_note(c->diagnostics, below->name.span, "it is declared here: a name is known only after its declaration");
        return;
    }
    NearestWord nearest = nearest_to(name->symbol->text);
    for (uint32_t slot = 0; slot < c->ast->declaration_count; slot++)
        if (c->symbols[slot]->declaration == slot)
            nearest_consider(&nearest, c->symbols[slot]->text);
    if (help_elsewhere(c, name->symbol->text))
        return;
    const char *size = size_meant(c, name->symbol->text);
    if (strcmp(name->symbol->text, function_names[FUNCTION_COST]) == 0)
        diag_help(c->diagnostics, "%s", cost_form);
    else if (nearest.word)
        diag_help(c->diagnostics, "did you mean `%s`?", nearest.word);
    else if (size)
        diag_help(c->diagnostics, "%s", size);
    else
        diag_help(c->diagnostics, "known here: %s", known_names(c));
}

static const char *cost_name(int cost) { return cost == COST_MESSAGE ? "comm" : stage_cost_name((StageCost)cost); }

/* Declares the costs. No name in a file refers to them: only cost() reaches their slots. */
static void declare_costs(Checker *c)
{
    for (int cost = 0; cost < COST_VALUES; cost++) {
        Symbol *symbol = arena_allocate(c->arena, sizeof *symbol);
        *symbol = (Symbol){.text = arena_format(c->arena, "cost(%s)", cost_name(cost)), .declaration = NO_SLOT};
        declare(c, (Name){.symbol = symbol}, NULL, DEPENDS_ON_COSTS);
        symbol->declaration = NO_SLOT;
    }
}

/* Turns a call such as cost(F) into a NAME whose slot has that cost. Reports a call without the name of exactly one
   cost. */
static void check_cost(Checker *c, Expression *call)
{
    const Expression *operand = call->operands;
    const bool named = operand->kind == EXPRESSION_NAME && !operand->next;
    for (int cost = 0; named && cost < COST_VALUES; cost++)
        if (strcmp(operand->symbol->text, cost_name(cost)) == 0) {
            call->kind = EXPRESSION_NAME;
            call->operands = NULL;
            call->slot = COST_SLOT + (uint32_t)cost;
            call->symbol = c->symbols[call->slot];
            call->depends = DEPENDS_ON_COSTS;
            if (!c->ast->cost)
                c->ast->cost = call;
            return;
        }
    if (named)
        diag_error(c->diagnostics, operand->span, "there is no cost `%s`", operand->symbol->text);
    else
        diag_error(c->diagnostics, call->span, "cost() takes the name of one cost");
    diag_help(c->diagnostics, "%s", cost_form);
}

static void check_call(Checker *c, Expression *call)
{
    const char *const name = call->symbol->text;
    uint32_t count = 0;
    for (const Expression *operand = call->operands; operand; operand = operand->next)
        count++;
    NearestWord nearest = nearest_to(name);
    for (Function f = 0; f < FUNCTIONS; f++) {
        nearest_consider(&nearest, function_names[f]);
        if (strcmp(name, function_names[f]) != 0)
            continue;
        call->function = f;
        if (f == FUNCTION_ABS ? count != 1 : count < 2)
            diag_error(c->diagnostics, call->span, "%s takes %s", name,
                       f == FUNCTION_ABS ? "one value" : "two values or more");
        return;
    }
    diag_error(c->diagnostics, call->span, "unknown function `%s`", name);
    if (call->symbol->declaration != NO_SLOT)
        diag_help(c->diagnostics, "a product is written with *: %s*(...)", name);
    else if (help_elsewhere(c, name))
        return;
    else if (nearest.word)
        diag_help(c->diagnostics, "did you mean `%s`?", nearest.word);
    else
        diag_help(
            c->diagnostics,
            "the functions are `min`, `max`, `abs` and `cost`; `let` declares a value of your own, which may use r");
}

static void check_expression(Checker *c, Expression *expression)
{
    if (!expression)
        return;
    if (expression->kind == EXPRESSION_CALL && strcmp(expression->symbol->text, function_names[FUNCTION_COST]) == 0) {
        check_cost(c, expression);
        return;
    }
    for (Expression *operand = expression->operands; operand; operand = operand->next) {
        check_expression(c, operand);
        expression->depends |= operand->depends;
    }
    if (expression->kind == EXPRESSION_CALL)
        check_call(c, expression);
    if (expression->kind != EXPRESSION_NAME)
        return;
    expression->slot = expression->symbol->declaration;
    if (expression->slot == NO_SLOT) {
        unknown_name(c, expression);
        return;
    }
    const Declaration *declaration = &c->ast->declarations[expression->slot];
    expression->depends = declaration->depends;
    if (c->without_rank && declaration->depends & DEPENDS_ON_RANK) {
        if (expression->slot == RANK_SLOT) {
            diag_error(c->diagnostics, expression->span, "r, the rank, cannot be used here: %s the same for all ranks",
                       c->without_rank);
        } else {
            diag_error(c->diagnostics, expression->span, "`%s` depends on r, the rank, but %s the same for all ranks",
                       declaration->name, c->without_rank);
            diag_note(c->diagnostics, declaration->span, "it is computed from r here");
        }
    }
}

/* Checks an expression whose value must be the same for all ranks, and reports a use of the rank. `what` is a phrase
   for the message, such as "the number of stages is". Returns the dependencies of the value without the rank, so that
   a use of the rank is reported only once. */
static uint8_t check_for_all_ranks(Checker *c, Expression *expression, const char *what)
{
    if (!expression)
        return 0;
    c->without_rank = what;
    check_expression(c, expression);
    c->without_rank = NULL;
    return expression->depends & (uint8_t)~DEPENDS_ON_RANK;
}

/* Reports an expression that decides the placement and depends on costs: costs depend on the number of stages, so they
   are known only after the placement. `what`: as for check_for_all_ranks. */
static void check_known_early(Checker *c, const Expression *expression, const char *what)
{
    if (!expression || !(expression->depends & DEPENDS_ON_COSTS))
        return;
    diag_error(c->diagnostics, expression->span, "%s decided before the costs are known", what);
    diag_help(c->diagnostics,
              "costs depend on the number of stages: this value may not use cost(), directly or through other names");
}

/* check_for_all_ranks and check_known_early, for an expression that decides the placement. */
static uint8_t check_placing(Checker *c, Expression *expression, const char *what)
{
    const uint8_t depends = check_for_all_ranks(c, expression, what);
    check_known_early(c, expression, what);
    return depends;
}

/* --- items --- */

static void check_only_one(Checker *c, const Item **only, const Item *item, const char *what)
{
    if (*only) {
        diag_error(c->diagnostics, item->span, "a second `%s`", what);
        diag_note(c->diagnostics, (*only)->span, "the first");
    } else {
        *only = item;
    }
}

static void check_pipe(Checker *c, Item *item)
{
    item->pipe.number = c->ast->pipe_count++;
    check_placing(c, item->pipe.stages, "the number of stages is");
    check_placing(c, item->pipe.microbatches, "the number of microbatches is");
    check_placing(c, item->pipe.written, "the number of microbatches is");
    const uint32_t scope = c->ast->declaration_count;
    item->pipe.stage_slot = declare(c, item->pipe.stage, item, 0);
    if (item->pipe.microbatch.symbol)
        item->pipe.microbatch_slot = declare(c, item->pipe.microbatch, item, 0);
    check_placing(c, item->pipe.rank, "where a stage lives is");
    leave_scope(c, scope);
    if (item->pipe.version) {
        item->pipe.version_slot = declare(c, item->pipe.version_of, item, 0);
        check_placing(c, item->pipe.version, "which version a microbatch uses is");
        leave_scope(c, scope);
    }
    item->slot = declare(c, item->name, item, 0);
}

static bool is_backward(const Pass *pass) { return pass->kind == ACTION_B || pass->kind == ACTION_I; }

static void check_joined(Checker *c, const Pass *pass, const Pass *before)
{
    if (pass->kind == ACTION_F && (is_backward(pass->next) || pass->next->kind == ACTION_F) &&
        !(before && before->joined))
        return;
    diag_error(c->diagnostics, (Span){pass->span.begin, pass->next->span.end},
               "`&` joins two passes: an F and the B or I after it, or two F");
    if (is_backward(pass) && pass->next->kind == ACTION_F && !(before && before->joined))
        diag_help(c->diagnostics, "write the F first");
    else
        diag_help(c->diagnostics, "for example F0&B1");
}

static void check_step(Checker *c, Item *item)
{
    bool joined = false, pair = false, backward = false, forward_alone = true;
    uint32_t passes = 0;
    for (const Pass *pass = item->step.passes, *before = NULL; pass; before = pass, pass = pass->next) {
        item->step.spells_weight |= pass->kind == ACTION_W;
        backward |= is_backward(pass);
        forward_alone &= pass->kind == ACTION_F;
        passes++;
        joined |= pass->joined;
        c->ast->has_forward_pairs |= pass->joined && pass->next->kind == ACTION_F;
        c->ast->has_pairs |= pass->joined && is_backward(pass->next);
        pair |= pass->kind == ACTION_F && pass->next && is_backward(pass->next);
        if (pass->chunk != NO_CHUNK && pass->computed_chunk)
            diag_error(c->diagnostics, pass->span, "this pass has its chunk twice: as a digit and in { }");
        else if (pass->chunk >= PROGRAM_CHUNKS_MAX)
            diag_error(c->diagnostics, pass->span, "chunk %d: a rank holds at most %d chunks, numbered from 0",
                       pass->chunk, PROGRAM_CHUNKS_MAX);
        if (pass->kind == ACTION_U && pass->microbatch) {
            diag_error(c->diagnostics, pass->span, "U has no microbatch");
            diag_help(c->diagnostics,
                      "it uses the gradients of all microbatches that have run backward since the chunk's last U");
        }
        if (pass->joined)
            check_joined(c, pass, before);
        check_expression(c, pass->computed_chunk);
        check_expression(c, pass->microbatch);
    }
    check_expression(c, item->step.slot);
    c->ast->has_slots |= item->step.slot != NULL;
    check_expression(c, item->value);
    check_expression(c, item->step.overlap_from);
    check_expression(c, item->step.split_from);
    item->step.forward_pairs = item->step.overlap && forward_alone && (passes > 1 || item->value);
    c->ast->has_forward_pairs |= item->step.forward_pairs;
    c->ast->has_pairs |= item->step.overlap && !item->step.forward_pairs;
    if (item->step.overlap && joined)
        diag_error(c->diagnostics, item->span,
                   "a step has either `overlap` or `&`, not both: each says which passes overlap");
    else if (item->step.overlap && !pair && !item->step.forward_pairs)
        diag_error(c->diagnostics, item->span,
                   "`overlap` needs an F directly followed by a B or I, or a step of several F and nothing else");
    if (item->step.split_from && !backward)
        diag_error(c->diagnostics, item->span, "`split` needs a backward pass");
    else if (item->step.split_from && item->step.spells_weight)
        diag_error(c->diagnostics, item->span,
                   "`split` has no effect here: in a step with a W every B is an I already");
}

static void check_block(Checker *c, Item *items);

static void check_body_item(Checker *c, Item *item)
{
    const uint32_t scope = c->ast->declaration_count;
    switch (item->kind) {
    case ITEM_LET:
        check_expression(c, item->value);
        item->slot = declare(c, item->name, item, item->value->depends);
        break;
    case ITEM_STEP: check_step(c, item); break;
    case ITEM_REPEAT:
        check_expression(c, item->value);
        item->slot = declare(c, item->name, item, 0);
        check_block(c, item->block.body);
        leave_scope(c, scope);
        break;
    default:
        check_expression(c, item->value);
        check_block(c, item->block.body);
        check_block(c, item->block.otherwise);
        break;
    }
}

static void check_block(Checker *c, Item *items)
{
    const uint32_t scope = c->ast->declaration_count;
    for (Item *item = items; item; item = item->next) {
        if (item->kind == ITEM_LET || item->kind >= ITEM_STEP)
            check_body_item(c, item);
        else
            diag_error(c->diagnostics, item->span,
                       "this belongs outside of all blocks: a block holds only steps, `let`, `repeat` and `if`");
    }
    leave_scope(c, scope);
}

/* The file's name for the number of ranks or microbatches; `usual` if it has no such item. */
static const char *name_of(const Item *item, const char *usual) { return item ? item->name.symbol->text : usual; }

static void check_setting(Checker *c, Item *item, const WrittenSetting *written)
{
    if (!written->value) {
        if (item->order.overlap)
            diag_error(c->diagnostics, written->name.span, "`overlap` is given twice");
        item->order.overlap = true;
        c->ast->has_pairs = true;
        return;
    }
    NearestWord nearest = nearest_to(written->name.symbol->text);
    for (Setting setting = 0; setting < SETTINGS; setting++) {
        nearest_consider(&nearest, setting_names[setting]);
        if (strcmp(written->name.symbol->text, setting_names[setting]) != 0)
            continue;
        if (item->order.settings[setting])
            diag_error(c->diagnostics, written->name.span, "`%s` is given twice", setting_names[setting]);
        item->order.settings[setting] = written->value;
        if (setting == SETTING_MEMORY)
            check_expression(c, written->value);
        else
            check_for_all_ranks(c, written->value, "this setting is");
        return;
    }
    diag_error(c->diagnostics, written->name.span, "`order auto` has no setting `%s`", written->name.symbol->text);
    if (nearest.word)
        diag_help(c->diagnostics, "did you mean `%s`?", nearest.word);
    else
        diag_help(c->diagnostics, "the settings are `memory`, `input`, `weight`, `effort` and `overlap`");
}

static void check_order(Checker *c, Item *item)
{
    check_only_one(c, &c->ast->order, item, "order");
    for (const WrittenSetting *written = item->order.written; written; written = written->next)
        check_setting(c, item, written);
    if (item->order.settings[SETTING_MEMORY])
        return;
    diag_error(c->diagnostics, item->span, "`order auto` does not say how much memory a rank has");
    diag_help(c->diagnostics,
              "without `input` and `weight`, `memory` counts halves of the activation of one microbatch in one stage; "
              "1F1B then needs order auto(memory = 2*%s);",
              name_of(c->ast->ranks, "P"));
}

/* Reports the first step, each `M of N microbatches` of a pipe, and `squeeze`: a file with `order auto` can have none
   of them. */
static void check_order_alone(Checker *c)
{
    const Item *step = c->ast->first_step;
    if (step) {
        diag_error(c->diagnostics, step->span, "a schedule has either `order auto` or steps, not both");
        diag_note(c->diagnostics, c->ast->order->span, "here");
    }
    for (const Item *item = c->ast->items; item; item = item->next)
        if (item->kind == ITEM_PIPE && item->pipe.written)
            diag_error(c->diagnostics, item->pipe.written->span,
                       "`M of N microbatches` is only for steps: with `order auto` write `M microbatches`");
    if (c->ast->squeeze)
        diag_error(c->diagnostics, c->ast->squeeze->span,
                   "`squeeze` moves the passes of steps: with `order auto` leave it out");
}

static void check_share(Checker *c, const WrittenShare *share)
{
    check_placing(c, share->part, "the share of communication is");
    check_placing(c, share->whole, "the share of communication is");
}

/* Checks a recipe for certain chunks, such as `overlap F0&B1 { ... }`: no earlier recipe is for the same chunks, there
   are at most RECIPES_MAX such recipes, and this one is not `auto`. */
static void check_chunk_recipe(Checker *c, const Item *item)
{
    const int *chunks = item->recipe.pair.chunks;
    uint32_t count = 0;
    for (const Item *earlier = c->ast->items; earlier != item; earlier = earlier->next) {
        if (!item_is_chunk_recipe(earlier))
            continue;
        if (earlier->recipe.pair.forward == item->recipe.pair.forward &&
            memcmp(earlier->recipe.pair.chunks, chunks, sizeof item->recipe.pair.chunks) == 0) {
            diag_error(c->diagnostics, item->span, "these chunks have a recipe already");
            diag_note(c->diagnostics, earlier->span, "the first");
        }
        if (++count == RECIPES_MAX)
            diag_error(c->diagnostics, item->span, "a schedule can have at most %d recipes that name chunks",
                       RECIPES_MAX);
    }
    if (item->recipe.automatic) {
        diag_error(c->diagnostics, item->span,
                   "`auto` takes no chunks: dpc searches one recipe, for all F&Bs without their own");
        diag_help(c->diagnostics,
                  "write overlap F&B auto; for all F&Bs, or write the order for these chunks: overlap F0&B1 { ... }");
    }
}

/* Reports a recipe for F&Bs in a file with recipes for F&Fs, and the reverse. */
static void check_one_kind(Checker *c, const Item *item)
{
    if (!c->ast->any_recipe)
        c->ast->any_recipe = item;
    if (c->ast->any_recipe->recipe.pair.forward == item->recipe.pair.forward)
        return;
    diag_error(c->diagnostics, item->span, "a schedule has either recipes of F&Bs or recipes of F&Fs, not both");
    diag_note(c->diagnostics, c->ast->any_recipe->span, "the other kind");
    diag_help(c->diagnostics, "only a schedule without any B, I and W has F&Fs");
}

static void check_recipe(Checker *c, Item *item)
{
    if (item_is_chunk_recipe(item))
        check_chunk_recipe(c, item);
    else
        check_only_one(c, &c->ast->recipe, item, "overlap");
    check_one_kind(c, item);
    if (item->recipe.automatic && item->recipe.pair.forward) {
        diag_error(c->diagnostics, item->span, "dpc searches the order inside an F&B, not inside an F&F");
        diag_help(c->diagnostics, "write the order: overlap F&F { compute: attention(1) mlp(0) ...; comm: ...; }");
    }
    if (item->recipe.automatic)
        check_share(c, &item->recipe.share);
    else
        recipe_read(item, c->diagnostics);
    for (const WrittenStream *stream = item->recipe.streams; stream; stream = stream->next)
        check_share(c, &stream->share);
}

static void check_item(Checker *c, Item *item)
{
    switch (item->kind) {
    case ITEM_RANKS:
        check_only_one(c, &c->ast->ranks, item, "ranks");
        item->slot =
            declare(c, item->name, item, check_placing(c, item->value, "the number of ranks is") | DEPENDS_ON_RANKS);
        break;
    case ITEM_MICROBATCHES:
        check_only_one(c, &c->ast->microbatches, item, "microbatches");
        item->slot = declare(c, item->name, item,
                             check_placing(c, item->value, "the number of microbatches is") | DEPENDS_ON_MICROBATCHES);
        break;
    case ITEM_PARAM:
        item->slot =
            declare(c, item->name, item, check_for_all_ranks(c, item->value, "a parameter is") | DEPENDS_ON_PARAMETERS);
        break;
    case ITEM_PIPE: check_pipe(c, item); break;
    case ITEM_REQUIRE: check_expression(c, item->value); break;
    case ITEM_CHUNK:
        check_expression(c, item->value);
        check_known_early(c, item->value, "the pipe of a chunk is");
        if (item->chunk >= PROGRAM_CHUNKS_MAX)
            diag_error(c->diagnostics, item->span, "a rank holds at most %d chunks, numbered from 0",
                       PROGRAM_CHUNKS_MAX);
        break;
    case ITEM_ORDER: check_order(c, item); break;
    case ITEM_SQUEEZE:
        check_only_one(c, &c->ast->squeeze, item, "squeeze");
        check_for_all_ranks(c, item->value, "the condition of `squeeze` is");
        break;
    case ITEM_RECIPE: check_recipe(c, item); break;
    default:
        if (item->kind >= ITEM_STEP && !c->ast->first_step)
            c->ast->first_step = item;
        check_body_item(c, item);
        break;
    }
}

/* Checks that the declared chunks are 0, 1, 2, ..., each declared once. */
static void check_chunk_numbers(Checker *c)
{
    const Item *of_number[PROGRAM_CHUNKS_MAX] = {NULL}, *last = NULL;
    for (const Item *item = c->ast->items; item; item = item->next) {
        if (item->kind != ITEM_CHUNK || item->chunk >= PROGRAM_CHUNKS_MAX)
            continue;
        if (of_number[item->chunk]) {
            diag_error(c->diagnostics, item->span, "chunk %u is declared twice", item->chunk);
            diag_note(c->diagnostics, of_number[item->chunk]->span, "first here");
        }
        of_number[item->chunk] = item;
        if (!last || item->chunk > last->chunk)
            last = item;
    }
    for (uint32_t i = 0; last && i < last->chunk; i++)
        if (!of_number[i]) {
            diag_error(c->diagnostics, last->span,
                       "chunk %u is declared, but chunk %u is not: chunks are numbered from 0", last->chunk, i);
            return;
        }
}

static void check_recipe_used(const Ast *ast, Diagnostics *diagnostics)
{
    const bool forward = ast->any_recipe->recipe.pair.forward;
    const char *const pair = forward ? "F&F" : "F&B";
    if (forward ? ast->has_forward_pairs : ast->has_pairs)
        return;
    if (ast->order) {
        diag_error(diagnostics, ast->any_recipe->span, "`order auto` makes no %s for this recipe", pair);
        if (forward)
            diag_help(diagnostics, "remove the recipe");
        else
            diag_help(diagnostics,
                      "with `overlap` among its settings, `order auto` makes F&Bs: order auto(memory = 2*%s, overlap);",
                      name_of(ast->ranks, "P"));
        return;
    }
    diag_error(diagnostics, ast->any_recipe->span, "no step has an %s for this recipe", pair);
    if (forward)
        diag_help(
            diagnostics,
            "in a schedule without any B, I and W, write F&F in a step, or `overlap` after a step: nF : %s overlap; "
            "in any other, remove the recipe",
            name_of(ast->microbatches, "M"));
    else
        diag_help(diagnostics,
                  "write F&B in a step, or `overlap` after a step with F and B: nFB : 4 overlap; or remove the "
                  "recipe");
}

bool check(Ast *ast, Arena *arena, Diagnostics *diagnostics)
{
    Checker checker = {.ast = ast, .arena = arena, .diagnostics = diagnostics};
    declare(&checker, (Name){.symbol = ast->rank}, NULL, DEPENDS_ON_RANK); /* RANK_SLOT */
    declare_costs(&checker);                                               /* in COST_SLOT and the slots after it */
    const Span start = {0, 0};
    for (Item *item = ast->items; item; item = item->next)
        check_item(&checker, item);
    check_chunk_numbers(&checker);
    if (ast->order)
        check_order_alone(&checker);
    if (ast->any_recipe)
        check_recipe_used(ast, diagnostics);
    if (!ast->ranks) {
        diag_error(diagnostics, start, "the schedule does not say its number of ranks");
        diag_help(diagnostics, "write: ranks P = 4;");
    }
    if (!ast->microbatches) {
        diag_error(diagnostics, start, "the schedule does not say its number of microbatches");
        diag_help(diagnostics, "write: microbatches M = 8;");
    }
    if (!ast->pipe_count) {
        diag_error(diagnostics, start, "the schedule has no pipe");
        diag_help(diagnostics, "write: pipe a: %s stages, stage s on s, %s microbatches;", name_of(ast->ranks, "P"),
                  name_of(ast->microbatches, "M"));
    } else if (ast->pipe_count > PROGRAM_PIPES_MAX) {
        diag_error(diagnostics, start, "the schedule has %u pipes; it can have at most %d", ast->pipe_count,
                   PROGRAM_PIPES_MAX);
    }
    return !diag_failed(diagnostics);
}
