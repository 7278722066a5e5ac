#pragma once

/* The schedules that come with dpc. */

#include "base/arena.h"
#include "base/status.h"

#include <stddef.h>

typedef struct FileList {
    const char **paths; /* [count]; the arena owns them */
    size_t count;
} FileList;

/* Lists the .dps files of the first of these folders that has some, in alphabetical order: share/dpc/schedules of the
   prefix in which dpc is installed; `schedules` beside the program, or one or two folders above it, as in a source
   tree. Paths below the current folder are relative. STATUS_BAD_USAGE: there are none. */
Status installed_schedules(Arena *arena, FileList *files, Error *error);

/* Checks a schedule's path before it is read. STATUS_BAD_INPUT if there is no such file, but an installed schedule has
   this name, with or without .dps, or nearly this name; the message names its path. */
Status installed_check(const char *path, Arena *arena, Error *error);
