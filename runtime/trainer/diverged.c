/* A run whose numbers are no longer finite: the message that says so, and the names of the files that such a run
   writes. */
#include "runtime/trainer/rank.h"

#include "base/file.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

static void say(Rank *rank, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void say(Rank *rank, const char *format, ...)
{
    Error *error = &rank->session->divergence;
    const size_t used = strlen(error->text);
    va_list arguments;
    if (rank->member != 0)
        return;
    va_start(arguments, format);
    vsnprintf(error->text + used, sizeof error->text - used, format, arguments);
    va_end(arguments);
}

static const char advice[] = "; the training has diverged (a smaller learning_rate helps)";

/* The first microbatch whose loss is not finite. If all are finite, the number of microbatches. */
static uint32_t bad_loss(const Rank *rank, const StepReport *report)
{
    const uint32_t microbatches = rank->session->microbatches;
    uint32_t m = 0;
    while (m < microbatches && isfinite(report->losses[m]))
        m++;
    return m;
}

static uint32_t bad_stage(const Rank *rank)
{
    uint32_t stage = 0;
    while (isfinite(stage_squares(rank, stage)) && stage + 1 < rank->session->loaded->program->stages)
        stage++;
    return stage;
}

static int bad_member(const Rank *rank)
{
    int member = 0;
    while (isfinite(rank_record(rank, member)->norm) && member + 1 < member_count(rank))
        member++;
    return member;
}

/* How messages name a member of the mesh. */
static MemberName named(const Rank *rank, int member) { return mesh_name(rank->session->mesh, member); }

void diverged_in_step(Rank *rank, const StepReport *report)
{
    const Session *session = rank->session;
    const Program *program = session->loaded->program;
    const uint32_t m = bad_loss(rank, report);
    const bool bad_norm = !isfinite(report->gradient_norm);
    rank->diverged = bad_norm || m < session->microbatches;
    if (!rank->diverged)
        return;
    say(rank, "step %llu: ", (unsigned long long)rank->step);
    if (m < session->microbatches)
        say(rank, "the loss of microbatch %u, on %s, is not finite%s", m, named(rank, session->ends[m].member).text,
            advice);
    else if (program->asynchronous)
        say(rank, "a gradient on %s is not finite%s", named(rank, bad_member(rank)).text, advice);
    else
        say(rank, "the gradient of stage %u, on %s, is not finite%s", bad_stage(rank),
            named(rank, session->counting[bad_stage(rank)].rank).text, advice);
    if (bad_norm)
        say(rank, "; the weights are as before %s", program->asynchronous ? "that update" : "this step");
}

void diverged_on_held_out(Rank *rank, double loss)
{
    if (isfinite(loss))
        return;
    rank->diverged = true;
    say(rank, "after step %llu: the loss of held-out data is not finite%s", (unsigned long long)rank->step, advice);
}

Status diverged_in_weights(Rank *rank, Error *error)
{
    double sum;
    TRY(sum_squares(rank, true, &sum, error));
    if (isfinite(sum))
        return STATUS_OK;
    const uint32_t stage = bad_stage(rank);
    say(rank, "%safter step %llu: weights of stage %u, on %s, are not finite%s", rank->diverged ? "; " : "",
        (unsigned long long)rank->step, stage, named(rank, rank->session->counting[stage].rank).text,
        rank->diverged ? "" : advice);
    rank->diverged = true;
    return STATUS_OK;
}

Status diverged_path(Rank *rank, const char *path, char **other, Error *error)
{
    *other = NULL;
    if (!file_is_kept(path))
        return STATUS_OK;
    if (asprintf(other, "%s.diverged", path) < 0)
        return error_set(error, STATUS_RUN_FAILED, "no memory for the file name %s.diverged", path);
    say(rank, "; wrote %s", *other);
    return STATUS_OK;
}
