#include "study/measured/kineto_groups.h"

#include "base/compare.h"

#include <stdlib.h>

typedef struct Interval {
    int64_t start, end;
} Interval;

/* Adds a kernel to a list of disjoint intervals and returns their new number. Kernels that overlap become one
   interval. Kernels must be added in the order of their starts. */
static size_t merge(Interval *intervals, size_t count, const KinetoKernel *kernel)
{
    if (count && kernel->start <= intervals[count - 1].end) {
        if (kernel->end > intervals[count - 1].end)
            intervals[count - 1].end = kernel->end;
        return count;
    }
    intervals[count] = (Interval){kernel->start, kernel->end};
    return count + 1;
}

static int64_t length_of(const Interval *intervals, size_t count)
{
    int64_t length = 0;
    for (size_t i = 0; i < count; i++)
        length += intervals[i].end - intervals[i].start;
    return length;
}

static int64_t common_length(const Interval *a, size_t a_count, const Interval *b, size_t b_count)
{
    int64_t length = 0;
    for (size_t i = 0, k = 0; i < a_count && k < b_count;) {
        const int64_t start = a[i].start > b[k].start ? a[i].start : b[k].start;
        const int64_t end = a[i].end < b[k].end ? a[i].end : b[k].end;
        length += end > start ? end - start : 0;
        if (a[i].end < b[k].end)
            i++;
        else
            k++;
    }
    return length;
}

typedef struct Placed {
    const KinetoKernel *kernel;
    const Resolved *resolved;
} Placed;

static int by_group(const void *left, const void *right)
{
    const Placed *a = left, *b = right;
    COMPARE(a->kernel->device, b->kernel->device);
    COMPARE(a->resolved->pair, b->resolved->pair);
    COMPARE(a->kernel, b->kernel);
    return 0;
}

static bool same_group(const Placed *a, const Placed *b)
{
    return a->kernel->device == b->kernel->device && a->resolved->pair == b->resolved->pair;
}

/* Makes a group of `count` kernels, which are ordered by their starts: the kernels of one F&B or, in a profile
   without F&Bs, those of one GPU. */
static void add_group(KinetoProfile *profile, const Placed *placed, size_t count, Interval *const *scratch)
{
    ProfileGroup group = {.start = INT64_MAX, .end = INT64_MIN, .device = placed->kernel->device};
    size_t counts[RECIPE_STREAMS] = {0};
    for (size_t i = 0; i < count; i++) {
        const KinetoKernel *kernel = placed[i].kernel;
        const Resolved *resolved = placed[i].resolved;
        kernel_widen(&group.start, &group.end, kernel);
        counts[resolved->stream] = merge(scratch[resolved->stream], counts[resolved->stream], kernel);
        if (resolved->span != NO_SPAN) {
            profile->spans[resolved->span].group = profile->group_count;
        } else {
            profile->foreign++;
            profile->foreign_time += kernel->end - kernel->start;
        }
    }
    for (int s = 0; s < RECIPE_STREAMS; s++)
        group.busy[s] = length_of(scratch[s], counts[s]);
    group.both =
        common_length(scratch[RECIPE_COMPUTE], counts[RECIPE_COMPUTE], scratch[RECIPE_COMM], counts[RECIPE_COMM]);
    group.idle = group.end - group.start - (group.busy[RECIPE_COMPUTE] + group.busy[RECIPE_COMM] - group.both);
    profile->groups[profile->group_count++] = group;
}

void kineto_make_groups(KinetoProfile *profile, const Resolved *resolved, Arena *arena)
{
    const size_t count = profile->trace->kernel_count;
    Placed *placed = arena_array(arena, count, sizeof *placed);
    Interval *scratch[RECIPE_STREAMS];
    for (int s = 0; s < RECIPE_STREAMS; s++)
        scratch[s] = arena_array(arena, count, sizeof **scratch);
    for (size_t i = 0; i < count; i++) {
        placed[i] = (Placed){&profile->trace->kernels[i], &resolved[i]};
        profile->has_pairs |= resolved[i].pair != JOIN_NONE;
    }
    qsort(placed, count, sizeof *placed, by_group);
    size_t groups = 0;
    for (size_t i = 0; i < count; i++)
        groups += i == 0 || !same_group(&placed[i - 1], &placed[i]);
    profile->groups = arena_array(arena, groups, sizeof *profile->groups);
    for (size_t begin = 0, end; begin < count; begin = end) {
        const Placed *first = &placed[begin];
        for (end = begin; end < count && same_group(first, &placed[end]);)
            end++;
        if (first->resolved->pair != JOIN_NONE || !profile->has_pairs)
            add_group(profile, first, end - begin, scratch);
    }
}

/* --- one group --- */

static int compare_lengths(const void *left, const void *right)
{
    const ProfileGroup *a = *(const ProfileGroup *const *)left, *b = *(const ProfileGroup *const *)right;
    const int64_t a_length = a->end - a->start, b_length = b->end - b->start;
    COMPARE(a_length, b_length);
    COMPARE(a, b);
    return 0;
}

uint32_t kineto_typical_group(const KinetoProfile *profile, Arena *arena)
{
    const ProfileGroup **groups = arena_array(arena, profile->group_count, sizeof *groups);
    for (uint32_t i = 0; i < profile->group_count; i++)
        groups[i] = &profile->groups[i];
    qsort(groups, profile->group_count, sizeof *groups, compare_lengths);
    return (uint32_t)(groups[(profile->group_count - 1) / 2] - profile->groups);
}

RecipeTimes kineto_recipe_times(const KinetoProfile *profile, uint32_t number, Arena *arena)
{
    static const double milliseconds = 1e-6; /* in a nanosecond */
    const ProfileGroup *group = &profile->groups[number];
    RecipeTimes times = {.layers = profile->layers,
                         .makespan = (double)(group->end - group->start) * milliseconds,
                         .hidden = (double)group->both * milliseconds};
    for (int s = 0; s < RECIPE_STREAMS; s++) {
        times.spans[s] = arena_array(arena, profile->span_count, sizeof *times.spans[s]);
        times.busy[s] = (double)group->busy[s] * milliseconds;
    }
    for (uint32_t i = 0; i < profile->span_count; i++) {
        const ProfileSpan *span = &profile->spans[i];
        if (span->group != number)
            continue;
        const RecipeStream stream = subject_communicates(span->subject) ? RECIPE_COMM : RECIPE_COMPUTE;
        const double start = (double)(span->start - group->start) * milliseconds;
        const double end = (double)(span->end - group->start) * milliseconds;
        times.spans[stream][times.counts[stream]++] =
            (RecipeSpan){subject_entry(span->subject), span->layer, start, end};
        times.in_turn += end - start;
    }
    return times;
}
