/* Measures how much of the time of the sums of gradients is hidden behind the rest of the step. Trains the same model,
   in turn, with each sum posted where the compiler puts it, and with each posted directly before its wait. There are
   two ranks, each with a copy of both stages, either by a schedule or as two replicas. The sum of stage 1 can run
   during the last backward of stage 0; the sum of stage 0 comes last, so nothing can hide it. Prints lines: name value
   unit. Run from the top folder with BUILD set. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/command/options.h"
#include "runtime/trainer/trainer.h"
#include "base/compare.h"

enum { PAIRS = 7, RANKS = 2, STEPS = 16 };

/* Two runs, each with two copies of both stages: a schedule on two ranks, of which rank 1 is idle at the end; and two
   replicas of one rank that has both stages. */
static const struct {
    const char *name, *order;
    uint32_t replicas;
} cases[] = {
    {"sums",
     "p0:0F0,p0:0F1,p0:0F2,p0:0F3,p1:1F0,p1:1B0,p0:0B0,p0:0B1,p0:0B2,p0:0B3\n"
     "p1:0F0,p0:1F0,p0:1B0,p1:0B0,p0:1F1,p0:1B1,p0:1F2,p0:1B2,p0:1F3,p0:1B3\n",
     1},
    {"sums_of_replicas", "0F0,1F0,1B0,0F1,1F1,1B1,0B0,0B1\n", 2},
};

static void fail(const char *what)
{
    fprintf(stderr, "sums: %s\n", what);
    exit(1);
}

/* Moves every REDUCE of the rank directly before its WAIT_REDUCE. */
static void post_late(RankProgram *rank)
{
    for (uint32_t i = rank->instruction_count; i-- > 0;) {
        const Instruction reduce = rank->instructions[i];
        if (reduce.opcode != OP_REDUCE)
            continue;
        for (uint32_t k = i; rank->instructions[k + 1].opcode != OP_NORM; k++) {
            const Instruction *next = &rank->instructions[k + 1];
            if (next->opcode == OP_WAIT_REDUCE && next->chunk == reduce.chunk)
                break;
            rank->instructions[k] = *next;
            rank->instructions[k + 1] = reduce;
        }
    }
}

static void run(const char *program, uint32_t replicas, const char *trace, bool late)
{
    Arena arena = {0};
    Error error = {0};
    CommandLine line;
    LoadedProgram loaded;
    Session *session;
    char *arguments[] = {"dprun",   "--set",       "hidden=256",  "--set",   "layers=2",          "--set",
                         "heads=4", "--set",       "sequence=32", "--set",   "microbatch_size=1", "--steps",
                         "8",       "--transport", "local",       "--trace", (char *)trace,       (char *)program,
                         NULL};
    Status status = options_parse(18, arguments, &arena, &line, &error);
    line.run.held_out = 64;
    if (status == STATUS_OK)
        status = program_load(program, &(LoadOptions){.replicas = replicas}, &arena, &loaded, &error);
    for (uint32_t r = 0; status == STATUS_OK && late && r < loaded.program->rank_count; r++)
        post_late(&loaded.program->ranks[r]);
    if (status == STATUS_OK)
        status = session_open(&loaded, &line.run, &(SessionHooks){0}, &session, &error);
    if (status == STATUS_OK) {
        status = session_run(session, &error);
        session_close(session);
    }
    if (status != STATUS_OK)
        fail(error.text);
    arena_free(&arena);
}

/* How many microseconds the sums of a step cost, from a trace: in each step the time that one rank waits for sums. Of
   the two ranks the one that waits less counts, because the other one also waits for this rank. Returns the smallest
   value of all steps. */
static double waited(const char *trace)
{
    double sums[STEPS + 1][RANKS] = {{0}}, least = 1e9;
    char text[1024];
    FILE *file = fopen(trace, "r");
    if (!file)
        fail("no trace");
    while (fgets(text, sizeof text, file)) {
        const char *rank = strstr(text, "\"pid\":"), *step = strstr(text, "\"step\":"),
                   *time = strstr(text, "\"waited\":");
        if (strstr(text, "\"cat\":\"sum\",\"ph\":\"e\"") && rank && step && time)
            sums[strtol(step + 7, NULL, 10) % (STEPS + 1)][strtol(rank + 6, NULL, 10) % RANKS] +=
                strtod(time + 9, NULL);
    }
    fclose(file);
    for (int step = 1; step <= STEPS; step++)
        for (int rank = 0; rank < RANKS; rank++)
            least = sums[step][rank] > 0 && sums[step][rank] < least ? sums[step][rank] : least; /* 0: not traced */
    return least;
}

static int measure(const char *name, const char *order, uint32_t replicas)
{
    char folder[] = "/tmp/sums.XXXXXX", command[1024], program[64], trace[64];
    const char *build = getenv("BUILD") ? getenv("BUILD") : "build";
    double times[2][PAIRS];
    if (!mkdtemp(folder))
        return 1;
    snprintf(program, sizeof program, "%s/prog.bin", folder);
    snprintf(trace, sizeof trace, "%s/trace.json", folder);
    snprintf(command, sizeof command, "printf '%s' >%s/order.csv && %s/dpc %s/order.csv -o %s", order, folder, build,
             folder, program);
    if (system(command) != 0)
        return 1;
    for (int i = 0; i < PAIRS; i++) {
        for (int late = 0; late < 2; late++) {
            run(program, replicas, trace, late);
            times[late][i] = waited(trace);
        }
    }
    for (int late = 0; late < 2; late++)
        qsort(times[late], PAIRS, sizeof *times[late], compare_doubles);
    printf("%s.waited %.4g us (both sums of a step, posted as the compiler does; median of %d)\n", name,
           times[0][PAIRS / 2], PAIRS);
    printf("%s.waited_late %.4g us (posted right before the wait)\n", name, times[1][PAIRS / 2]);
    printf("%s.hidden %.2f share\n", name, 1 - times[0][PAIRS / 2] / times[1][PAIRS / 2]);
    snprintf(command, sizeof command, "rm -r %s", folder);
    return system(command);
}

int main(void)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (measure(cases[i].name, cases[i].order, cases[i].replicas) != 0)
            return 1;
    return 0;
}
