#include "compiler/output/terminal.h"

#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

Terminal terminal_of(FILE *stream, uint32_t width)
{
    enum { PIPE_WIDTH = 160 };
    Terminal terminal = {.width = PIPE_WIDTH};
    const char *columns = getenv("COLUMNS"), *no_colour = getenv("NO_COLOR"), *type = getenv("TERM");
    struct winsize size;
    if (isatty(fileno(stream))) {
        terminal.width = ioctl(fileno(stream), TIOCGWINSZ, &size) == 0 && size.ws_col ? size.ws_col : 80;
        terminal.colours = !(no_colour && *no_colour) && !(type && strcmp(type, "dumb") == 0);
    }
    const long given = columns ? strtol(columns, NULL, 10) : 0;
    if (given > 0 && given < UINT16_MAX)
        terminal.width = (uint32_t)given;
    if (width)
        terminal.width = width;
    return terminal;
}
