#include "study/measured/kineto_profile.h"

#include "study/measured/kineto_groups.h"
#include "study/measured/kineto_join.h"
#include "base/compare.h"
#include "base/counted.h"

#include <stdlib.h>
#include <string.h>

enum { NO_GROUP = UINT32_MAX, GRIDS_MAX = 16 };

/* What the map says about kernels of one name. known: the name has been looked up; comm: the kernels communicate;
   data: the kernels move data. */
typedef struct NameUse {
    bool known, comm, data;
    uint8_t subject; /* the component to which all kernels of this name belong; SUBJECT_NONE: the map names none */
} NameUse;

/* The state of one stream (compute or communication) of a device while its kernels, in the order of their starts, are
   assigned to components. */
typedef struct Lane {
    bool annotated;   /* at least one kernel of this stream was launched in the annotation of a component */
    uint32_t next;    /* index in the cycle of the component that comes next */
    uint32_t current; /* index of the span that further kernels join; NO_SPAN: none */
} Lane;

typedef struct Profiler {
    KinetoProfile *profile;
    const KinetoMap *map;
    Arena *arena;
    JoinRanges components, pairs;
    NameUse *names;
    Resolved *resolved; /* [kernel_count] */
    const MapRule *cycles[RECIPE_STREAMS][RECIPE_ENTRIES];
    uint32_t cycle_counts[RECIPE_STREAMS];
    bool lanes_given; /* the map says which kernels communicate: comm.stream or comm.kernel */
} Profiler;

/* --- names --- */

static bool has_rule(const KinetoMap *map, MapUse use, unsigned subject, const char *text)
{
    for (size_t i = 0; i < map->count; i++)
        if (map->rules[i].use == use && map->rules[i].subject == subject &&
            kineto_map_matches(map->rules[i].pattern, text, NULL))
            return true;
    return false;
}

static const NameUse *use_of(Profiler *profiler, uint32_t name)
{
    const char *text = profiler->profile->trace->names[name];
    NameUse *use = &profiler->names[name];
    if (use->known)
        return use;
    *use = (NameUse){.known = true, .subject = SUBJECT_NONE};
    use->comm = has_rule(profiler->map, MAP_KERNEL, SUBJECT_COMM, text);
    use->data = has_rule(profiler->map, MAP_DATA, SUBJECT_COMM, text);
    for (size_t i = 0; i < profiler->map->count && use->subject == SUBJECT_NONE; i++) {
        const MapRule *rule = &profiler->map->rules[i];
        if (rule->use == MAP_KERNEL && rule->subject < SUBJECT_PASS && kineto_map_matches(rule->pattern, text, NULL))
            use->subject = rule->subject;
    }
    return use;
}

/* --- spans --- */

static uint32_t add_span(Profiler *profiler, unsigned subject)
{
    KinetoProfile *profile = profiler->profile;
    profile->spans = arena_extend(profiler->arena, profile->spans, profile->span_count, sizeof *profile->spans);
    profile->spans[profile->span_count] =
        (ProfileSpan){.start = INT64_MAX, .end = INT64_MIN, .group = NO_GROUP, .subject = (uint8_t)subject};
    return profile->span_count++;
}

static void add_kernel(Profiler *profiler, uint32_t number, const KinetoKernel *kernel, Resolved *resolved)
{
    ProfileSpan *span = &profiler->profile->spans[number];
    resolved->span = number;
    kernel_widen(&span->start, &span->end, kernel);
    if (!subject_communicates(span->subject) || !use_of(profiler, kernel->name)->data)
        return;
    if (span->data_end == span->data_start) {
        span->data_start = kernel->start;
        span->data_end = kernel->end;
    }
    kernel_widen(&span->data_start, &span->data_end, kernel);
}

/* --- the component of each kernel of a device. Its kernels are [begin, end), in the order of their starts --- */

static RecipeStream stream_of(Profiler *profiler, const KinetoKernel *kernel, unsigned subject)
{
    if (!profiler->lanes_given)
        return subject != SUBJECT_NONE && subject_communicates(subject) ? RECIPE_COMM : RECIPE_COMPUTE;
    char stream[16];
    snprintf(stream, sizeof stream, "%u", kernel->stream);
    const bool comm = use_of(profiler, kernel->name)->comm || has_rule(profiler->map, MAP_STREAM, SUBJECT_COMM, stream);
    return comm ? RECIPE_COMM : RECIPE_COMPUTE;
}

