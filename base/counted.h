#pragma once

/* A count with its noun: "1 rank", "2 ranks", "0 passes". */

#include <stdint.h>

typedef struct Counted {
    char text[48];
} Counted;

/* `noun` is in the singular. The text lives until the end of the full expression: printf("%s\n", counted(n,
   "rank").text) */
Counted counted(uint64_t count, const char *noun);
