#include "base/status.h"

#include "base/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

Status error_set(Error *error, Status status, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(error->text, sizeof error->text, format, arguments);
    va_end(arguments);
    text_make_message(error->text);
    return status;
}

void error_prefix(Error *error, const char *format, ...)
{
    char words[sizeof error->text];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(words, sizeof words, format, arguments);
    va_end(arguments);
    text_make_message(words);
    size_t used = length < 0 ? 0 : (size_t)length;
    if (used >= sizeof words)
        used = sizeof words - 1;
    size_t kept = strlen(error->text);
    if (kept > sizeof error->text - 1 - used)
        kept = sizeof error->text - 1 - used;
    memmove(error->text + used, error->text, kept);
    memcpy(error->text, words, used);
    error->text[used + kept] = '\0';
}
