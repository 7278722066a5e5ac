#include "compiler/tree/ast.h"

const char *const function_names[FUNCTIONS] = {"min", "max", "abs", "cost"};
const char *const cost_form = "write cost(F); the names of costs are fixed: F, B, I, W, U, FB and comm";
const char *const setting_names[SETTINGS] = {"memory", "input", "weight", "effort"};

bool ast_searches_recipe(const Ast *ast) { return ast && ast->recipe && ast->recipe->recipe.automatic; }

bool item_is_chunk_recipe(const Item *item)
{
    return item->kind == ITEM_RECIPE && item->recipe.pair.chunks[0] != NO_CHUNK;
}

const char *expression_text(ExpressionKind kind)
{
    static const char *const texts[] = {
#define EXPRESSION(name, text) text,
        EXPRESSION_KINDS
#undef EXPRESSION
    };
    return texts[kind];
}

Expression *expression_new(Arena *arena, ExpressionKind kind, Span span, Expression *operands)
{
    Expression *expression = arena_allocate(arena, sizeof *expression);
    *expression = (Expression){.kind = kind, .span = span, .operands = operands, .slot = NO_SLOT, .size = 1};
    for (const Expression *operand = operands; operand; operand = operand->next) {
        expression->size += operand->size;
        if (operand->depth > expression->depth)
            expression->depth = operand->depth;
    }
    expression->depth++;
    return expression;
}

bool expression_mentions(const Expression *expression, uint32_t slot)
{
    if (!expression)
        return false;
    if (expression->kind == EXPRESSION_NAME && expression->slot == slot)
        return true;
    for (const Expression *operand = expression->operands; operand; operand = operand->next)
        if (expression_mentions(operand, slot))
            return true;
    return false;
}
