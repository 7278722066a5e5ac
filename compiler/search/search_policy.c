#include "compiler/search/search_policy.h"

#include "compiler/search/random.h"

#include <string.h>

static const uint32_t UNLIMITED = UINT32_MAX;
static const int64_t WHATEVER_IT_TAKES = NEVER / 4; /* no limit: larger than any sum of times */

/* A random number 0..limit-1. An expression or argument list may call this function only once (random.h). */
static uint32_t below(PolicyMaker *maker, uint32_t limit) { return random_of(&maker->random, limit); }

static int64_t scaled(int64_t time, int64_t thousandths)
{
    return time / 1000 * thousandths + time % 1000 * thousandths / 1000;
}

SearchPolicy policy_new(const SearchProblem *problem, Arena *arena)
{
    return (SearchPolicy){.forward = arena_array(arena, problem->node_count, sizeof(int64_t)),
                          .input = arena_array(arena, problem->node_count, sizeof(int64_t)),
                          .held = arena_array(arena, problem->node_count, sizeof(uint32_t)),
                          .ahead = arena_array(arena, problem->rank_count, sizeof(int64_t)),
                          .allowance = arena_array(arena, problem->rank_count, sizeof(int64_t)),
                          .waiting = arena_array(arena, problem->rank_count, sizeof(uint32_t))};
}

void policy_copy(const SearchProblem *problem, SearchPolicy *to, const SearchPolicy *from)
{
    memcpy(to->forward, from->forward, problem->node_count * sizeof *to->forward);
    memcpy(to->input, from->input, problem->node_count * sizeof *to->input);
    memcpy(to->held, from->held, problem->node_count * sizeof *to->held);
    memcpy(to->allowance, from->allowance, problem->rank_count * sizeof *to->allowance);
    memcpy(to->ahead, from->ahead, problem->rank_count * sizeof *to->ahead);
    memcpy(to->waiting, from->waiting, problem->rank_count * sizeof *to->waiting);
    to->patient_for_better = from->patient_for_better;
    to->patient_before_weight = from->patient_before_weight;
    to->bold = from->bold;
    to->sight = from->sight;
}

/* Factors, in thousandths, for priorities that follow a microbatch through the stages. Take the start times of the
   passes of a microbatch that runs alone. The priority of an F is its start time * down. The priority of an I is (start
   of the I on the last stage) * back + (time from there to the start of this I) * back * up. Factors above 1000 leave
   room for other microbatches, so that more of them are in flight at once. */
typedef struct Course {
    int64_t down, back, up;
} Course;

static void follow(const PolicyMaker *maker, const Course *course, SearchSight sight, bool for_better,
                   bool before_weight, SearchPolicy *policy)
{
    const SearchProblem *problem = maker->problem;
    for (uint32_t n = 0; n < problem->node_count; n++) {
        const SearchNode *node = &problem->nodes[n];
        const bool slots = sight == SIGHT_SLOTS;
        const int64_t end = slots ? maker->stages * problem->slot : maker->end_path[node->pipe];
        const int64_t forward = slots ? node->stage * problem->slot : node->forward_path;
        const int64_t backward = slots ? (2 * maker->stages - 1 - node->stage) * problem->slot : node->backward_path;
        policy->forward[n] = scaled(forward, course->down);
        policy->input[n] = scaled(end, course->back) + scaled(scaled(backward - end, course->back), course->up);
        policy->held[n] = UNLIMITED;
    }
    for (uint32_t r = 0; r < problem->rank_count; r++) {
        policy->allowance[r] = WHATEVER_IT_TAKES;
        policy->waiting[r] = UNLIMITED;
        policy->ahead[r] = WHATEVER_IT_TAKES;
    }
    policy->patient_for_better = for_better;
    policy->patient_before_weight = before_weight;
    policy->sight = sight;
    policy->bold = false;
}

/* Sets the allowance of ranks first..end-1, the idle time that they may have: a random share of their idle time in the
   best order, whose cost is `cost`. */
static void allow(PolicyMaker *maker, int64_t cost, uint32_t first, uint32_t end, SearchPolicy *policy)
{
    const int64_t share = below(maker, 1001);
    for (uint32_t r = first; r < end; r++)
        policy->allowance[r] = scaled(scaled(cost - maker->problem->ranks[r].work, share), share);
}

static uint32_t chunk_of(const SearchProblem *problem, uint32_t node)
{
    return node - problem->ranks[problem->nodes[node].rank].first_node;
}

