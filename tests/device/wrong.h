#pragma once

/* Describes the errors of a matrix, to help find the cause: which rows and columns are wrong, by how much, and whether
   the wrong values are known: never written, zero, a multiple of the right value, or the value of another element. */

#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct Wrong {
    const double *got, *expected; /* [rows, columns] */
    size_t rows, columns;
    double bound; /* largest allowed |got - expected| of an element */
    /* count: the number of wrong elements; samples: the indices of some of them that are neither 0 nor NaN */
    size_t count;
    size_t samples[64], sampled;
    char *text;
    size_t size, used;
} Wrong;

__attribute__((format(printf, 2, 3))) static inline void wrong_say(Wrong *w, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    const int length = vsnprintf(w->text + w->used, w->size - w->used, format, arguments);
    va_end(arguments);
    w->used = w->used + (size_t)length < w->size ? w->used + (size_t)length : w->size - 1;
}

static inline bool wrong_differ(const Wrong *w, double got, double expected)
{
    return !(fabs(got - expected) <= w->bound); /* also true for NaN */
}

static inline bool wrong_at(const Wrong *w, size_t i) { return wrong_differ(w, w->got[i], w->expected[i]); }

/* Adds to the text "all 128 rows", "rows 64..127", "rows 3..59 every 8th, 64, 70", or, if there are more than four
   ranges, "rows 1, 4, 9, 16 and more, 7 of 128". */
static inline void wrong_say_set(Wrong *w, const char *name, const bool *in, size_t count)
{
    enum { RANGES = 4 };
    size_t all = 0, ranges = 0;
    for (size_t i = 0; i < count; i++)
        all += in[i];
    if (all == count) {
        wrong_say(w, "all %zu %ss", count, name);
        return;
    }
    wrong_say(w, "%s%s ", name, all > 1 ? "s" : "");
    for (size_t i = 0; i < count; i++) {
        if (!in[i])
            continue;
        if (ranges++ == RANGES) {
            wrong_say(w, " and more, %zu of %zu", all, count);
            return;
        }
        size_t step = 1, last = i;
        while (i + step < count && !in[i + step])
            step++;
        for (bool alone = true; last + step < count && in[last + step] && alone; last += alone ? step : 0)
            for (size_t between = last + 1; between < last + step; between++)
                alone = alone && !in[between];
        if ((last - i) / step < 2 && step > 1)
            last = i; /* the distance of only two of them is no pattern */
        wrong_say(w, "%s%zu", ranges > 1 ? ", " : "", i);
        if (last > i)
            wrong_say(w, "..%zu", last);
        if (last > i && step > 1)
            wrong_say(w, " every %zu%s", step, step == 2 ? "nd" : step == 3 ? "rd" : "th");
        i = last;
    }
}

static inline void wrong_say_where(Wrong *w)
{
    bool *rows = calloc(w->rows + w->columns, sizeof *rows), *columns = rows + w->rows;
    size_t row_count = 0, column_count = 0;
    for (size_t i = 0; i < w->rows * w->columns; i++)
        if (wrong_at(w, i)) {
            row_count += !rows[i / w->columns], column_count += !columns[i % w->columns];
            rows[i / w->columns] = columns[i % w->columns] = true;
        }
    wrong_say_set(w, "row", rows, w->rows);
    wrong_say(w, ", ");
    wrong_say_set(w, "column", columns, w->columns);
    if (w->count < row_count * column_count)
        wrong_say(w, ", %.3g %% of these", 100 * (double)w->count / (double)row_count / (double)column_count);
    free(rows);
}

/* Whether most samples hold the expected value of element (row + down, column + right); if `mixed`, of element (row ^
   down, column ^ right). */
static inline bool wrong_is_of_others(const Wrong *w, ptrdiff_t down, ptrdiff_t right, bool mixed)
{
    size_t fits = 0;
    for (size_t s = 0; s < w->sampled; s++) {
        const ptrdiff_t row = (ptrdiff_t)(w->samples[s] / w->columns), column = (ptrdiff_t)(w->samples[s] % w->columns);
        const ptrdiff_t from_row = mixed ? row ^ down : row + down,
                        from_column = mixed ? column ^ right : column + right;
        fits +=
            from_row >= 0 && from_row < (ptrdiff_t)w->rows && from_column >= 0 && from_column < (ptrdiff_t)w->columns &&
            !wrong_differ(w, w->got[w->samples[s]], w->expected[(size_t)from_row * w->columns + (size_t)from_column]);
        if (s + 1 - fits > w->sampled / 4)
            return false;
    }
    return fits > 2;
}

