#include "study/trials/published.h"

#include <math.h>
#include <string.h>

/* The variables of the formulas: sizes, and times of passes. */
typedef struct Sizes {
    double ranks, stages, microbatches, peak;
    double forward, input, weight, backward, pair;
    bool alike; /* all stages have the same times */
    bool quiet; /* messages take no time */
} Sizes;

/* --- the formulas --- */

static double flushed(const Sizes *x) { return (x->ranks - 1) * (x->forward + x->backward); }
static double zb_h1(const Sizes *x) { return (x->ranks - 1) * (x->forward + x->input - x->weight); }
static double zb_h2(const Sizes *x) { return (x->ranks - 1) * (x->forward + x->input - 2 * x->weight); }
static double zb_v(const Sizes *x) { return 2 * (x->ranks - 1) * (x->input - x->weight); }
static double dualpipe(const Sizes *x) { return (x->stages / 2 - 1) * (x->pair + x->backward - 3 * x->weight); }
static double bitpipe(const Sizes *x) { return (x->ranks / 2 - 1) * (x->forward + x->backward); }
static double controllable(const Sizes *x) { return fmax(0, 6 * x->ranks - 3 * x->peak - 1) * x->forward; }

static double chimera(const Sizes *x)
{
    return (x->ranks - 2) * (x->backward + (x->microbatches / x->ranks - 1) * (x->backward - x->forward));
}

/* --- their domains --- */

static bool two_ranks(const Sizes *x) { return x->ranks < 3; }
static bool few(const Sizes *x) { return x->microbatches < x->ranks; }
static bool few_for_two(const Sizes *x) { return x->microbatches < 2 * x->ranks - 1; }
static bool few_for_both(const Sizes *x) { return x->microbatches < 2 * x->ranks; }
static bool no_units(const Sizes *x) { return fmod(x->microbatches, x->ranks) != 0; }
/* Whether a chunk of interleaved 1F1B runs more than P microbatches in a row. The peak of activations tells. */
static bool large_groups(const Sizes *x) { return x->stages > x->ranks && x->peak > x->ranks + x->stages - 1; }

static bool long_weight(const Sizes *x) { return x->weight > x->forward; }
static bool long_weights(const Sizes *x) { return 2 * x->weight > x->forward + x->input; }
static bool short_input(const Sizes *x) { return x->input < x->forward; }
static bool short_backward(const Sizes *x) { return x->backward < x->forward; }
static bool other_backward(const Sizes *x) { return x->backward != x->forward; }
static bool other_input(const Sizes *x) { return x->input != x->forward; }
static bool other_weight(const Sizes *x) { return x->weight != x->forward; }
static bool other_halves(const Sizes *x) { return x->backward != x->input + x->weight; }
static bool overlapped(const Sizes *x) { return x->pair != x->forward + x->backward; }

enum { BREACHES = 5 };

typedef struct Breach {
    const char *text;
    bool (*of)(const Sizes *);
} Breach;

#define FEW          \
    {                \
        "M < P", few \
    }
#define FEW_FOR_TWO             \
    {                           \
        "M < 2P-1", few_for_two \
    }
#define FEW_FOR_BOTH           \
    {                          \
        "M < 2P", few_for_both \
    }
#define NO_UNITS                        \
    {                                   \
        "P does not divide M", no_units \
    }
#define LONG_WEIGHT          \
    {                        \
        "W > F", long_weight \
    }
#define SHORT_INPUT          \
    {                        \
        "I < F", short_input \
    }
#define OTHER_HALVES             \
    {                            \
        "B != I+W", other_halves \
    }

static const struct {
    const char *schedule, *formula, *source;
    bool is_bound;
    double (*value)(const Sizes *);
    Breach breaches[BREACHES];
} known[] = {
    {"gpipe", "(P-1)(F+B)", "Huang et al., NeurIPS 2019", false, flushed, {{0}}},
    {"1f1b", "(P-1)(F+B)", "Narayanan et al., ICML 2021", false, flushed, {{0}}},
    {"eager-1f1b", "(P-1)(F+B)", "Zhuang et al., MLSys 2023", false, flushed, {{0}}},
    {"interleaved-1f1b",
     "(P-1)(F+B)",
     "Narayanan et al., SC 2021",
     false,
     flushed,
     {NO_UNITS, {"groups of more than P", large_groups}}},
    {"looped-bfs", "(P-1)(F+B)", "Lamy-Poirier, MLSys 2023", false, flushed, {FEW}},
    {"hanayo", "(P-1)(F+B)", "Liu et al., SC 2023", false, flushed, {{"B != F", other_backward}, NO_UNITS}},
    {"zb-h1", "(P-1)(F+I-W)", "Qi et al., ICLR 2024", false, zb_h1, {LONG_WEIGHT, FEW}},
    {"zb-h2",
     "(P-1)(F+I-2W)",
     "Qi et al., ICLR 2024",
     false,
     zb_h2,
     {LONG_WEIGHT, {"2W > F+I", long_weights}, FEW_FOR_TWO}},
    /* the order of zb1p is searched: if I < F, its bubble may be smaller than this formula says */
    {"zb1p", "(P-1)(F+I-W)", "Qi et al., ICLR 2024", false, zb_h1, {LONG_WEIGHT, SHORT_INPUT, FEW}},
    {"zb-v", "2(P-1)(I-W)", "Qi et al., ICLR 2024", false, zb_v, {LONG_WEIGHT, SHORT_INPUT, FEW_FOR_TWO}},
    {"v-half",
     "max(0, 6P-3k-1) F",
     "Qi et al., NeurIPS 2024",
     false,
     controllable,
     {{"I != F", other_input}, {"W != F", other_weight}, {"P < 3", two_ranks}, FEW_FOR_BOTH}},
    {"v-min",
     "max(0, 6P-3k-1) F",
     "Qi et al., NeurIPS 2024",
     true,
     controllable,
     {{"I != F", other_input}, {"W != F", other_weight}, FEW_FOR_BOTH}},
    {"chimera",
     "(P-2)B + (M/P-1)(P-2)(B-F)",
     "Li and Hoefler, SC 2021",
     false,
     chimera,
     {{"B < F", short_backward}, NO_UNITS}},
    {"bitpipe", "(P/2-1)(F+B)", "Wu et al., 2024", false, bitpipe, {{"B != F", other_backward}, NO_UNITS}},
    {"dualpipe",
     "(S/2-1)(FB+B-3W)",
     "DeepSeek-V3 Technical Report, 2024",
     false,
     dualpipe,
     {{"I != F", other_input}, LONG_WEIGHT, OTHER_HALVES, {"FB != F+B", overlapped}, FEW_FOR_BOTH}},
    {"dualpipev",
     "(S/2-1)(FB+B-3W)",
     "Sea AI Lab, 2025",
     false,
     dualpipe,
     {{"I != F", other_input}, LONG_WEIGHT, OTHER_HALVES, {"FB != F+B", overlapped}, FEW_FOR_BOTH}},
};

