#include "base/status.h"
#include "base/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* If there is memory, writes the whole line by one call, so that messages of several processes do not mix. */
void error_print(const char *program, const Error *error)
{
    char *line = NULL;
    size_t size = 0;
    if (!*error->text)
        return;
    FILE *memory = open_memstream(&line, &size), *stream = memory ? memory : stderr;
    fprintf(stream, "%s: ", program);
    text_print(error->text, strlen(error->text), stream);
    putc('\n', stream);
    if (memory && fclose(memory) == 0)
        fwrite(line, 1, size, stderr);
    free(line);
}
