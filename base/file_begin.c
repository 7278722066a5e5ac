#include "base/file.h"

#include <string.h>

Status file_begin(const char *path, OutputFile *file, Error *error)
{
    *file = (OutputFile){.stream = stdout};
    return strcmp(path, "-") == 0 ? STATUS_OK : file_begin_path(path, file, error);
}
