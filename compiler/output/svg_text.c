#include "compiler/output/svg_text.h"

#include "base/text.h"

#include <ctype.h>
#include <math.h>
#include <string.h>

void svg_put_text(const char *text, size_t length, FILE *stream)
{
    for (size_t bytes; length > 0; text += bytes, length -= bytes) {
        bytes = text_character(text, length);
        switch (*text) {
        case '&': fputs("&amp;", stream); break;
        case '<': fputs("&lt;", stream); break;
        case '>': fputs("&gt;", stream); break;
        case '"': fputs("&quot;", stream); break;
        default: fwrite(bytes ? text : "?", 1, bytes ? bytes : 1, stream); break;
        }
        bytes += bytes == 0;
    }
}

/* The index of the blank at which to break text[0..end]: the last blank after punctuation; if there is none, the last
   blank; 0 if there is no blank. */
static size_t break_before(const char *text, size_t end)
{
    size_t blank = 0;
    for (size_t i = 1; i <= end; i++)
        if (text[i] == ' ' &&
            (!blank || ispunct((unsigned char)text[i - 1]) || !ispunct((unsigned char)text[blank - 1])))
            blank = i;
    return blank;
}

/* The number of bytes in the first line of the text. */
static size_t line_length(const SvgLines *lines, const char *text)
{
    const size_t fits = (size_t)fmax(lines->width / lines->character, 8);
    if (strlen(text) <= fits)
        return strlen(text);
    size_t end = break_before(text, fits);
    if (end == 0) /* one long word: break anywhere, but not inside a UTF-8 character */
        for (end = fits; ((unsigned char)text[end] & 0xc0) == 0x80;)
            end--;
    return end;
}

double svg_put_lines(const SvgLines *lines, const char *text, double y, FILE *stream)
{
    double height = 0;
    for (; *text; height += lines->pitch) {
        const size_t length = line_length(lines, text);
        if (stream) {
            fprintf(stream, "<text class=\"%s\" x=\"%g\" y=\"%g\">", lines->style, lines->x, y + height);
            svg_put_text(text, length, stream);
            fputs("</text>\n", stream);
        }
        text += length + (text[length] == ' ');
    }
    return height;
}
