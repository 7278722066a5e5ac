#ifndef BASE_FILE_H
#define BASE_FILE_H

#include "runtime/base/arena.h"
#include "runtime/base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* The whole file ("-" is standard input), with a 0 byte behind its end that `size` does not count. The arena owns it.
   STATUS_BAD_INPUT names the path and the system's reason, or that a device or a pipe did not end within 256 MiB;
   STATUS_RUN_FAILED when the arena returns NULL. */
Status file_read(const char *path, Arena *arena, char **bytes, size_t *size, Error *error);

/* A file that appears whole or not at all: what is written goes to a file without a name (where the file system has
   none, to a temporary file .NAME.dptmp.XXXXXX beside `path`), and only file_finish, once everything has reached the
   disk, gives it the name. Until then, and after any failure, an old file of that name is as it was. A writer holds a
   lock (flock) on its temporary file. A killed writer loses it, and the next writer of the same file removes what is
   left. A link stays, what it leads to is written anew. "-" is standard output. */
typedef struct OutputFile {
    FILE *stream; /* write here */
    char *path, *temporary;
    bool nameless;
} OutputFile;

Status file_begin(const char *path, OutputFile *file, Error *error);
/* Whether file_begin would do it, as far as can be told without leaving anything or opening a pipe, whose reader would
   take the closing for the end. */
Status file_check(const char *path, Error *error);
/* Whether what is written to `path` stays in a file, not in standard output, a device or a pipe. */
bool file_is_kept(const char *path);
/* Flushes, syncs, renames, and syncs the folder. STATUS_RUN_FAILED names the path and the system's reason; then nothing
   has changed, unless it was the folder that could not be synced. */
Status file_finish(OutputFile *file, Error *error);
/* Gives up: removes the temporary file. Harmless after file_finish. */
void file_abandon(OutputFile *file);

/* STATUS_BAD_USAGE where one of the outputs would take the place of another or of an input, under whatever name. NULL
   and "-" are no file. */
Status file_keep_apart(const char *const *outputs, size_t output_count, const char *const *inputs, size_t input_count,
                       Error *error);

#endif
