#pragma once

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Runs a command and reads the numbers after `name` in its output, one a line, at most `most`. Returns how many it has
   read; 0 if the command fails. */
static inline int numbers_of(const char *command, const char *name, double *values, int most)
{
    static char line[1 << 16];
    int count = 0;
    FILE *pipe = popen(command, "r");
    while (pipe && fgets(line, sizeof line, pipe)) {
        const char *found = strstr(line, name);
        if (found && count < most)
            values[count++] = strtod(found + strlen(name), NULL);
    }
    return pipe && pclose(pipe) == 0 ? count : 0;
}

/* "chrt -f 1 ", which gives a command a higher priority than other programs, if the system allows it; otherwise "". */
static inline const char *priority_of_bench(void)
{
    return system("chrt -f 1 true 2>/dev/null") == 0 ? "chrt -f 1 " : "";
}
