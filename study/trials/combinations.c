#include "study/trials/combinations.h"

#include "program/program.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static bool read_number(const char **next, int64_t *value)
{
    char *end;
    if (!isdigit((unsigned char)**next) && **next != '-')
        return false;
    errno = 0;
    const long long read = strtoll(*next, &end, 10);
    if (errno || end == *next)
        return false;
    *value = read;
    *next = end;
    return true;
}

static bool skip(const char **next, const char *text)
{
    const bool there = strncmp(*next, text, strlen(text)) == 0;
    *next += there ? strlen(text) : 0;
    return there;
}

/* Reads a, a..b or a..b..step at `next` and moves `next` after it; b may be a multiple of the ranks. */
static bool read_range(const char **next, SweepRange *range)
{
    range->step = 1;
    if (!read_number(next, &range->first))
        return false;
    range->last = range->first;
    if (skip(next, "..")) {
        if (!read_number(next, &range->last))
            return false;
        range->times_ranks = skip(next, "*ranks");
        if (skip(next, "..") && !read_number(next, &range->step))
            return false;
    }
    return range->step >= 1 &&
           (range->times_ranks ? range->last >= 1 && range->last <= INT32_MAX : range->last >= range->first) &&
           (range->first >= 0 || range->last <= INT64_MAX + range->first);
}

/* How many numbers the range has. If times_ranks is set, it ends at `last` * `ranks`; otherwise `ranks` is not used. */
static uint64_t count_of(const SweepRange *range, int64_t ranks)
{
    const int64_t last = range->times_ranks ? range->last * ranks : range->last;
    return last < range->first ? 0 : (uint64_t)(last - range->first) / (uint64_t)range->step + 1;
}

/* Counts the combinations. If a range depends on the number of ranks (by_ranks), counts only those with `ranks`
   ranks; else `ranks` is not used. False: overflow. */
static bool count_with(const Sweep *sweep, int64_t ranks, uint64_t *count)
{
    *count = 1;
    for (uint32_t i = sweep->by_ranks; i < sweep->range_count; i++)
        if (__builtin_mul_overflow(*count, count_of(&sweep->ranges[i], ranks), count))
            return false;
    return true;
}

static bool count_all(Sweep *sweep)
{
    const SweepRange *ranks = &sweep->ranges[0];
    if (!sweep->by_ranks)
        return count_with(sweep, 0, &sweep->combinations);
    if (ranks->last > INT32_MAX || count_of(ranks, 0) > PROGRAM_RANKS_MAX)
        return false;
    sweep->combinations = 0;
    for (uint64_t i = 0; i < count_of(ranks, 0); i++) {
        uint64_t count;
        if (!count_with(sweep, ranks->first + (int64_t)i * ranks->step, &count) ||
            __builtin_add_overflow(sweep->combinations, count, &sweep->combinations))
            return false;
    }
    return true;
}

static bool is_size(const char *name) { return strcmp(name, "ranks") == 0 || strcmp(name, "microbatches") == 0; }

Status sweep_parse(const char *text, Arena *arena, Sweep *sweep, Error *error)
{
    *sweep = (Sweep){.text = text, .compares = true};
    for (const char *next = text;;) {
        const char *const written = next;
        const size_t shown = strcspn(written, ","), length = strcspn(next, "=,");
        if (sweep->range_count == SWEEP_RANGES_MAX)
            return error_set(error, STATUS_BAD_USAGE, "--sweep takes at most %d ranges", SWEEP_RANGES_MAX);
        SweepRange *range = &sweep->ranges[sweep->range_count];
        range->name = arena_text(arena, next, length);
        next += length + 1;
        if (!length || written[length] != '=' || !read_range(&next, range) || (*next && *next != ','))
            return error_set(error, STATUS_BAD_USAGE,
                             "--sweep: '%.*s': write NAME=NUMBER, NAME=LEAST..MOST or NAME=LEAST..MOST..STEP, with "
                             "LEAST <= MOST and STEP >= 1; MOST may be a multiple of the ranks, such as 4*ranks",
                             (int)shown, written);
        if (is_size(range->name) && range->first < 1)
            return error_set(error, STATUS_BAD_USAGE, "--sweep: %s must be at least 1", range->name);
        for (uint32_t i = 0; i < sweep->range_count; i++)
            if (strcmp(sweep->ranges[i].name, range->name) == 0)
                return error_set(error, STATUS_BAD_USAGE, "--sweep: %s is given twice", range->name);
        if (range->times_ranks && (!sweep->range_count || strcmp(sweep->ranges[0].name, "ranks") != 0))
            return error_set(error, STATUS_BAD_USAGE,
                             "--sweep: '%.*s' depends on the ranks, so the range of ranks must come first", (int)shown,
                             written);
        sweep->by_ranks |= range->times_ranks;
        sweep->compares &= !is_size(range->name) || (range->first == range->last && !range->times_ranks);
        sweep->range_count++;
        if (!*next++)
            break;
    }
    if (!count_all(sweep))
        return error_set(
            error, STATUS_BAD_USAGE,
            "--sweep: too many combinations: there can be at most 2^64-1; with NAME=A..B*ranks, at most %d "
            "numbers of ranks, none above %d",
            PROGRAM_RANKS_MAX, INT32_MAX);
    if (!sweep->combinations)
        return error_set(error, STATUS_BAD_USAGE, "--sweep: %s: a range is empty, so there is nothing to try", text);
    return STATUS_OK;
}

/* Writes the numbers of combination `index`, one for each range. `values` is [range_count]. */
static void values_of(const Sweep *sweep, uint64_t index, int64_t *values)
{
    int64_t ranks = sweep->ranges[0].first;
    uint64_t count;
    if (sweep->by_ranks) {
        for (; count_with(sweep, ranks, &count) && index >= count; ranks += sweep->ranges[0].step)
            index -= count;
        values[0] = ranks;
    }
    for (uint32_t i = sweep->range_count; i-- > sweep->by_ranks;) {
        count = count_of(&sweep->ranges[i], ranks);
        values[i] = sweep->ranges[i].first + (int64_t)(index % count) * sweep->ranges[i].step;
        index /= count;
    }
}

Parameters sweep_parameters(const Sweep *sweep, const Parameters *given, uint64_t index, Arena *arena)
{
    Parameters made = *given;
    made.others = NULL; /* parameters_set gives `made` an array of its own */
    made.count = made.capacity = 0;
    for (uint32_t i = 0; i < given->count; i++)
        parameters_set(&made, arena, given->others[i].name, given->others[i].value);
    int64_t values[SWEEP_RANGES_MAX];
    values_of(sweep, index, values);
    for (uint32_t i = 0; i < sweep->range_count; i++)
        if (strcmp(sweep->ranges[i].name, "ranks") == 0)
            parameters_set_ranks(&made, values[i]);
        else if (strcmp(sweep->ranges[i].name, "microbatches") == 0)
            parameters_set_microbatches(&made, values[i]);
        else
            parameters_set(&made, arena, sweep->ranges[i].name, values[i]);
    return made;
}

const char *sweep_options(const Sweep *sweep, uint64_t index, Arena *arena)
{
    const char *text = "";
    int64_t values[SWEEP_RANGES_MAX];
    values_of(sweep, index, values);
    for (uint32_t i = 0; i < sweep->range_count; i++) {
        const char *name = sweep->ranges[i].name;
        text = arena_format(arena, is_size(name) ? "%s%s--%s %" PRId64 : "%s%s-D %s=%" PRId64, text, i ? " " : "", name,
                            values[i]);
    }
    return text;
}
