#include "compiler/output/terminal.h"

#include "base/clock.h"

#include <inttypes.h>
#include <unistd.h>

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