/* Adds `by` to the priorities of chunk `chunk` of ranks first..end-1. chunk == chunks: of all chunks of these ranks. */
static void shift(const SearchProblem *problem, int64_t *priorities, uint32_t first, uint32_t end, uint32_t chunk,
                  uint32_t chunks, int64_t by)
{
    for (uint32_t r = first; r < end; r++)
        for (uint32_t c = 0; c < problem->ranks[r].node_count; c++)
            if (chunk == chunks || c == chunk)
                priorities[problem->ranks[r].first_node + c] += by;
}

/* Stretches the priorities of a chunk, on all ranks: by `down` thousandths of the time that a lone microbatch takes on
   its way to the last stage, and by `up` thousandths of its time on the way back. chunk == maker->chunks: those of all
   chunks. */
static void stretch(const PolicyMaker *maker, uint32_t chunk, int64_t down, int64_t up, SearchPolicy *policy)
{
    for (uint32_t n = 0; n < maker->problem->node_count; n++) {
        const SearchNode *node = &maker->problem->nodes[n];
        const int64_t end = maker->end_path[node->pipe];
        if (chunk < maker->chunks && chunk_of(maker->problem, n) != chunk)
            continue;
        policy->forward[n] += scaled(node->forward_path, down);
        policy->input[n] += scaled(end, down) + scaled(node->backward_path - end, up);
    }
}

/* A repeating pattern as in the building blocks of Qi et al., Pipeline Parallelism with Controllable Memory (NeurIPS
   2024). The F of the next stage starts after `down` thousandths of the time of a stage's F and its message; the I of
   the stage before starts after `up` thousandths of the time of a stage's I and its message. More than 1000 leaves room
   for other passes. */
typedef struct Pattern {
    /* [0]: from a stage that is an even chunk of its rank to the next stage (down) or to the stage before (up), [1]:
       from an odd chunk */
    int64_t down[2], up[2];
    int64_t turn; /* thousandths of a period between the end of the last stage's F and the start of its I */
    /* SearchPolicy.ahead, in thousandths of a period */
    int64_t ahead;
} Pattern;

static void repeat(const PolicyMaker *maker, const Pattern *pattern, SearchSight sight, bool for_better,
                   bool before_weight, SearchPolicy *policy)
{
    static const Course straight = {1000, 1000, 1000};
    const SearchProblem *problem = maker->problem;
    follow(maker, &straight, sight, for_better, before_weight, policy);
    policy->bold = true;
    for (uint32_t p = 0; p < problem->pipe_count; p++) {
        int64_t time = 0;
        uint32_t last = NO_NODE;
        for (uint32_t n = maker->entry[p]; n != NO_NODE; last = n, n = problem->nodes[n].after) {
            const int64_t step = problem->nodes[n].time[ACTION_F] + problem->nodes[n].from_after;
            policy->forward[n] = time;
            time += scaled(sight == SIGHT_SLOTS ? problem->slot : step, pattern->down[chunk_of(problem, n) % 2]);
        }
        time += scaled(problem->period, pattern->turn);
        for (uint32_t n = last; n != NO_NODE; n = problem->nodes[n].before) {
            const int64_t step = problem->nodes[n].time[ACTION_I] + problem->nodes[n].from_before;
            policy->input[n] = time;
            time += scaled(sight == SIGHT_SLOTS ? problem->slot : step, pattern->up[chunk_of(problem, n) % 2]);
        }
    }
    for (uint32_t r = 0; r < problem->rank_count; r++)
        policy->ahead[r] = scaled(problem->period, pattern->ahead);
}

