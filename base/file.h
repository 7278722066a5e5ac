#pragma once

#include "base/arena.h"
#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* Reads the whole file ("-" is standard input). A 0 byte follows its end, which `size` does not count. The arena
   owns the bytes. STATUS_BAD_INPUT: the file cannot be read, or is a device or pipe that did not end within 256 MiB;
   the error has the path. STATUS_NO_MEMORY: the file does not fit into memory. */
Status file_read(const char *path, Arena *arena, char **bytes, size_t *size, Error *error);

/* A file that appears whole or not at all. Data goes to a file without a name (or, if the file system has no such
   files, to a temporary file .NAME.dptmp.XXXXXX beside `path`). Only file_finish gives it the name `path`, after all
   data have reached the disk. Until then, and if anything fails before, an old file of that name stays as it was. A
   writer holds a lock (flock) on its temporary file. A killed writer loses the lock, and the next writer of the same
   file removes the leftover. If `path` is a symbolic link to a file, that file is replaced and the link stays. None of
   this holds for "-" (standard output), a device or a pipe: data go there directly. */
typedef struct OutputFile {
    FILE *stream;           /* write here */
    FILE *compressed;       /* where the compressed data of `stream` go; NULL: `stream` does not compress */
    char *path, *temporary; /* path NULL: standard output */
    bool nameless;
} OutputFile;

Status file_begin(const char *path, OutputFile *file, Error *error);
/* The same for text and traces: the data are compressed if the path ends in .gz. */
Status file_begin_text(const char *path, OutputFile *file, Error *error);
/* What file_begin does for every path but "-" (standard output). libdps calls it: there "-" has no special meaning. */
Status file_begin_path(const char *path, OutputFile *file, Error *error);
/* Checks whether file_begin would succeed: calls it, and removes the temporary file. For a pipe it only checks the
   right to write: it does not open the pipe, because the pipe's reader would take the closing for the end of the data.
   */
Status file_check(const char *path, Error *error);
/* Whether data written to `path` stays: true for a regular file and for a path that does not exist yet, false for "-"
   (standard output), a device or a pipe. */
bool file_is_kept(const char *path);
/* Completes the file: flushes and syncs it, gives it its name, syncs the folder, and closes the file. Standard output
   is only flushed, a device or pipe flushed and closed. STATUS_RUN_FAILED names the path and the system's reason; then
   an old file of that name is unchanged, unless the new file had already got the name (the sync of the folder or the
   closing failed). In any case *file is empty afterwards. */
Status file_finish(OutputFile *file, Error *error);
/* Closes the file (not standard output), and removes it if it is a temporary file. Does nothing after file_finish. */
void file_abandon(OutputFile *file);

/* STATUS_BAD_USAGE if two outputs, or an output and an input, are the same file, even if their paths differ. NULL, "-",
   devices and pipes do not count as files. */
Status file_keep_apart(const char *const *outputs, size_t output_count, const char *const *inputs, size_t input_count,
                       Error *error);
