#ifndef ORDER_SLOTS_H
#define ORDER_SLOTS_H

/* Sorts by time slot, for schedules that say when a pass starts (`at`). */

#include <stdint.h>

typedef struct SlotKey {
    int64_t slot;
    uint32_t index; /* of the request */
} SlotKey;

/* Sorts by slot and keeps the order of equal slots. `scratch` has room for as many keys. Linear time if the slots
   are close together. */
void slots_sort(SlotKey *keys, SlotKey *scratch, uint32_t count);

#endif
