#include "base/text.h"

#include <stdbool.h>
#include <string.h>

/* The number of bytes of a UTF-8 character; 0: not UTF-8. The table of RFC 3629, section 4. */
static size_t utf8_length(const char *text, size_t left)
{
    static const struct {
        unsigned char first_least, first_most, second_least, second_most, length;
    } forms[] = {
        {0x00, 0x7f, 0x00, 0xff, 1}, {0xc2, 0xdf, 0x80, 0xbf, 2}, {0xe0, 0xe0, 0xa0, 0xbf, 3},
        {0xe1, 0xec, 0x80, 0xbf, 3}, {0xed, 0xed, 0x80, 0x9f, 3}, {0xee, 0xef, 0x80, 0xbf, 3},
        {0xf0, 0xf0, 0x90, 0xbf, 4}, {0xf1, 0xf3, 0x80, 0xbf, 4}, {0xf4, 0xf4, 0x80, 0x8f, 4},
    };
    const unsigned char *bytes = (const unsigned char *)text;
    size_t form = 0;
    while (form < sizeof forms / sizeof *forms &&
           !(bytes[0] >= forms[form].first_least && bytes[0] <= forms[form].first_most))
        form++;
    if (form == sizeof forms / sizeof *forms || left < forms[form].length)
        return 0;
    const size_t length = forms[form].length;
    if (length > 1 && !(bytes[1] >= forms[form].second_least && bytes[1] <= forms[form].second_most))
        return 0;
    for (size_t i = 2; i < length; i++)
        if ((bytes[i] & 0xc0) != 0x80)
            return 0;
    return length;
}

/* Whether the bytes begin with the byte order mark of UTF-16, or with two ASCII characters in UTF-16. */
static bool is_utf16(const char *text, size_t size)
{
    const unsigned char *bytes = (const unsigned char *)text;
    if (size >= 2 && ((bytes[0] == 0xff && bytes[1] == 0xfe) || (bytes[0] == 0xfe && bytes[1] == 0xff)))
        return true;
    return size >= 4 && !bytes[0] == !bytes[2] && !bytes[1] == !bytes[3] && !bytes[0] != !bytes[1];
}

Status text_accept(const char *path, char **text, size_t *size, Error *error)
{
    static const char mark[] = "\xef\xbb\xbf";
    if (is_utf16(*text, *size))
        return error_set(error, STATUS_BAD_INPUT,
                         "%s: the text is UTF-16: save it as UTF-8; in a spreadsheet that is 'CSV UTF-8'", path);
    if (strlen(*text) < *size)
        return error_set(error, STATUS_BAD_INPUT,
                         "%s: not a text file, because byte %zu is 0; if it is a compiled program, run it with dprun",
                         path, strlen(*text));
    if (strncmp(*text, mark, strlen(mark)) == 0) {
        *text += strlen(mark);
        *size -= strlen(mark);
    }
    for (char *at = *text; (at = strchr(at, '\r')); at++)
        if (at[1] != '\n')
            *at = '\n';
    return STATUS_OK;
}

size_t text_character(const char *text, size_t left)
{
    const unsigned char first = (unsigned char)text[0];
    const size_t length = utf8_length(text, left);
    const bool is_c1 = length == 2 && first == 0xc2 && (unsigned char)text[1] < 0xa0;
    return first < ' ' || first == 0x7f || is_c1 ? 0 : length;
}

void text_print(const char *text, size_t length, FILE *stream)
{
    for (size_t i = 0, bytes; i < length; i += bytes) {
        bytes = text_character(text + i, length - i);
        if (bytes)
            fwrite(text + i, 1, bytes, stream);
        else
            putc(text[i] == '\n' ? '\n' : text[i] == '\t' ? ' ' : '?', stream);
        bytes += bytes == 0;
    }
}

void text_put_lines(const char *head, const char *lines, FILE *stream)
{
    for (size_t length; *lines; lines += length) {
        length = strcspn(lines, "\n") + 1;
        fprintf(stream, "%s%.*s", head, (int)length, lines);
    }
}

static void make_printable(char *text, const char *further_line)
{
    for (size_t length = strlen(text), bytes; length > 0; text += bytes, length -= bytes) {
        bytes = text_character(text, length);
        if (!bytes && !(further_line && strncmp(text, further_line, strlen(further_line)) == 0))
            *text = *text == '\t' ? ' ' : '?';
        bytes += bytes == 0;
    }
}

void text_make_printable(char *text) { make_printable(text, NULL); }
void text_make_message(char *text) { make_printable(text, "\n  "); }

const char *text_printable(const char *text, Arena *arena)
{
    char *copy = arena_text(arena, text, strlen(text));
    text_make_printable(copy);
    return copy;
}

void json_put_text(const char *text, size_t length, FILE *stream)
{
    putc('"', stream);
    for (size_t i = 0, bytes; i < length; i += bytes) {
        const unsigned char c = (unsigned char)text[i];
        bytes = utf8_length(text + i, length - i);
        const bool is_control = bytes && !text_character(text + i, length - i);
        if (c == '"' || c == '\\')
            fprintf(stream, "\\%c", c);
        else if (is_control || c == '<')
            fprintf(stream, "\\u%04x", bytes == 2 ? (unsigned char)text[i + 1] : c);
        else if (bytes)
            fwrite(text + i, 1, bytes, stream);
        else
            fputs("\\ufffd", stream);
        bytes += bytes == 0;
    }
    putc('"', stream);
}

void json_put_string(const char *text, FILE *stream) { json_put_text(text, strlen(text), stream); }

void json_put_member(const char *before, const char *text, FILE *stream)
{
    fputs(before, stream);
    json_put_string(text, stream);
}
