#ifndef BASE_COUNTED_H
#define BASE_COUNTED_H

/* How many of what, in words: "1 rank", "2 ranks", "0 passes". */

#include <stdint.h>

typedef struct Counted {
    char text[48];
} Counted;

/* `noun` in the singular. The text is the caller's until the end of the call that it is for: printf("%s\n", counted(n,
   "rank").text) */
Counted counted(uint64_t count, const char *noun);

#endif