bool policy_usual(const PolicyMaker *maker, uint32_t number, SearchPolicy *policy)
{
    /* The first nine are for one chunk per rank and range from "I always before F" to "F always before I". The last
       three are for a V with the memory of 1F1B. */
    static const Course courses[] = {{1000, 0, 1000},      {1000, 500, 1000},  {1000, 750, 1000},  {1000, 1000, 1000},
                                     {1000, 1250, 1000},   {1000, 1500, 1000}, {1000, 2000, 1000}, {1000, 3000, 1000},
                                     {1000, 100000, 1000}, {2300, 2300, 1000}, {3000, 3400, 1000}, {2500, 3700, 1000}};
    /* V-Min, V-Half, and V-Half of an inverted V */
    static const Pattern patterns[] = {
        {{1000, 1000}, {1000, 1000}, 0, 0}, {{2000, 1000}, {1000, 2000}, 0, 0}, {{1000, 2000}, {2000, 1000}, 0, 0}};
    enum {
        FLAGS = 4,
        COURSES = sizeof courses / sizeof *courses,
        WAYS = 6,
        PATTERNS = sizeof patterns / sizeof *patterns,
        TURNS = 4,
        AHEAD = 3
    };
    /* With one chunk per rank only the first two are tried. The third differs from the first in `bold` alone, which has
       no effect there, because no memory is kept free. SIGHT_SLOTS is for published patterns of several chunks per
       rank. */
    static const struct {
        SearchSight sight;
        bool bold, weight_at_once;
    } ways[WAYS] = {{SIGHT_ALL, false, false},   {SIGHT_ALL, true, true},   {SIGHT_ALL, true, false},
                    {SIGHT_SLOTS, false, false}, {SIGHT_SLOTS, true, true}, {SIGHT_SLOTS, true, false}};
    const uint32_t way_count = maker->chunks > 1 ? WAYS : 2, with_courses = way_count * COURSES * FLAGS;
    const uint32_t flags = number % FLAGS;
    if (number < with_courses) {
        const uint32_t way = number / FLAGS / COURSES;
        follow(maker, &courses[number / FLAGS % COURSES], ways[way].sight, flags & 1, flags & 2, policy);
        policy->bold = ways[way].bold;
        for (uint32_t r = 0; ways[way].weight_at_once && r < maker->problem->rank_count; r++)
            policy->waiting[r] = 0;
        return true;
    }
    number = (number - with_courses) / FLAGS;
    if (maker->chunks == 1 || number >= TURNS * AHEAD * 2 * PATTERNS)
        return false;
    Pattern pattern = patterns[number / TURNS / AHEAD / 2];
    pattern.turn = number % TURNS * 167;
    pattern.ahead = number / TURNS % AHEAD * 500;
    repeat(maker, &pattern, number / TURNS / AHEAD % 2 ? SIGHT_SLOTS : SIGHT_ALL, flags & 1, flags & 2, policy);
    return true;
}

void policy_forward_first(const PolicyMaker *maker, SearchPolicy *policy)
{
    static const Course course = {1000, 3000, 1000};
    follow(maker, &course, SIGHT_SLOTS, false, false, policy);
    policy->bold = true;
    for (uint32_t r = 0; r < maker->problem->rank_count; r++)
        policy->waiting[r] = 0;
}

static SearchSight random_sight(PolicyMaker *maker)
{
    return below(maker, 3) ? SIGHT_ALL : maker->chunks > 1 ? (SearchSight)below(maker, SIGHTS) : SIGHT_PASSES;
}

static void random_pattern(PolicyMaker *maker, int64_t cost, SearchPolicy *policy)
{
    static const int64_t slopes[] = {1000, 1000, 1000, 2000, 2000, 1500, 3000};
    enum { SLOPES = sizeof slopes / sizeof *slopes };
    const SearchProblem *problem = maker->problem;
    Pattern pattern;
    for (int i = 0; i < 2; i++) {
        pattern.down[i] = slopes[below(maker, SLOPES)];
        pattern.up[i] = slopes[below(maker, SLOPES)];
    }
    pattern.turn = below(maker, 4) * 167;
    pattern.ahead = below(maker, 2) ? 0 : below(maker, 2001);
    const uint32_t flags = below(maker, 4);
    repeat(maker, &pattern, random_sight(maker), flags & 1, flags & 2, policy);
    policy->bold = below(maker, 4);
    allow(maker, cost, 0, problem->rank_count, policy);
    if (below(maker, 2))
        return;
    const uint32_t waiting = below(maker, below(maker, 2) ? 2 : maker->most_held);
    for (uint32_t r = 0; r < problem->rank_count; r++)
        policy->waiting[r] = waiting;
}

static void random_course(PolicyMaker *maker, int64_t cost, SearchPolicy *policy)
{
    const SearchProblem *problem = maker->problem;
    Course course = {.up = 1000};
    course.down = below(maker, 4001);
    course.back = below(maker, 4001);
    if (!below(maker, 3))
        course.up = (int64_t)below(maker, 2001) - 1000;
    const uint32_t flags = below(maker, 4);
    follow(maker, &course, random_sight(maker), flags & 1, flags & 2, policy);
    allow(maker, cost, 0, problem->rank_count, policy);
    if (below(maker, 2)) {
        policy->bold = below(maker, 2);
        const int64_t ahead = scaled(problem->period, below(maker, 3001));
        for (uint32_t r = 0; r < problem->rank_count; r++)
            policy->ahead[r] = ahead;
    }
    for (uint32_t c = 0; c < maker->chunks && maker->chunks > 1; c++)
        if (below(maker, 2))
            shift(problem, policy->forward, 0, problem->rank_count, c, maker->chunks,
                  scaled(problem->period, (int64_t)below(maker, 2001) - 1000));
}

