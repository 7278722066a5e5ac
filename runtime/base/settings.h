#ifndef BASE_SETTINGS_H
#define BASE_SETTINGS_H

/* Settings as text: lines `key = value`, the same on a command line. `#` starts a comment; spaces around key and value
   and empty lines do not count. */

#include "runtime/base/status.h"

#include <stddef.h>

/* What takes them, one after the other. Both texts live as long as the call. It returns STATUS_BAD_INPUT where one is
   wrong. */
typedef Status SettingTaker(void *context, const char *key, const char *value, Error *error);

/* All settings of a file that file_read has read, up to the first that is wrong: then FILE:LINE stands in front of the
   error. Writes into the text. */
Status settings_take(const char *path, char *text, size_t size, SettingTaker *take, void *context, Error *error);
/* One `key = value`. STATUS_BAD_INPUT when it is none. */
Status settings_assign(const char *text, size_t length, SettingTaker *take, void *context, Error *error);

/* STATUS_BAD_INPUT: no `what` (key, ...) is called so; names the one that was most likely meant or, if none is near,
   all. They stand at `first` and then `stride` bytes from each to the next, as in a column of a table. */
Status settings_unknown(const char *what, const char *word, const char *const *first, size_t stride, size_t count,
                        Error *error);

#endif
