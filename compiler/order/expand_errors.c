#include "compiler/order/expander.h"

const char *expand_circumstances(const Expander *x, const Expression *expression)
{
    /* a pass is put into its slot after all steps have been evaluated, so x->values say nothing about it */
    if (x->turn)
        return x->turn->has_slot ? arena_format(x->arena, "here in slot %lld", (long long)x->turn->slot) : NULL;
    if (!expression && x->step)
        expression = x->step->value;
    const char *text = expression ? values_text(x->ast, expression, x->values, x->arena) : "";
    for (uint32_t i = 0; i < x->loop_count; i++)
        if (!expression || !expression_mentions(expression, x->loops[i]->slot))
            text = arena_format(x->arena, "%s%s%s = %lld", text, *text ? ", " : "", x->loops[i]->name.symbol->text,
                                (long long)x->values[x->loops[i]->slot]);
    if (x->step && x->step->value)
        text = arena_format(x->arena, "%s%sin repetition %lld of %lld", text, *text ? ", " : "",
                            (long long)x->repetition + 1, (long long)x->repetitions);
    return *text ? arena_format(x->arena, "here %s", text) : NULL;
}

/* --- more passes than microbatches --- */

/* How many requests without a named microbatch a pass written in the file makes on the rank, over all repetitions. */
typedef struct Share {
    const Pass *pass;
    uint64_t count;
} Share;

enum { SHARES_MAX = 6 /* the message names at most this many passes; one more term sums all others */ };

typedef struct Shares {
    Share of[SHARES_MAX];
    uint32_t count;
    uint64_t others, sum;
    bool complete;
    bool has_b, has_i;
} Shares;

static void add_share(Shares *shares, const Request *request)
{
    uint32_t i = 0;
    shares->sum++;
    shares->has_b |= request->kind == ACTION_B;
    shares->has_i |= request->kind == ACTION_I;
    while (i < shares->count && shares->of[i].pass != request->pass)
        i++;
    if (i < shares->count)
        shares->of[i].count++;
    else if (i < SHARES_MAX)
        shares->of[shares->count++] = (Share){request->pass, 1};
    else
        shares->others++;
}

/* For each pass written in the file, counts its requests that are like `request`: of the same chunk, an F if `request`
   is one and else a B or I, and without a named microbatch. Unless the requests have been stored, runs all steps again,
   only to count, and drops the errors of that run. */
static Shares count_shares(Expander *x, const Request *request)
{
    const RankErrors errors = x->errors;
    Shares shares = {.complete = true};
    const bool served = !x->requests;
    if (served) {
        RankError *last = errors.last;
        /* a higher limit, so that the counting does not end at the first pass that is too many */
        x->passes_max = 4 * x->passes_max + 1000;
        x->most = x->passes_max + x->updates_max + 1;
        shares.complete = expand_requests(x);
        if (last)
            last->next = NULL;
        x->errors = errors;
        x->ran_away = false;
    }
    for (uint32_t i = 0; i < x->request_count; i++) {
        const Request *other = &x->requests[i];
        const bool alike = request->kind == ACTION_F ? other->kind == ACTION_F : is_backward(other->kind);
        if (alike && other->chunk == request->chunk && other->microbatch < 0)
            add_share(&shares, other);
    }
    if (served)
        x->requests = NULL;
    return shares;
}

/* "4 + 9 = 13 F" */
static const char *sum_text(const Expander *x, const Request *request, const Shares *shares)
{
    const char *text = "";
    for (uint32_t i = 0; i < shares->count && shares->count > 1; i++)
        text = arena_format(x->arena, "%s%s%llu", text, i ? " + " : "", (unsigned long long)shares->of[i].count);
    if (shares->others)
        text = arena_format(x->arena, "%s + %llu", text, (unsigned long long)shares->others);
    const char *const pass = request->kind == ACTION_F        ? "F"
                             : shares->has_b && shares->has_i ? "B and I"
                             : shares->has_i                  ? "I"
                                                              : "B";
    return arena_format(x->arena, "%s%s%s%llu %s", text, *text ? " = " : "", shares->complete ? "" : "at least ",
                        (unsigned long long)shares->sum, pass);
}

static RankNote *share_notes(const Expander *x, const Request *request, const Shares *shares)
{
    RankNote *first = NULL, **end = &first;
    for (uint32_t i = 0; i < shares->count; i++) {
        if (shares->of[i].pass == request->pass)
            continue;
        *end = arena_allocate(x->arena, sizeof **end);
        **end = (RankNote){.span = shares->of[i].pass->span,
                           .text = arena_format(x->arena, "%llu of them", (unsigned long long)shares->of[i].count)};
        end = &(*end)->next;
    }
    return first;
}

bool expand_too_many(Expander *x, const Request *request)
{
    const Schedule *schedule = x->schedule;
    const ChunkState state = x->chunks[request->chunk];
    const char *here = expand_circumstances(x, request->pass->computed_chunk);
    const Request kept = *request; /* a copy, because count_shares may overwrite the requests */
    const Shares shares = count_shares(x, &kept);
    const char *of_chunk =
        schedule->chunk_counts[x->rank] > 1 ? arena_format(x->arena, " of chunk %d", kept.chunk) : "";
    const char *of_pipe =
        schedule->pipe_count > 1 ? arena_format(x->arena, " of pipe %s", expand_pipe_name(x, kept.chunk)) : "";
    RankError *error = rank_error(&x->errors, x->rank, kept.pass->span, "too many passes: %s%s for %u microbatches%s%s",
                                  sum_text(x, &kept, &shares), of_chunk, state.own, of_pipe,
                                  state.own < state.written ? " on this rank" : "");
    if (!error)
        return false;
    error->help = here;
    error->notes = share_notes(x, &kept, &shares);
    return false;
}