void policy_random(PolicyMaker *maker, int64_t cost, SearchPolicy *policy)
{
    if (maker->chunks > 1 && !below(maker, 3))
        random_pattern(maker, cost, policy);
    else
        random_course(maker, cost, policy);
}

/* Makes one random change to a policy, on some ranks (often only one) or all, and on one chunk or all chunks. Now and
   then also flips flags of the policy, which are the same for all ranks. */
static void change(PolicyMaker *maker, int64_t cost, SearchPolicy *policy)
{
    const SearchProblem *problem = maker->problem;
    const bool everywhere = !below(maker, 4);
    const uint32_t first = everywhere ? 0 : below(maker, problem->rank_count), rest = problem->rank_count - first;
    const uint32_t end = everywhere ? rest : first + 1 + below(maker, below(maker, 2) ? 1 : rest);
    const uint32_t chunk = below(maker, maker->chunks + 1);
    const bool is_free = below(maker, 2);
    int64_t by = scaled(problem->period, (int64_t)below(maker, 2001) - 1000);
    if (below(maker, 2))
        by /= 10;
    switch (below(maker, maker->chunks > 1 ? 8 : 7)) {
    case 0: shift(problem, policy->input, first, end, chunk, maker->chunks, 4 * by); break;
    case 1: shift(problem, policy->input, first, end, chunk, maker->chunks, by); break;
    case 2: shift(problem, policy->forward, first, end, chunk, maker->chunks, by); break;
    case 3: allow(maker, cost, first, end, policy); break;
    case 4: {
        const uint32_t waiting = is_free ? UNLIMITED : below(maker, maker->most_held);
        for (uint32_t r = first; r < end; r++)
            policy->waiting[r] = waiting;
        break;
    }
    case 5: {
        const uint32_t held = is_free ? UNLIMITED : 1 + below(maker, maker->most_held);
        const SearchRank *last = &problem->ranks[end - 1];
        for (uint32_t n = problem->ranks[first].first_node; n < last->first_node + last->node_count; n++)
            if (chunk == maker->chunks || chunk_of(problem, n) == chunk)
                policy->held[n] = held;
        break;
    }
    case 6: {
        const int64_t ahead = is_free ? WHATEVER_IT_TAKES : scaled(problem->period, below(maker, 3001));
        for (uint32_t r = first; r < end; r++)
            policy->ahead[r] = ahead;
        break;
    }
    default: {
        const int64_t down = (int64_t)below(maker, 401) - 200;
        stretch(maker, chunk, down, (int64_t)below(maker, 401) - 200, policy);
        break;
    }
    }
    policy->patient_for_better ^= !below(maker, 20);
    policy->bold ^= !below(maker, 20);
    policy->patient_before_weight ^= !below(maker, 20);
}

void policy_change(PolicyMaker *maker, int64_t cost, SearchPolicy *policy)
{
    for (uint32_t changes = 1 + below(maker, 3); changes; changes--)
        change(maker, cost, policy);
}

PolicyMaker policy_maker_new(const SearchProblem *problem, Arena *arena)
{
    PolicyMaker maker = {.problem = problem, .most_held = 1};
    maker.entry = arena_array(arena, problem->pipe_count, sizeof *maker.entry);
    maker.end_path = arena_array(arena, problem->pipe_count, sizeof *maker.end_path);
    for (uint32_t n = 0; n < problem->node_count; n++) {
        const SearchNode *node = &problem->nodes[n];
        if (node->stage >= maker.stages)
            maker.stages = node->stage + 1;
        if (node->before == NO_NODE)
            maker.entry[node->pipe] = n;
        if (node->after == NO_NODE)
            maker.end_path[node->pipe] = node->backward_path;
    }
    for (uint32_t r = 0; r < problem->rank_count; r++) {
        const SearchRank *rank = &problem->ranks[r];
        const int64_t room = rank->limit / problem->memory[ACTION_F];
        const uint32_t held = room < rank->passes / 3 ? (uint32_t)room : rank->passes / 3;
        maker.most_held = held > maker.most_held ? held : maker.most_held;
        maker.chunks = rank->node_count > maker.chunks ? rank->node_count : maker.chunks;
    }
    return maker;
}
