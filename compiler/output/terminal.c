#include "compiler/output/terminal.h"

#include "runtime/base/clock.h"

#include <inttypes.h>
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

ProgressBar progress_bar_of(FILE *stream)
{
    return (ProgressBar){.stream = stream && isatty(fileno(stream)) ? stream : NULL};
}

void progress_bar_show(ProgressBar *bar, uint64_t done, uint64_t all, const char *words)
{
    enum { WIDTH = 40, EVERY = 100000000 };
    const int64_t now = clock_nanoseconds();
    if (!bar->stream || now - bar->shown_at < EVERY)
        return;
    bar->shown_at = now;
    const int filled = (int)((double)done / (double)all * WIDTH);
    fprintf(bar->stream, "\r[%.*s%*s] %" PRIu64 " of %" PRIu64 "%s\033[K", filled,
            "########################################", WIDTH - filled, "", done, all, words);
    fflush(bar->stream);
}

void progress_bar_clear(ProgressBar *bar)
{
    if (!bar->stream)
        return;
    fputs("\r\033[K", bar->stream);
    fflush(bar->stream);
}
