#include "runtime/command/check.h"

#include "base/counted.h"

#include <math.h>
#include <string.h>

enum { NORM, HELD_OUT, BESIDES }; /* the numbers of a step after its losses; BESIDES: how many there are */

static double *numbers_of(const Check *check, uint64_t step)
{
    return check->numbers + (step - 1) * (check->microbatches + BESIDES);
}

/* The number at index `place` in the numbers of a step: a loss, the norm or the held-out loss. NAN: the step has no
   held-out loss. */
static double number_at(const Check *check, const StepReport *report, uint32_t place)
{
    if (place < check->microbatches)
        return report->losses[place];
    if (place == check->microbatches + NORM)
        return report->gradient_norm;
    return report->has_held_out ? report->held_out_loss : NAN;
}

static void record(void *context, const StepReport *report)
{
    Check *check = context;
    for (uint32_t place = 0; place < check->microbatches + BESIDES; place++)
        numbers_of(check, report->step)[place] = number_at(check, report, place);
    check->steps = report->step;
    if (check->told.step)
        check->told.step(check->told.context, report);
}

static void tell_ready(void *context, const RunFacts *facts)
{
    const Check *check = context;
    if (check->told.ready)
        check->told.ready(check->told.context, facts);
}

static void compare(void *context, const StepReport *report)
{
    Check *check = context;
    if (check->differs)
        return;
    for (uint32_t place = 0; place < check->microbatches + BESIDES; place++) {
        const double values[2] = {numbers_of(check, report->step)[place], number_at(check, report, place)};
        const bool first = isnan(values[0]), second = isnan(values[1]);
        const bool missing = (first || second) && place == check->microbatches + HELD_OUT;
        if (missing || (first && second) || memcmp(&values[0], &values[1], sizeof *values) == 0)
            continue;
        check->differs = true;
        check->step = report->step;
        check->place = place;
        memcpy(check->values, values, sizeof values);
        atomic_store(check->stop, true);
        return;
    }
    check->equal = report->step;
}

void check_open(Check *check, const LoadedProgram *loaded, uint64_t steps, atomic_bool *stop, Arena *arena)
{
    *check = (Check){.microbatches = loaded->replicas * loaded->program->microbatches, .stop = stop};
    check->numbers = arena_array(arena, steps * (check->microbatches + BESIDES), sizeof *check->numbers);
}

Observer check_record(Check *check, Observer told)
{
    check->told = told;
    return (Observer){.context = check, .ready = tell_ready, .step = record};
}

Observer check_compare(Check *check) { return (Observer){.context = check, .step = compare}; }

static bool is_loss(const Check *check) { return check->place < check->microbatches; }

static const char *name_of(const Check *check)
{
    return is_loss(check) ? "loss" : check->place == check->microbatches + NORM ? "gradient_norm" : "held_out_loss";
}

/* Prints a member of a JSON object; null if the number is infinite or NaN, which JSON does not have. */
static void print_value(const char *name, double value, FILE *stream)
{
    if (isfinite(value))
        fprintf(stream, ",\"%s\":%.17g", name, value);
    else
        fprintf(stream, ",\"%s\":null", name);
}

static void print_json(const Check *check, FILE *stream)
{
    fprintf(stream, "{\"equal\":%s,\"steps\":%llu", check->differs ? "false" : "true",
            (unsigned long long)check->equal);
    if (check->differs) {
        fprintf(stream, ",\"difference\":{\"step\":%llu,\"number\":\"%s\"", (unsigned long long)check->step,
                name_of(check));
        if (is_loss(check))
            fprintf(stream, ",\"microbatch\":%u", check->place);
        print_value("value", check->values[0], stream);
        print_value("reference", check->values[1], stream);
        fputc('}', stream);
    }
    fputs("}\n", stream);
}

Status check_tell(const Check *check, bool json, FILE *stream, Error *error)
{
    char microbatch[32] = "";
    if (json)
        print_json(check, stream);
    else if (!check->differs)
        fprintf(stream,
                "check      equal to the bit in %s: every loss and norm is that of the whole model on one rank\n",
                counted(check->equal, "step").text);
    if (!check->differs)
        return STATUS_OK;
    if (is_loss(check))
        snprintf(microbatch, sizeof microbatch, ", microbatch %u", check->place);
    return error_set(
        error, STATUS_BAD_INPUT,
        "step %llu%s: %s is %.17g, but %.17g in the whole model on one rank; report this as a bug of dprun: both must "
        "be equal to the bit",
        (unsigned long long)check->step, microbatch, name_of(check), check->values[0], check->values[1]);
}
