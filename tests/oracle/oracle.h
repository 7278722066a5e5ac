#pragma once

/* The device "oracle", which tests that are linked with it have: it computes every operation in double, in plain loops,
   by its definition. It is slow, and is used for finite differences and for comparison with other devices. */

#include "runtime/device/device.h"
#include "runtime/device/group.h"

/* Declares the oracle's function for each operation of operations.def. */
#define ORACLE(name) OPERATION_HEAD(oracle_##name, name)
#define OPERATION(name, OPERANDS) ORACLE(name);
#define GROUP_OPERATION(name, OPERANDS)
#define OPERAND(effect, type, name)
#include "runtime/device/operations.def"

/* c[m, n] += a[m, k] b[k, n]. c is row-major. Element (i, j) of a is a[i * a_row + j * a_column]; likewise for b. */
void oracle_product(Device *device, size_t m, size_t n, size_t k, const double *a, size_t a_row, size_t a_column,
                    const double *b, size_t b_row, size_t b_column, double *c);
