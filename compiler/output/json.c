#include "compiler/output/json.h"

void json_put_text(const char *text, size_t length, FILE *stream)
{
    putc('"', stream);
    for (size_t i = 0; i < length; i++) {
        const unsigned char c = (unsigned char)text[i];
        if (c == '"' || c == '\\')
            fprintf(stream, "\\%c", c);
        else if (c < 0x20 || c == '<')
            fprintf(stream, "\\u%04x", c);
        else
            putc(c, stream);
    }
    putc('"', stream);
}
