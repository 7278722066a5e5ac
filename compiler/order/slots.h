#ifndef ORDER_SLOTS_H
#define ORDER_SLOTS_H

/* The order of time slots: for schedules that are defined by when a pass starts (`at`). */

#include <stdint.h>

typedef struct SlotKey {
    int64_t slot;
    uint32_t index; /* of what stands there */
} SlotKey;

/* By slot, equal slots in the order in which they are. `scratch` has room for as many. Linear for slots that lie
   close. */
void slots_sort(SlotKey *keys, SlotKey *scratch, uint32_t count);

#endif
