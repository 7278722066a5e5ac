/* Structs of callers that were compiled with another version of dps.h. */

#include "library/internal.h"

#include <string.h>

bool struct_in(void *known, size_t known_size, const void *given)
{
    size_t size = 0;
    if (given)
        memcpy(&size, given, sizeof size);
    if (size < sizeof size)
        return false;
    for (size_t i = known_size; i < size; i++)
        if (((const char *)given)[i])
            return false;
    memset(known, 0, known_size);
    memcpy(known, given, size < known_size ? size : known_size);
    return true;
}

bool struct_out(void *given, const void *known, size_t known_size)
{
    size_t size = 0;
    if (given)
        memcpy(&size, given, sizeof size);
    if (size < sizeof size)
        return false;
    memset((char *)given + sizeof size, 0, size - sizeof size);
    memcpy((char *)given + sizeof size, (const char *)known + sizeof size,
           (size < known_size ? size : known_size) - sizeof size);
    return true;
}
