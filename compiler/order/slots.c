#include "compiler/order/slots.h"

#include <string.h>

enum { DIGIT_BITS = 11, DIGITS = 1 << DIGIT_BITS };

/* slot - first, without overflow. */
static uint64_t distance(int64_t slot, int64_t first) { return (uint64_t)slot - (uint64_t)first; }

/* One round of a radix sort: a stable sort by the digit that begins at bit `shift`. */
static void sort_by_digit(const SlotKey *from, SlotKey *to, uint32_t count, int64_t first, unsigned shift)
{
    uint32_t places[DIGITS] = {0};
    for (uint32_t i = 0; i < count; i++)
        places[distance(from[i].slot, first) >> shift & (DIGITS - 1)]++;
    for (uint32_t digit = 0, place = 0; digit < DIGITS; digit++) {
        const uint32_t here = places[digit];
        places[digit] = place;
        place += here;
    }
    for (uint32_t i = 0; i < count; i++)
        to[places[distance(from[i].slot, first) >> shift & (DIGITS - 1)]++] = from[i];
}

void slots_sort(SlotKey *keys, SlotKey *scratch, uint32_t count)
{
    if (!count)
        return;
    int64_t first = keys[0].slot, last = keys[0].slot;
    for (uint32_t i = 1; i < count; i++) {
        first = keys[i].slot < first ? keys[i].slot : first;
        last = keys[i].slot > last ? keys[i].slot : last;
    }
    SlotKey *from = keys, *to = scratch;
    for (unsigned shift = 0; shift < 64 && distance(last, first) >> shift; shift += DIGIT_BITS) {
        sort_by_digit(from, to, count, first, shift);
        SlotKey *sorted = to;
        to = from;
        from = sorted;
    }
    if (from != keys)
        memcpy(keys, from, count * sizeof *keys);
}
