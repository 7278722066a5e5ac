#pragma once

/* Sorts requested passes by time slot, for schedules whose steps say in which slot a pass runs (`at`). */

#include <stdint.h>

typedef struct SlotKey {
    int64_t slot;
    uint32_t index; /* the request is Expander.requests[index] */
} SlotKey;

/* Sorts by slot; keys with equal slots keep their order. `scratch` has room for as many keys. Takes linear time if
   the slots are close together. */
void slots_sort(SlotKey *keys, SlotKey *scratch, uint32_t count);
