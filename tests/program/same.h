#pragma once

#include "program/program.h"

#include <string.h>

/* Whether two instructions are equal, with their second halves. */
static inline bool same_instruction(const Instruction *a, const Instruction *b)
{
    Instruction x = *a, y = *b;
    x.second = y.second = NULL;
    return memcmp(&x, &y, sizeof x) == 0 && !a->second == !b->second &&
           (!a->second || same_instruction(a->second, b->second));
}
