#include "study/measured/trace_align.h"

#include <math.h>

static const double rounding = 1e-3; /* ms: times in traces are rounded to so much */

/* Messages from rank `from` to rank `to`. room: the least time from the end of a sending pass to the start of the pass
   that needs its output, in ms. */
typedef struct Link {
    uint32_t from, to;
    double room;
    const TraceEvent *early; /* the pass with the least room */
} Link;

typedef struct Links {
    Link *links;
    uint32_t count;
    uint32_t *first; /* [ranks]: 1 + the index of the newest link to a rank; 0: there is none */
    uint32_t *next;  /* [count]: 1 + the index of the link to the same rank before this one */
} Links;

static Link *find_link(Links *links, uint32_t from, uint32_t to, Arena *arena)
{
    for (uint32_t i = links->first[to]; i; i = links->next[i - 1])
        if (links->links[i - 1].from == from)
            return &links->links[i - 1];
    links->links = arena_extend(arena, links->links, links->count, sizeof *links->links);
    links->next = arena_extend(arena, links->next, links->count, sizeof *links->next);
    links->links[links->count] = (Link){from, to, INFINITY, NULL};
    links->next[links->count] = links->first[to];
    links->first[to] = ++links->count;
    return &links->links[links->count - 1];
}

/* The room of all links, over all steps. */
static Links measure_links(const Trace *trace, Arena *arena)
{
    Links links = {.first = arena_array(arena, trace->ranks, sizeof *links.first)};
    for (uint32_t s = 0; s < trace->step_count; s++) {
        Arena scratch = {0};
        const TraceIndex index = trace_index(trace, trace->steps[s], &scratch);
        const TraceStep step = trace_step_events(trace, trace->steps[s]);
        for (const TraceEvent *event = step.first; event < step.end; event++) {
            const TraceEvent *needed = event->kind < ACTION_U ? trace_needed(&index, event) : NULL;
            if (!needed || needed->rank == event->rank)
                continue;
            Link *link = find_link(&links, needed->rank, event->rank, arena);
            if (event->start - needed->end < link->room) {
                link->room = event->start - needed->end;
                link->early = event;
            }
        }
        arena_free(&scratch);
    }
    return links;
}

/* The latest times (direction 1) or, negated, the earliest times (direction -1) to which the clocks may be moved if
   rank 0 stays; INFINITY: unbounded. False: there are none, because some passes start too early whatever the clocks. */
static bool bounds(const Links *links, int direction, uint32_t ranks, double *bound)
{
    for (uint32_t r = 0; r < ranks; r++)
        bound[r] = r ? INFINITY : 0;
    for (uint32_t round = 0; round <= ranks; round++) {
        bool changed = false;
        for (uint32_t i = 0; i < links->count; i++) {
            const Link *link = &links->links[i];
            const uint32_t known = direction > 0 ? link->to : link->from, other = link->from + link->to - known;
            if (bound[known] + link->room >= bound[other] - rounding * 1e-6)
                continue;
            bound[other] = bound[known] + link->room;
            changed = true;
        }
        if (!changed)
            return true;
    }
    return false;
}

static void move_ranks(Trace *trace, const double *later, const double *earlier, Arena *arena)
{
    double error = 0, farthest = 0;
    uint32_t moved = 0;
    for (uint32_t r = 0; r < trace->ranks; r++) {
        const double distance = (later[r] - earlier[r]) / 2;
        error = fmax(error, (later[r] + earlier[r]) / 2);
        if (fabs(distance) > fabs(farthest)) {
            farthest = distance;
            moved = r;
        }
    }
    for (size_t i = 0; i < trace->count; i++) {
        const double distance = (later[trace->events[i].rank] - earlier[trace->events[i].rank]) / 2;
        trace->events[i].start += distance;
        trace->events[i].end += distance;
    }
    for (size_t i = 0; i < trace->component_count; i++) {
        const double distance = (later[trace->components[i].rank] - earlier[trace->components[i].rank]) / 2;
        trace->components[i].start += distance;
        trace->components[i].end += distance;
    }
    trace_note(trace, arena,
               "%s: the clocks of its ranks differ; they were aligned by the messages in both directions, rank %u by "
               "%.6g ms; ranks may still be apart by %.3g ms",
               trace->path, moved, farthest, error);
}

void trace_align(Trace *trace, Arena *arena)
{
    const Links links = measure_links(trace, arena);
    double *later = arena_array(arena, trace->ranks, sizeof *later);
    double *earlier = arena_array(arena, trace->ranks, sizeof *earlier);
    const Link *worst = NULL;
    for (uint32_t i = 0; i < links.count; i++)
        if (links.links[i].room < (worst ? worst->room : -rounding))
            worst = &links.links[i];
    if (!worst)
        return;
    bool known = bounds(&links, 1, trace->ranks, later) && bounds(&links, -1, trace->ranks, earlier);
    for (uint32_t r = 0; r < trace->ranks; r++)
        known = known && isfinite(later[r]) && isfinite(earlier[r]);
    if (known) {
        move_ranks(trace, later, earlier, arena);
        return;
    }
    const TraceEvent *early = worst->early;
    trace_note(trace, arena,
               "%s: step %u: %u%s%u on rank %u starts %.6g ms before its input is sent by rank %u, and the messages "
               "allow no alignment of the clocks: times of different ranks cannot be compared. Do all traces begin "
               "with the same step?",
               trace->path, early->step, early->stage, action_names[early->kind], early->microbatch, worst->to,
               -worst->room, worst->from);
}
