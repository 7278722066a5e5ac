#pragma once

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/* Runs a command that is given like the arguments of printf. Returns what system() returns. */
__attribute__((format(printf, 1, 2))) static inline int shell(const char *format, ...)
{
    char command[4096];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(command, sizeof command, format, arguments);
    va_end(arguments);
    return system(command);
}
