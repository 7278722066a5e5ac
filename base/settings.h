#pragma once

/* Settings as text: one `key = value` per line of a file, or in an argument of a command line. Spaces around a key or a
   value are ignored. In a file, `#` starts a comment, and empty lines are ignored. */

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>

/* The caller's function that stores a setting. `key` and `value` are valid only during the call. If it does not return
   STATUS_OK, the setting is wrong, or cannot be stored. */
typedef Status SettingTaker(void *context, const char *key, const char *value, Error *error);

/* Takes the settings in `text`, the `size` bytes of the file `path` and a 0 after them, up to the first setting that
   fails. Returns STATUS_OK or the status of the failed setting, whose error starts with FILE:LINE. STATUS_BAD_INPUT:
   one of the `size` bytes is 0. Overwrites parts of `text`. */
Status settings_take(const char *path, char *text, size_t size, SettingTaker *take, void *context, Error *error);
/* Takes one setting `key = value`. Overwrites parts of `text`. STATUS_BAD_INPUT: the text has no =. Otherwise the
   result is that of `take`. */
Status settings_assign(char *text, SettingTaker *take, void *context, Error *error);

/* Reads a number of bytes, which may end in K, M, G or T (powers of 1024). False: the text is not such a number. The
   caller checks the range: the number may be negative, have a fraction, or be infinite. */
bool settings_bytes(const char *text, double *bytes);

/* For a `word` that is no known `what` (such as "key"): returns STATUS_BAD_INPUT. The error has the known name that was
   probably meant or, if none is near, all known names. The `count` pointers to the known names start at `first`,
   `stride` bytes apart, as in a column of a table. */
Status settings_unknown(const char *what, const char *word, const char *const *first, size_t stride, size_t count,
                        Error *error);
