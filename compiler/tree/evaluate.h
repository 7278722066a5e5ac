#pragma once

/* The values of expressions: 64-bit integers, / and % as in C, comparisons and logic give 0 or 1. */

#include "compiler/tree/ast.h"

/* Why an expression has no value. */
typedef struct Fault {
    /* the operation that failed; `left` and `right` are the values of its operands, right 0 if it has one operand */
    const Expression *expression;
    bool by_zero; /* division by zero; false: overflow */
    int64_t left, right;
} Fault;

/* Evaluates an expression. values[slot]: the values of the names in it. False: the expression has no value; `fault`
   says why. */
bool evaluate(const Expression *expression, const int64_t *values, int64_t *result, Fault *fault);

const char *fault_text(const Fault *fault, Arena *arena);
/* The first 8 names in the expression with their values as text: "P = 8, r = 3"; "" if the expression has no names. */
const char *values_text(const Ast *ast, const Expression *expression, const int64_t *values, Arena *arena);
/* The text of a help with these values: "here P = 8, r = 3". NULL if the expression has no names. */
const char *values_help(const Ast *ast, const Expression *expression, const int64_t *values, Arena *arena);
/* Adds this help to the diagnostic before it. Adds nothing if the expression has no names. */
void values_explain(const Ast *ast, const Expression *expression, const int64_t *values, Arena *arena,
                    Diagnostics *diagnostics);
