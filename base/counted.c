#include "base/counted.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

Counted counted(uint64_t count, const char *noun)
{
    const size_t length = strlen(noun);
    const char last = noun[length - 1];
    const char *ending = "s";
    size_t kept = length;
    if (count == 1)
        ending = "";
    else if (last == 's' || last == 'h')
        ending = "es";
    else if (last == 'y')
        ending = "ies", kept--;
    Counted result;
    snprintf(result.text, sizeof result.text, "%" PRIu64 " %.*s%s", count, (int)kept, noun, ending);
    return result;
}
