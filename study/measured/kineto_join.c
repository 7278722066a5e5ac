#include "study/measured/kineto_join.h"

#include "base/compare.h"

#include <stdlib.h>

static int compare_threads(const JoinRange *a, const JoinRange *b)
{
    COMPARE(a->process, b->process);
    COMPARE(a->thread, b->thread);
    return 0;
}

static int compare_ranges(const void *left, const void *right)
{
    const JoinRange *a = left, *b = right;
    const int threads = compare_threads(a, b);
    if (threads)
        return threads;
    COMPARE(a->start, b->start);
    /* of ranges with the same start the longer one comes first, because it contains the other */
    return (a->end < b->end) - (a->end > b->end);
}

/* Sets `outer` of the ranges [begin, end), which are those of one thread. They are nested, and sorted by their
   starts. */
static void find_outer(JoinRanges *ranges, uint32_t begin, uint32_t end)
{
    uint32_t open = JOIN_NONE;
    for (uint32_t i = begin; i < end; i++) {
        while (open != JOIN_NONE && ranges->ranges[open].end <= ranges->ranges[i].start)
            open = ranges->ranges[open].outer;
        ranges->ranges[i].outer = open;
        open = i;
    }
}

/* The rule of the map that the name of an annotation matches; NULL: none. known: the name has been looked up. */
typedef struct NameMeaning {
    bool known;
    const MapRule *rule;
    MapNumbers numbers;
} NameMeaning;

static const NameMeaning *meaning_of(const KinetoTrace *trace, const KinetoMap *map, uint32_t name,
                                     NameMeaning *meanings)
{
    if (!meanings[name].known)
        meanings[name].rule = kineto_map_find(map, MAP_ANNOTATION, trace->names[name], &meanings[name].numbers);
    meanings[name].known = true;
    return &meanings[name];
}

JoinRanges join_ranges(const KinetoTrace *trace, const KinetoMap *map, unsigned first, unsigned last, Arena *arena)
{
    JoinRanges ranges = {.ranges = arena_array(arena, trace->annotation_count, sizeof *ranges.ranges)};
    NameMeaning *meanings = arena_array(arena, trace->name_count, sizeof *meanings);
    for (size_t i = 0; i < trace->annotation_count; i++) {
        const KinetoAnnotation *annotation = &trace->annotations[i];
        const NameMeaning *meaning = meaning_of(trace, map, annotation->name, meanings);
        if (meaning->rule && meaning->rule->subject >= first && meaning->rule->subject <= last)
            ranges.ranges[ranges.count++] = (JoinRange){.start = annotation->start,
                                                        .end = annotation->end,
                                                        .process = annotation->process,
                                                        .thread = annotation->thread,
                                                        .subject = meaning->rule->subject,
                                                        .numbers = meaning->numbers};
    }
    if (ranges.count)
        qsort(ranges.ranges, ranges.count, sizeof *ranges.ranges, compare_ranges);
    ranges.threads = arena_array(arena, ranges.count + 1, sizeof *ranges.threads);
    for (uint32_t i = 0; i < ranges.count; i++)
        if (i == 0 || compare_threads(&ranges.ranges[i - 1], &ranges.ranges[i]) != 0)
            ranges.threads[ranges.thread_count++] = i;
    ranges.threads[ranges.thread_count] = ranges.count;
    for (uint32_t t = 0; t < ranges.thread_count; t++)
        find_outer(&ranges, ranges.threads[t], ranges.threads[t + 1]);
    return ranges;
}

/* The index of the innermost range of a thread that contains the time; JOIN_NONE: none does. `thread`: index in
   JoinRanges.threads. */
static uint32_t find_on_thread(const JoinRanges *ranges, uint32_t thread, int64_t time)
{
    uint32_t low = ranges->threads[thread], high = ranges->threads[thread + 1];
    const uint32_t begin = low;
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (ranges->ranges[middle].start <= time)
            low = middle + 1;
        else
            high = middle;
    }
    uint32_t found = low > begin ? low - 1 : JOIN_NONE;
    while (found != JOIN_NONE && ranges->ranges[found].end < time)
        found = ranges->ranges[found].outer;
    return found;
}

uint32_t join_find(const JoinRanges *ranges, const KinetoLaunch *launch)
{
    uint32_t found = JOIN_NONE;
    for (uint32_t t = 0; t < ranges->thread_count; t++) {
        const JoinRange *first = &ranges->ranges[ranges->threads[t]];
        const uint32_t here = first->process == launch->process ? find_on_thread(ranges, t, launch->time) : JOIN_NONE;
        if (here != JOIN_NONE && first->thread == launch->thread)
            return here;
        if (here != JOIN_NONE && (found == JOIN_NONE || ranges->ranges[here].start > ranges->ranges[found].start))
            found = here;
    }
    return found;
}
