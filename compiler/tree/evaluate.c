#include "compiler/tree/evaluate.h"

#include <string.h>

static bool fail(const Expression *expression, bool by_zero, int64_t left, int64_t right, Fault *fault)
{
    *fault = (Fault){.expression = expression, .by_zero = by_zero, .left = left, .right = right};
    return false;
}

static bool evaluate_call(const Expression *call, const int64_t *values, int64_t *result, Fault *fault)
{
    if (!evaluate(call->operands, values, result, fault))
        return false;
    if (call->function == FUNCTION_ABS && *result < 0 && __builtin_sub_overflow(0, *result, result))
        return fail(call, false, INT64_MIN, 0, fault);
    for (const Expression *operand = call->operands->next; operand; operand = operand->next) {
        int64_t value;
        if (!evaluate(operand, values, &value, fault))
            return false;
        if (call->function == FUNCTION_MIN ? value < *result : value > *result)
            *result = value;
    }
    return true;
}

/* Evaluates the operations with one operand, and ?:, && and ||, which do not always evaluate all operands. */
static bool evaluate_partly(const Expression *expression, const int64_t *values, int64_t *result, Fault *fault)
{
    const Expression *first = expression->operands;
    if (!evaluate(first, values, result, fault))
        return false;
    switch (expression->kind) {
    case EXPRESSION_NEGATE: {
        const int64_t value = *result;
        return !__builtin_sub_overflow(0, value, result) || fail(expression, false, value, 0, fault);
    }
    case EXPRESSION_NOT: *result = !*result; return true;
    case EXPRESSION_CHOOSE: return evaluate(*result ? first->next : first->next->next, values, result, fault);
    default: /* && and || */
        if ((*result != 0) == (expression->kind == EXPRESSION_OR)) {
            *result = expression->kind == EXPRESSION_OR;
            return true;
        }
        if (!evaluate(first->next, values, result, fault))
            return false;
        *result = *result != 0;
        return true;
    }
}

static bool evaluate_division(const Expression *expression, int64_t left, int64_t right, int64_t *result, Fault *fault)
{
    if (right == 0)
        return fail(expression, true, left, right, fault);
    if (left == INT64_MIN && right == -1)
        return fail(expression, false, left, right, fault);
    *result = expression->kind == EXPRESSION_DIVIDE ? left / right : left % right;
    return true;
}

bool evaluate(const Expression *expression, const int64_t *values, int64_t *result, Fault *fault)
{
    switch (expression->kind) {
    case EXPRESSION_NUMBER: *result = expression->number; return true;
    case EXPRESSION_NAME: *result = values[expression->slot]; return true;
    case EXPRESSION_CALL: return evaluate_call(expression, values, result, fault);
    case EXPRESSION_NEGATE:
    case EXPRESSION_NOT:
    case EXPRESSION_CHOOSE:
    case EXPRESSION_AND:
    case EXPRESSION_OR: return evaluate_partly(expression, values, result, fault);
    default: break;
    }
    int64_t left, right;
    if (!evaluate(expression->operands, values, &left, fault) ||
        !evaluate(expression->operands->next, values, &right, fault))
        return false;
    bool overflow = false;
    switch (expression->kind) {
    case EXPRESSION_ADD: overflow = __builtin_add_overflow(left, right, result); break;
    case EXPRESSION_SUBTRACT: overflow = __builtin_sub_overflow(left, right, result); break;
    case EXPRESSION_MULTIPLY: overflow = __builtin_mul_overflow(left, right, result); break;
    case EXPRESSION_DIVIDE:
    case EXPRESSION_REMAINDER: return evaluate_division(expression, left, right, result, fault);
    case EXPRESSION_EQUAL: *result = left == right; break;
    case EXPRESSION_UNEQUAL: *result = left != right; break;
    case EXPRESSION_LESS: *result = left < right; break;
    case EXPRESSION_LESS_EQUAL: *result = left <= right; break;
    case EXPRESSION_GREATER: *result = left > right; break;
    default: *result = left >= right; break;
    }
    return !overflow || fail(expression, false, left, right, fault);
}

const char *fault_text(const Fault *fault, Arena *arena)
{
    const Expression *expression = fault->expression;
    const long long left = fault->left, right = fault->right;
    const char *const operator= expression_text(expression->kind);
    if (fault->by_zero)
        return arena_format(arena, "division by zero: %lld %s 0", left, operator);
    if (expression->kind == EXPRESSION_CALL)
        return arena_format(arena, "abs(%lld) does not fit in 64 bits", left);
    if (expression->kind == EXPRESSION_NEGATE)
        return arena_format(arena, "-(%lld) does not fit in 64 bits", left);
    return arena_format(arena, "%lld %s %lld does not fit in 64 bits", left, operator, right);
}

enum { NAMES_SHOWN = 8 };

/* Appends the slots of the names in the expression that are not in the list yet, up to NAMES_SHOWN in all. Returns the
   new count. */
static uint32_t collect_names(const Expression *expression, uint32_t *slots, uint32_t count)
{
    if (expression->kind == EXPRESSION_NAME) {
        for (uint32_t i = 0; i < count; i++)
            if (slots[i] == expression->slot)
                return count;
        if (count < NAMES_SHOWN)
            slots[count++] = expression->slot;
    }
    for (const Expression *operand = expression->operands; operand; operand = operand->next)
        count = collect_names(operand, slots, count);
    return count;
}

const char *values_text(const Ast *ast, const Expression *expression, const int64_t *values, Arena *arena)
{
    uint32_t slots[NAMES_SHOWN];
    const uint32_t count = collect_names(expression, slots, 0);
    const char *text = "";
    for (uint32_t i = 0; i < count; i++)
        text = arena_format(arena, "%s%s%s = %lld", text, i ? ", " : "", ast->declarations[slots[i]].name,
                            (long long)values[slots[i]]);
    return text;
}

const char *values_help(const Ast *ast, const Expression *expression, const int64_t *values, Arena *arena)
{
    const char *text = values_text(ast, expression, values, arena);
    return *text ? arena_format(arena, "here %s", text) : NULL;
}

void values_explain(const Ast *ast, const Expression *expression, const int64_t *values, Arena *arena,
                    Diagnostics *diagnostics)
{
    const char *help = values_help(ast, expression, values, arena);
    if (help)
        diag_help(diagnostics, "%s", help);
}
