#ifndef ORDER_SLOTS_H
#define ORDER_SLOTS_H

/* Sorts passes by time slot, for schedules that say when a pass starts (`at`). */

#include <stdint.h>

typedef struct SlotKey {
    int64_t slot;
    uint32_t index; /* index in Expander.requests of the request for this slot */
} SlotKey;

/* Sorts by slot; keys with equal slots keep their order. `scratch` has room for as many keys. Takes linear time if
   the slots are close together. */
void slots_sort(SlotKey *keys, SlotKey *scratch, uint32_t count);

#endif