const char *published_schedule(size_t row) { return row < sizeof known / sizeof *known ? known[row].schedule : NULL; }

static double both_passes(const Costs *costs, uint32_t stage)
{
    return costs_pass(costs, stage, COST_F) + costs_pass(costs, stage, COST_B);
}

/* The mean time of a pass of this kind over all stages but the slowest one. */
static double without(const Costs *costs, StageCost kind, uint32_t stages, uint32_t slowest)
{
    double sum = 0;
    for (uint32_t s = 0; s < stages; s++)
        sum += s == slowest ? 0 : kind == COST_FB ? costs_pair(costs, s, s, COST_B) : costs_pass(costs, s, kind);
    return sum / (stages - 1);
}

static Sizes sizes_of(const Schedule *schedule, const Costs *costs, uint32_t peak_activations)
{
    const uint32_t stages = schedule->pipes[0].stages;
    uint32_t slowest = 0;
    Sizes x = {.ranks = schedule->ranks,
               .stages = stages,
               .microbatches = schedule->microbatches,
               .peak = peak_activations,
               .forward = costs_pass(costs, 0, COST_F),
               .input = costs_pass(costs, 0, COST_I),
               .weight = costs_pass(costs, 0, COST_W),
               .backward = costs_pass(costs, 0, COST_B),
               .pair = costs_pair(costs, 0, 0, COST_B),
               .alike = true,
               .quiet = true};
    for (uint32_t s = 1; s < stages; s++) {
        for (StageCost kind = COST_F; kind <= COST_W; kind++)
            x.alike = x.alike && costs_pass(costs, s, kind) == costs_pass(costs, 0, kind);
        x.alike = x.alike && costs_pair(costs, s, s, COST_B) == x.pair;
        if (both_passes(costs, s) > both_passes(costs, slowest))
            slowest = s;
    }
    if (!x.alike) {
        x.forward = without(costs, COST_F, stages, slowest);
        x.input = without(costs, COST_I, stages, slowest);
        x.weight = without(costs, COST_W, stages, slowest);
        x.backward = without(costs, COST_B, stages, slowest);
        x.pair = without(costs, COST_FB, stages, slowest);
    }
    for (uint32_t p = 0; p < schedule->pipe_count; p++)
        for (uint32_t s = 1; s < schedule->pipes[p].stages; s++) {
            const uint32_t before = stage_home(&schedule->pipes[p], s - 1, 0).rank,
                           here = stage_home(&schedule->pipes[p], s, 0).rank;
            x.quiet = x.quiet && costs_message(costs, before, here) == 0 && costs_message(costs, here, before) == 0;
        }
    return x;
}

static void add_breach(PublishedBubble *published, const char *text)
{
    const size_t used = strlen(published->breach);
    snprintf(published->breach + used, sizeof published->breach - used, "%s%s", used ? ", " : "", text);
}

bool published_bubble(const Schedule *schedule, const Costs *costs, uint32_t peak_activations,
                      PublishedBubble *published)
{
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (strcmp(known[i].schedule, schedule->name) != 0)
            continue;
        const Sizes x = sizes_of(schedule, costs, peak_activations);
        *published = (PublishedBubble){.formula = known[i].formula,
                                       .source = known[i].source,
                                       .is_bound = known[i].is_bound,
                                       .value = known[i].value(&x)};
        if (!x.alike)
            add_breach(published, "stages of different times");
        if (!x.quiet)
            add_breach(published, "messages that take time");
        if (costs->recipes)
            add_breach(published, "F&Bs of different recipes");
        if (recipes_put_off(&schedule->recipes))
            add_breach(published, "F&Bs that put weight gradients off");
        for (int b = 0; b < BREACHES && known[i].breaches[b].of; b++)
            if (known[i].breaches[b].of(&x))
                add_breach(published, known[i].breaches[b].text);
        return true;
    }
    return false;
}