static void by_annotation(Profiler *profiler, size_t begin, size_t end, Lane *lanes)
{
    KinetoProfile *profile = profiler->profile;
    /* [range]: index of its span + 1; 0: it has none yet */
    uint32_t *spans = arena_array(profiler->arena, profiler->components.count, sizeof *spans);
    for (size_t i = begin; i < end; i++) {
        const KinetoKernel *kernel = &profile->trace->kernels[i];
        const KinetoLaunch *launch = kineto_launch(profile->trace, kernel);
        Resolved *resolved = &profiler->resolved[i];
        const uint32_t range = launch ? join_find(&profiler->components, launch) : JOIN_NONE;
        const unsigned subject = range == JOIN_NONE ? SUBJECT_NONE : profiler->components.ranges[range].subject;
        *resolved = (Resolved){NO_SPAN, launch ? join_find(&profiler->pairs, launch) : JOIN_NONE,
                               (uint8_t)stream_of(profiler, kernel, subject)};
        if (range == JOIN_NONE)
            continue;
        if (!spans[range])
            spans[range] = add_span(profiler, subject) + 1;
        add_kernel(profiler, spans[range] - 1, kernel, resolved);
        lanes[resolved->stream].annotated = true;
        profile->found |= FOUND_BY_ANNOTATION;
    }
}

/* Assigns a kernel to a component by the cycle of first kernels. A kernel that matches the first kernel of the cycle's
   next component begins that component; any other kernel belongs to the current one, or to none if none has begun. */
static void by_cycle(Profiler *profiler, const KinetoKernel *kernel, Resolved *resolved, Lane *lane)
{
    const MapRule *const *cycle = profiler->cycles[resolved->stream];
    const char *name = profiler->profile->trace->names[kernel->name];
    if (kineto_map_matches(cycle[lane->next]->pattern, name, NULL)) {
        lane->current = add_span(profiler, cycle[lane->next]->subject);
        lane->next = (lane->next + 1) % profiler->cycle_counts[resolved->stream];
        profiler->profile->found |= FOUND_BY_CYCLE;
    }
    if (lane->current != NO_SPAN)
        add_kernel(profiler, lane->current, kernel, resolved);
}

/* Assigns a kernel to a component by its own name. Successive kernels of one component form one span; a kernel of
   another component ends it. A kernel whose name the map does not have belongs to no component and ends no span. */
static void by_name(Profiler *profiler, const KinetoKernel *kernel, Resolved *resolved, Lane *lane)
{
    const unsigned subject = use_of(profiler, kernel->name)->subject;
    if (subject == SUBJECT_NONE)
        return;
    if (!profiler->lanes_given)
        resolved->stream = subject_communicates(subject) ? RECIPE_COMM : RECIPE_COMPUTE;
    if (lane->current == NO_SPAN || profiler->profile->spans[lane->current].subject != subject)
        lane->current = add_span(profiler, subject);
    add_kernel(profiler, lane->current, kernel, resolved);
    profiler->profile->found |= FOUND_BY_NAME;
}

static void resolve_device(Profiler *profiler, size_t begin, size_t end)
{
    Lane lanes[RECIPE_STREAMS] = {{.current = NO_SPAN}, {.current = NO_SPAN}};
    by_annotation(profiler, begin, end, lanes);
    for (size_t i = begin; i < end; i++) {
        Resolved *resolved = &profiler->resolved[i];
        Lane *lane = &lanes[resolved->stream];
        if (resolved->span != NO_SPAN)
            lane->current = NO_SPAN;
        else if (!lane->annotated && profiler->cycle_counts[resolved->stream])
            by_cycle(profiler, &profiler->profile->trace->kernels[i], resolved, lane);
        else
            by_name(profiler, &profiler->profile->trace->kernels[i], resolved, lane);
    }
}

/* --- the order of the spans --- */

static int compare_spans(const void *left, const void *right)
{
    const ProfileSpan *a = left, *b = right;
    COMPARE(a->group, b->group);
    COMPARE(a->start, b->start);
    COMPARE(a->subject, b->subject);
    return 0;
}

/* Removes spans that are in no group: in a profile with F&Bs, those outside of F&Bs. Sorts the others by group and
   start, and numbers the layers in each group. */
static void order_spans(KinetoProfile *profile)
{
    uint32_t kept = 0, counts[RECIPE_ENTRIES] = {0};
    for (uint32_t i = 0; i < profile->span_count; i++)
        if (profile->spans[i].group != NO_GROUP)
            profile->spans[kept++] = profile->spans[i];
    profile->span_count = kept;
    if (kept)
        qsort(profile->spans, kept, sizeof *profile->spans, compare_spans);
    for (uint32_t i = 0; i < kept; i++) {
        ProfileSpan *span = &profile->spans[i];
        if (i && span->group != span[-1].group)
            memset(counts, 0, sizeof counts);
        span->layer = counts[span->subject]++;
        profile->layers = span->layer >= profile->layers ? span->layer + 1 : profile->layers;
    }
}

/* Sets profile->blocks: the grid size in which communicating kernels spend most time. Each block of such a grid takes
   a multiprocessor. */
