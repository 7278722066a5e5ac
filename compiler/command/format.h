#ifndef COMMAND_FORMAT_H
#define COMMAND_FORMAT_H

/* One way of writing schedule files: `dpc fmt`. Lines, comments and words stay the author's; what lies between the
   tokens of a line becomes uniform, and what neighbouring lines share stands in columns. */

#include "compiler/source/diag.h"
#include "runtime/base/status.h"

/* The source, formatted, with its size without the closing 0. The tokens are the same, and formatting the result
   changes nothing. NULL with diagnostics when the source does not parse. The arena owns it. */
char *format_source(const Source *source, Arena *arena, Diagnostics *diagnostics, size_t *size);

/* `dpc fmt [--check] FILE.dps...|-`: the arguments behind `fmt`. Files are rewritten in place; with --check none is,
   and those that would be are listed, with STATUS_BAD_INPUT. Diagnostics go to stderr as they are found. */
Status format_command(int argc, char **argv, Arena *arena, Error *error);

#endif
