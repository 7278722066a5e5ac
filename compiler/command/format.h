#pragma once

/* `dpc fmt`: one layout for schedule files. Line breaks, comments and words stay as the author wrote them, but several
   blank lines become one. Indentation and most space between the tokens of a line become uniform, and parts that
   neighbouring lines have in common are aligned in columns. */

#include "compiler/source/diag.h"
#include "base/status.h"

/* Returns the formatted source, which the arena owns, and its size without the closing 0. It has the same tokens, and
   formatting it again changes nothing. NULL, with diagnostics: the source does not parse. */
char *format_source(const Source *source, Arena *arena, Diagnostics *diagnostics, size_t *size);

/* `dpc fmt [--check] FILE.dps...|-`, called with the arguments after `fmt`. Rewrites files in place; `-` is standard
   input to standard output. With --check it rewrites none, lists those that would change, and returns STATUS_BAD_INPUT
   if there are any. A file that does not parse also gives STATUS_BAD_INPUT; its diagnostics go to stderr at once. */
Status format_command(int argc, char **argv, Arena *arena, Error *error);
