/* One clock for all ranks. Those of one machine share theirs; of the others one in each machine asks rank 0 for the time, many
   times, and believes the answer that came back soonest: it lies in the middle of the question's way, with an error of at most
   half of that way (Cristian 1989). Asked at the beginning and at the end of the run, clocks that go at different speed are
   corrected between the two. */
#include "runtime/vm/machine.h"

#include "runtime/base/clock.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { QUESTIONS = 64 };

/* Equal for processes that read the same clock: the boot of a machine, and the time namespace in it. */
typedef struct ClockName {
    char text[96];
} ClockName;

static ClockName clock_name(void)
{
    ClockName name = {""};
    const int boot = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t length = boot < 0 ? 0 : read(boot, name.text, 40);
    if (boot >= 0)
        close(boot);
    length = length < 0 ? 0 : length;
    if (readlink("/proc/self/ns/time", name.text + length, 40) < 0)
        name.text[length] = '\0';
    return name;
}

static Status hand_over(Rank *rank, int peer, bool is_send, int64_t **block, Error *error)
{
    void *memory = *block;
    Message message = {.block = &memory, .bytes = sizeof **block, .peer = peer, .is_send = is_send};
    const Transport *transport = rank->transport;
    TRY((is_send ? transport->send : transport->receive)(rank->endpoint, &message, error));
    Status status = transport->wait(rank->endpoint, &message, error);
    *block = memory; /* perhaps another one */
    return status;
}

/* This rank asks rank 0. */
static Status ask(Rank *rank, int64_t **block, ClockSample *sample, Error *error)
{
    int64_t shortest = INT64_MAX;
    for (int i = 0; i < QUESTIONS; i++) {
        const int64_t asked = clock_nanoseconds();
        TRY(hand_over(rank, 0, true, block, error));
        TRY(hand_over(rank, 0, false, block, error));
        const int64_t answered = clock_nanoseconds();
        if (answered - asked < shortest) {
            shortest = answered - asked;
            *sample = (ClockSample){.at = asked + shortest / 2, .ahead = asked + shortest / 2 - **block};
        }
    }
    return STATUS_OK;
}

static Status answer(Rank *rank, int peer, int64_t **block, Error *error)
{
    for (int i = 0; i < QUESTIONS; i++) {
        TRY(hand_over(rank, peer, false, block, error));
        **block = clock_nanoseconds();
        TRY(hand_over(rank, peer, true, block, error));
    }
    return STATUS_OK;
}

/* The first rank that reads the same clock. */
static int leader_of(const ClockName *names, int rank)
{
    int first = 0;
    while (strcmp(names[first].text, names[rank].text) != 0)
        first++;
    return first;
}

static Status compare(Rank *rank, ClockName *names, ClockSample *samples, int64_t **block, ClockSample *sample, Error *error)
{
    const int ranks = (int)rank->session->loaded->program->rank_count;
    const ClockName own = clock_name();
    TRY(rank->transport->gather(rank->endpoint, &own, sizeof own, names, error));
    *sample = (ClockSample){.at = clock_nanoseconds()};
    for (int r = 1; r < ranks; r++) {
        if (leader_of(names, r) != r)
            continue;
        if (rank->number == 0)
            TRY(answer(rank, r, block, error));
        else if (rank->number == r)
            TRY(ask(rank, block, sample, error));
    }
    TRY(rank->transport->gather(rank->endpoint, sample, sizeof *sample, samples, error));
    *sample = samples[leader_of(names, rank->number)];
    return STATUS_OK;
}

Status clocks_compare(Rank *rank, ClockSample *sample, Error *error)
{
    const size_t ranks = rank->session->loaded->program->rank_count;
    ClockName *names = calloc(ranks, sizeof *names);
    ClockSample *samples = calloc(ranks, sizeof *samples);
    int64_t *block = calloc(1, sizeof *block);
    Status status = names && samples && block ? compare(rank, names, samples, &block, sample, error)
                                              : error_set(error, STATUS_RUN_FAILED, "no memory to compare %zu clocks", ranks);
    free(names);
    free(samples);
    free(block);
    if (status != STATUS_OK)
        error_prefix(error, "rank %d, comparing clocks: ", rank->number);
    return status;
}

int64_t clock_common(const ClockSample compared[2], int64_t own)
{
    const double apart = (double)(compared[1].at - compared[0].at);
    const double drift = apart > 0 ? (double)(compared[1].ahead - compared[0].ahead) / apart : 0;
    return own - compared[0].ahead - (int64_t)((double)(own - compared[0].at) * drift);
}