/* Describes values that belong to other elements: all moved by some rows and columns, or with flipped bits in the
   index. False: most do not, and nothing is written. */
static inline bool wrong_say_moved(Wrong *w)
{
    const ptrdiff_t rows = (ptrdiff_t)w->rows, columns = (ptrdiff_t)w->columns;
    for (ptrdiff_t down = 0; down < rows; down++)
        for (ptrdiff_t right = 0; right < columns; right++) {
            if (down + right > 0 && wrong_is_of_others(w, down, right, true)) {
                wrong_say(w, "; most have the value of row ^ %td, column ^ %td", down, right);
                return true;
            }
            for (int sign = 0; sign < 4; sign++) {
                const ptrdiff_t by_row = sign & 1 ? -down : down, by_column = sign & 2 ? -right : right;
                if (down + right > 0 && wrong_is_of_others(w, by_row, by_column, false)) {
                    wrong_say(w, "; most have the value of row %+td, column %+td", by_row, by_column);
                    return true;
                }
            }
        }
    return false;
}

/* Describes values that are a multiple of the right ones. For example, they are half of the right ones if half of the
   products were not added, and twice the right ones if two tiles added their products to the same elements. False: most
   values are no such multiple; then nothing is written. */
static inline bool wrong_say_multiple(Wrong *w)
{
    size_t fits = 0;
    const double factor = w->sampled ? w->got[w->samples[0]] / w->expected[w->samples[0]] : 0;
    for (size_t s = 0; s < w->sampled; s++)
        fits += fabs(w->got[w->samples[s]] - factor * w->expected[w->samples[s]]) <= w->bound;
    if (fits < 3 || fits < w->sampled - w->sampled / 4)
        return false;
    wrong_say(w, "; most are %.3g times what they should be", factor);
    return true;
}

/* Writes the description into text[size]. An element is wrong if it is NaN or off by more than `bound`. */
static inline void describe_wrong(const double *got, const double *expected, size_t rows, size_t columns, double bound,
                                  char *text, size_t size)
{
    Wrong w = {
        .got = got, .expected = expected, .rows = rows, .columns = columns, .bound = bound, .text = text, .size = size};
    const size_t count = rows * columns;
    size_t worst = 0, poison = 0, zero = 0, others = 0;
    double most = -1;
    for (size_t i = 0; i < count; i++) {
        const double off = isnan(got[i]) ? -1 : fabs(got[i] - expected[i]);
        if (off > most)
            worst = i, most = off;
        if (!wrong_at(&w, i))
            continue;
        w.count++;
        poison += isnan(got[i]) != 0;
        zero += got[i] == 0;
        others += !isnan(got[i]) && got[i] != 0;
    }
    if (w.count == 0 && count > 0) {
        wrong_say(&w, "none of %zu by more than %.3g; worst at [%zu, %zu]: %.7g, should be %.7g", count, bound,
                  worst / columns, worst % columns, got[worst], expected[worst]);
        return;
    }
    wrong_say(&w, "%zu of %zu wrong: ", w.count, count);
    wrong_say_where(&w);
    if (poison > 0)
        wrong_say(&w, "; %zu not a number, or never written", poison);
    if (zero > 0)
        wrong_say(&w, "; %zu zero", zero);
    if (most > bound)
        wrong_say(&w, "; worst at [%zu, %zu]: %.7g, should be %.7g", worst / columns, worst % columns, got[worst],
                  expected[worst]);
    const size_t room = sizeof w.samples / sizeof *w.samples, stride = others / room + 1;
    for (size_t i = 0, number = 0; i < count && w.sampled < room; i++)
        if (wrong_at(&w, i) && !isnan(got[i]) && got[i] != 0 && number++ % stride == 0)
            w.samples[w.sampled++] = i;
    if (!wrong_say_multiple(&w))
        wrong_say_moved(&w);
}
