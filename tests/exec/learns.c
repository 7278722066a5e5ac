/* Trains the default model with 4 layers on the default text. After 120 steps of DualPipe the loss, also on unseen
   text, is well below the entropy of single bytes, which is the best loss without looking at earlier bytes. Under a
   sanitizer, which checks the code and not the result, the loss only has to fall. */

#include "tests/sanitized.h"
#include "tests/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS = SANITIZED ? 10 : 120 };

static double number_behind(const char *line, const char *key)
{
    const char *found = strstr(line, key);
    if (!found)
        fail_msg("no %s in %s", key, line);
    return strtod(found + strlen(key), NULL);
}

TEST(default_text_is_learnt)
{
    const char *build = getenv("BUILD") ? getenv("BUILD") : "build";
    char command[4096], *line = NULL, *last = NULL;
    size_t size = 0;
    snprintf(command, sizeof command,
             "f=$(mktemp) && %1$s/dpc --ranks 2 --microbatches 20 schedules/dualpipe.dps -o $f && "
             "%1$s/dprun --json --steps %2$d --set layers=4 $f; rm -f $f",
             build, STEPS);
    FILE *output = popen(command, "r");
    assert_non_null(output);
    double first = 0;
    int steps = 0;
    while (getline(&line, &size, output) > 0) {
        if (steps++ == 0)
            first = number_behind(line, "\"loss\":");
        free(last);
        last = strdup(line);
    }
    assert_int_equal(pclose(output), 0);
    assert_int_equal(steps, STEPS);
    const double entropy = number_behind(last, "\"byte_entropy\":"), loss = number_behind(last, "\"loss\":");
    const double held_out = number_behind(last, "\"held_out_loss\":");
    print_message("entropy of bytes %.3f; loss %.3f at first, then %.3f, held out %.3f\n", entropy, first, loss,
                  held_out);
    assert_true(entropy > 2.5 && entropy < 4);
    assert_true(first > entropy);
    assert_true(loss < (SANITIZED ? first : entropy - 0.6));
    assert_true(held_out < (SANITIZED ? first : entropy - 0.3));
    free(line);
    free(last);
}

int main(void) { return test_program("learns", NULL, NULL); }
