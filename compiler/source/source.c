#include "compiler/source/source.h"

#include "base/file.h"
#include "base/text.h"

#include <string.h>

bool source_is_primus(const Source *source) { return strncmp(source->text, "Rank ", 5) == 0; }

bool source_is_order(const Source *source)
{
    const char *dot = strrchr(source->path, '.');
    return (dot && strcmp(dot, ".csv") == 0) || source_is_primus(source);
}

Status source_read(const char *path, Arena *arena, Source *source, Error *error)
{
    char *text;
    size_t size;
    *source = (Source){.path = text_printable(path, arena)};
    TRY(file_read(path, arena, &text, &size, error));
    return source_of_text(path, text, size, arena, source, error);
}

Status source_of_text(const char *path, char *text, size_t size, Arena *arena, Source *source, Error *error)
{
    *source = (Source){.path = text_printable(path, arena)};
    TRY(text_accept(path, &text, &size, error));
    source->text = text;
    source->size = size;
    if (source->size > UINT32_MAX / 2)
        return error_set(error, STATUS_BAD_INPUT, "%s: the file is too large: it must be smaller than 2 GiB", path);
    source_lines(source, arena);
    return STATUS_OK;
}

void source_lines(Source *source, Arena *arena)
{
    uint32_t count = 1;
    for (size_t i = 0; i < source->size; i++)
        count += source->text[i] == '\n';
    source->line_starts = arena_array(arena, count, sizeof *source->line_starts);
    source->line_count = 1;
    for (size_t i = 0; i < source->size; i++)
        if (source->text[i] == '\n')
            source->line_starts[source->line_count++] = (uint32_t)i + 1;
}

uint32_t source_line(const Source *source, uint32_t offset)
{
    uint32_t low = 0, high = source->line_count; /* the index of the line is in [low, high) */
    while (high - low > 1) {
        const uint32_t middle = low + (high - low) / 2;
        if (source->line_starts[middle] <= offset)
            low = middle;
        else
            high = middle;
    }
    return low + 1;
}

uint32_t source_column(const Source *source, uint32_t offset)
{
    uint32_t column = 1;
    for (size_t i = source->line_starts[source_line(source, offset) - 1]; i < offset && i < source->size; i++)
        column += !utf8_continues(source->text[i]);
    return column;
}