static void find_blocks(Profiler *profiler)
{
    struct {
        uint32_t blocks;
        int64_t time;
    } grids[GRIDS_MAX] = {{0, 0}};
    int64_t most = 0;
    const KinetoTrace *trace = profiler->profile->trace;
    for (size_t i = 0; i < trace->kernel_count; i++) {
        const KinetoKernel *kernel = &trace->kernels[i];
        if (profiler->resolved[i].stream != RECIPE_COMM || profiler->resolved[i].span == NO_SPAN || !kernel->blocks)
            continue;
        int grid = 0;
        while (grid < GRIDS_MAX - 1 && grids[grid].blocks && grids[grid].blocks != kernel->blocks)
            grid++;
        if (grids[grid].blocks && grids[grid].blocks != kernel->blocks)
            continue;
        grids[grid].blocks = kernel->blocks;
        grids[grid].time += kernel->end - kernel->start;
        if (grids[grid].time > most) {
            most = grids[grid].time;
            profiler->profile->blocks = kernel->blocks;
        }
    }
}

/* --- the whole profile --- */

static int by_device_and_start(const void *left, const void *right)
{
    const KinetoKernel *a = left, *b = right;
    COMPARE(a->device, b->device);
    COMPARE(a->start, b->start);
    COMPARE(a->end, b->end);
    return 0;
}

static Status read_cycles(Profiler *profiler, Error *error)
{
    const KinetoMap *map = profiler->map;
    for (size_t i = 0; i < map->count; i++) {
        const MapRule *rule = &map->rules[i];
        profiler->lanes_given |= rule->subject == SUBJECT_COMM && (rule->use == MAP_STREAM || rule->use == MAP_KERNEL);
        if (rule->use != MAP_FIRST)
            continue;
        const RecipeStream stream = subject_communicates(rule->subject) ? RECIPE_COMM : RECIPE_COMPUTE;
        if (profiler->cycle_counts[stream] == RECIPE_ENTRIES)
            return error_set(error, STATUS_BAD_INPUT, "%s: a stream can have at most %d lines NAME.first", map->path,
                             (int)RECIPE_ENTRIES);
        profiler->cycles[stream][profiler->cycle_counts[stream]++] = rule;
    }
    if (profiler->cycle_counts[RECIPE_COMM] && !profiler->lanes_given)
        return error_set(error, STATUS_BAD_INPUT,
                         "%s: with a line NAME.first for dispatch or combine, the map must say which kernels "
                         "communicate: add a line comm.stream or comm.kernel",
                         map->path);
    return STATUS_OK;
}

/* Sets the error that no kernel belongs to a component. If the trace has annotations other than those of steps, the
   error names some of them, because the map may have meant one. */
static Status fail_unknown(const KinetoProfile *profile, Error *error)
{
    const KinetoTrace *trace = profile->trace;
    enum { SHOWN = 6 };
    char names[400] = "";
    uint32_t shown = 0;
    if (!trace->kernel_count)
        return error_set(error, STATUS_BAD_INPUT,
                         "%s: no kernels in it: times of components need a profile of a GPU (ProfilerActivity.CUDA)",
                         trace->path);
    for (size_t i = 0; i < trace->annotation_count && shown < SHOWN; i++) {
        const char *name = trace->names[trace->annotations[i].name];
        if (strncmp(name, "ProfilerStep", 12) == 0 || strstr(names, name))
            continue;
        const size_t used = strlen(names);
        snprintf(names + used, sizeof names - used, "%s%.50s", shown++ ? ", " : "", name);
    }
    return error_set(error, STATUS_BAD_INPUT, "%s: no kernel in %s belongs to a component of %s; %s%s%s%s", trace->path,
                     profile->has_pairs ? "its F&Bs" : "it", profile->map->path,
                     shown                     ? "it has annotations such as "
                     : trace->annotation_count ? "its only annotations are those of steps (ProfilerStep)"
                                               : "it has no annotations",
                     names,
                     shown && trace->orphans ? "; annotations name no kernel whose launch is not in the trace: " : "",
                     shown && trace->orphans ? counted(trace->orphans, "kernel").text : "");
}

Status kineto_profile(const KinetoTrace *trace, const KinetoMap *map, Arena *arena, KinetoProfile *profile,
                      Error *error)
{
    *profile = (KinetoProfile){
        .trace = trace,
        .map = map,
    };
    Profiler profiler = {.profile = profile, .map = map, .arena = arena};
    TRY(read_cycles(&profiler, error));
    if (trace->kernel_count)
        qsort(trace->kernels, trace->kernel_count, sizeof *trace->kernels, by_device_and_start);
    profiler.components = join_ranges(trace, map, 0, SUBJECT_PASS - 1, arena);
    profiler.pairs = join_ranges(trace, map, SUBJECT_FB, SUBJECT_FB, arena);
    profiler.names = arena_array(arena, trace->name_count, sizeof *profiler.names);
    profiler.resolved = arena_array(arena, trace->kernel_count, sizeof *profiler.resolved);
    for (size_t begin = 0, end; begin < trace->kernel_count; begin = end) {
        for (end = begin; end < trace->kernel_count && trace->kernels[end].device == trace->kernels[begin].device;)
            end++;
        resolve_device(&profiler, begin, end);
    }
    if (!profile->span_count)
        return fail_unknown(profile, error);
    kineto_make_groups(profile, profiler.resolved, arena);
    order_spans(profile);
    find_blocks(&profiler);
    return profile->span_count ? STATUS_OK : fail_unknown(profile, error);
}
