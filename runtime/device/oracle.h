#ifndef DEVICE_ORACLE_H
#define DEVICE_ORACLE_H

/* The inside of the oracle device: every operation in double and in the plainest loops, by its definition. Slow: finite
   differences and the comparison of devices run on it. */

#include "runtime/device/device.h"

/* The operations of operations.def. */
#define OPERATION(name, SHAPE, OPERANDS) Status oracle_##name(Device *device PARAMETERS_##SHAPE OPERANDS, Error *);
#define OPERAND(effect, type, name) , type name
#include "runtime/device/operations.def"

/* c[m, n] += a b, of which element (i, j) stands at i * row + j * column. */
void oracle_product(Device *device, size_t m, size_t n, size_t k, const double *a, size_t a_row, size_t a_column,
                    const double *b, size_t b_row, size_t b_column, double *c);

#endif
