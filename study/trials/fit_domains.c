#include "study/trials/fit_domains.h"

#include <inttypes.h>

static bool all(const int64_t *c) { return c[0] > 0; }
static bool long_b(const int64_t *c) { return c[1] + c[2] >= c[0]; }
static bool sorted(const int64_t *c) { return c[2] <= c[0] && c[0] <= c[1]; }
static bool short_messages(const int64_t *c) { return c[0] > 0 && 5 * c[4] <= c[0]; }
static bool short_messages_both(const int64_t *c) { return short_messages(c) && 5 * c[4] <= c[1] + c[2]; }
static bool short_w(const int64_t *c) { return c[2] <= c[0]; }

/* clang-format off */
/* Variables of a domain: F, I and W each by itself; F and W, where I = F; the F&B; the message. */
#define APART  {"F", {1}}, {"I", {0, 1}}, {"W", {0, 0, 1}}
#define I_IS_F {"F", {1, 1}}, {"W", {0, 0, 1}}
#define FB     {"FB", {0, 0, 0, 1}}
#define COMM   {"comm", {0, 0, 0, 0, 1}}
/* clang-format on */

const CostDomain cost_domains[] = {
    {"comm <= F/5", {APART, FB, COMM}, PAIRS_ALL, false, short_messages},
    {"comm <= F/5, comm <= B/5", {APART, FB, COMM}, PAIRS_ALL, false, short_messages_both},
    {"comm = 0", {APART, FB}, PAIRS_ALL, false, all},
    {"comm = 0, B >= F", {APART, FB}, PAIRS_ALL, false, long_b},
    {"comm = 0, W <= F", {APART, FB}, PAIRS_ALL, false, short_w},
    {"comm = 0, W <= F <= I", {APART, FB}, PAIRS_ALL, true, sorted},
    {"comm = 0, W <= F <= I, FB = F+B", {APART}, PAIRS_IN_TURN, true, sorted},
    {"comm = 0, I = F, W <= F", {I_IS_F, FB}, PAIRS_ALL, true, short_w},
    {"comm = 0, I = F, W <= F, FB = F+B", {I_IS_F}, PAIRS_IN_TURN, true, short_w},
    {"comm = 0, I = F, W <= F, B < FB < F+B", {I_IS_F, FB}, PAIRS_BETWEEN, false, short_w},
    {"comm = 0, F = I = W", {{"F", {1, 1, 1}}, FB}, PAIRS_ALL, true, all},
    {"comm = 0, F = I = W, FB = F+B", {{"F", {1, 1, 1}}}, PAIRS_IN_TURN, true, all},
};
const size_t cost_domain_count = sizeof cost_domains / sizeof *cost_domains;

const SizeDomain size_domains[] = {
    {"", 0, 0, 1, 1, false},
    {"M >= P", 1, 0, 1, 1, false},
    {"M >= 2P-1", 2, 1, 1, 1, false},
    {"M >= 2P", 2, 0, 1, 1, false},
    {"M >= 2P+2", 2, -2, 1, 1, false},
    {"P divides M", 1, 0, 1, 1, true},
    {"P >= 3, M >= 2P+2", 2, -2, 1, 3, false},
    {"", 0, 0, 2, 1, false},
    {"M >= P", 1, 0, 2, 1, false},
    {"M >= 2P", 2, 0, 2, 1, false},
    {"P divides M", 1, 0, 2, 1, true},
    {"P >= 4, M >= 2P+2", 2, -2, 2, 4, false},
    {"P >= 4, P divides M", 1, 0, 2, 4, true},
    {"M >= P", 1, 0, 3, 1, false},
    {"M >= 2P", 2, 0, 3, 1, false},
};
const size_t size_domain_count = sizeof size_domains / sizeof *size_domains;

bool size_domain_has(const SizeDomain *domain, int64_t rest, int64_t ranks, int64_t microbatches)
{
    return ranks >= domain->least && ranks % domain->modulus == rest &&
           microbatches >= domain->times * ranks - domain->less && (!domain->units || microbatches % ranks == 0);
}

const char *size_domain_text(const SizeDomain *domain, int64_t rest, Arena *arena)
{
    if (domain->modulus == 1)
        return domain->text;
    const char *const between = *domain->text ? ", " : "";
    if (domain->modulus == 2)
        return arena_format(arena, "P %s%s%s", rest ? "odd" : "even", between, domain->text);
    return arena_format(arena, "P %% %" PRId64 " = %" PRId64 "%s%s", domain->modulus, rest, between, domain->text);
}
