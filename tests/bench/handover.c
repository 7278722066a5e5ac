/* Measures opening a world, the latency and bandwidth of blocks, and all-to-alls, between threads and between processes
   of MPI. Between processes it also measures sums, and how much of the time of messages and sums is hidden behind
   computation. Prints lines: name value unit. Run from the top folder with BUILD set. */

#include "base/clock.h"
#include "base/compare.h"
#include "runtime/transport/transport.h"
#include "tests/transport/plugin.h"

#include <pthread.h>
#include <sched.h>

enum {
    BATCH = 20, /* round trips between two readings of the clock */
    BATCHES = 2000,
    BLOCK_BYTES = 256 << 10,
    IN_FLIGHT = 8,
    STREAM = 2000,    /* blocks */
    SUMMED = 1 << 20, /* floats */
    PIECE_BYTES = 4 << 20,
    STARTED = 8, /* ranks */
    STARTS = 21,
};

typedef struct Rank {
    const Transport *transport;
    World *world;
    Communicator *both;
    int rank;
    int processor; /* -1: any */
} Rank;

static void must(Status status, const Error *error)
{
    if (status == STATUS_OK)
        return;
    fprintf(stderr, "handover: %s\n", error->text);
    exit((int)status);
}

static double median(double *values, size_t count)
{
    qsort(values, count, sizeof *values, compare_doubles);
    return values[count / 2];
}

static void print(const Rank *rank, const char *what, double value, const char *unit)
{
    if (rank->rank == 0)
        printf("%s.%s %.4g %s\n", rank->transport->name, what, value, unit);
    fflush(stdout);
}

/* Latency of a small block: half of a round trip. Both ranks post their receive first. Rank 0 sends and waits for the
   answer; rank 1 waits for the block and then sends the answer. */
static void measure_latency(const Rank *rank)
{
    static double batches[BATCHES];
    uint64_t words[2] = {0};
    void *blocks[2] = {&words[0], &words[1]};
    const int peer = 1 - rank->rank;
    Message in = {.block = &blocks[0], .bytes = sizeof words[0], .peer = peer};
    Message out = {.block = &blocks[1], .bytes = sizeof words[1], .peer = peer, .is_send = true};
    Error error;
    for (int batch = 0; batch < BATCHES; batch++) {
        const int64_t start = clock_nanoseconds();
        for (int trip = 0; trip < BATCH; trip++) {
            must(rank->both->run->post(rank->both, &in, &error), &error);
            if (rank->rank == 1)
                must(rank->both->run->wait(rank->both, &in, &error), &error);
            must(rank->both->run->post(rank->both, &out, &error), &error);
            if (rank->rank == 0)
                must(rank->both->run->wait(rank->both, &in, &error), &error);
            must(rank->both->run->wait(rank->both, &out, &error), &error);
        }
        if (rank->rank == 0)
            batches[batch] = (double)(clock_nanoseconds() - start) / (2.0 * BATCH);
    }
    if (rank->rank == 0)
        print(rank, "handover_latency", median(batches, BATCHES), "ns");
}

/* Posts a transfer from rank 0 to rank 1. */
static void post(const Rank *rank, Message *message)
{
    Error error;
    message->peer = 1 - rank->rank;
    message->is_send = rank->rank == 0;
    must(rank->both->run->post(rank->both, message, &error), &error);
}

static void measure_bandwidth(const Rank *rank)
{
    void *blocks[IN_FLIGHT];
    Message messages[IN_FLIGHT];
    Error error;
    for (int i = 0; i < IN_FLIGHT; i++) {
        blocks[i] = aligned_alloc(4096, BLOCK_BYTES);
        memset(blocks[i], 1, BLOCK_BYTES);
        messages[i] = (Message){.block = &blocks[i], .bytes = BLOCK_BYTES};
    }
    int64_t start = 0;
    for (int i = 0; i < STREAM + IN_FLIGHT; i++) {
        Message *message = &messages[i % IN_FLIGHT];
        if (i >= IN_FLIGHT)
            must(rank->both->run->wait(rank->both, message, &error), &error);
        if (i == IN_FLIGHT)
            start = clock_nanoseconds();
        if (i < STREAM)
            post(rank, message);
    }
    print(rank, "bandwidth_256k", (double)BLOCK_BYTES * (STREAM - 1) / (double)(clock_nanoseconds() - start), "GB/s");
    for (int i = 0; i < IN_FLIGHT; i++)
        free(blocks[i]);
}

/* Computes for `steps` times 50 us, with a call of progress after each. Returns the clock just before the last call. */
static int64_t compute(const Rank *rank, int steps)
{
    Error error;
    int64_t last = 0;
    for (int step = 0; step < steps; step++) {
        for (const int64_t end = clock_nanoseconds() + 50000; (last = clock_nanoseconds()) < end;)
            ;
        must(rank->both->run->progress(rank->both, &error), &error);
    }
    return last;
}

/* Measures which part of a message's time is hidden behind computation. */
static void measure_hiding(const Rank *rank)
{
    enum { MESSAGES = 200, STEPS = 20 };
    static double waits[2][MESSAGES];
    void *block = aligned_alloc(4096, BLOCK_BYTES);
    Error error;
    memset(block, 1, BLOCK_BYTES);
    for (int computing = 0; computing < 2; computing++)
        for (int i = 0; i < MESSAGES; i++) {
            char together[2];
            Message message = {.block = &block, .bytes = BLOCK_BYTES};
            must(rank->world->run->gather(rank->world, "", 1, together, &error), &error);
            int64_t start = clock_nanoseconds();
            post(rank, &message);
            if (computing)
                start = compute(rank, STEPS);
            must(rank->both->run->wait(rank->both, &message, &error), &error);
            waits[computing][i] = (double)(clock_nanoseconds() - start);
        }
    print(rank, "hidden_256k", 100 * (1 - median(waits[1], MESSAGES) / median(waits[0], MESSAGES)), "%");
    free(block);
}

/* Measures the time of a sum, and which part of it is hidden behind computation. A sum needs many calls of progress. */
static void measure_hidden_sum(const Rank *rank)
{
    enum { SUMS = 40, STEPS = 300 };
    static double waits[2][SUMS];
    float *buffer = calloc(SUMMED, sizeof *buffer);
    Error error;
    for (int computing = 0; computing < 2; computing++)
        for (int i = 0; i < SUMS; i++) {
            char together[2];
            must(rank->world->run->gather(rank->world, "", 1, together, &error), &error);
            int64_t start = clock_nanoseconds();
            must(rank->both->run->sum_post(rank->both, buffer, SUMMED, sizeof *buffer, &error), &error);
            if (computing)
                start = compute(rank, STEPS);
            must(rank->both->run->sum_wait(rank->both, &error), &error);
            waits[computing][i] = (double)(clock_nanoseconds() - start);
        }
    const double alone = median(waits[0], SUMS);
    print(rank, "sum_1m", alone * 1e-6, "ms");
    print(rank, "sum_1m_hidden", 100 * (1 - median(waits[1], SUMS) / alone), "%");
    free(buffer);
}

static void copy_both(const Rank *rank, const char *send, char *receive)
{
    (void)rank;
    memcpy(receive, send, 2 * PIECE_BYTES);
}

/* Moves as many bytes as an all-to-all of two members, but by messages: one message each way, and a copy of the piece
   that a member keeps. */
static void exchange_both(const Rank *rank, const char *send, char *receive)
{
    Error error;
    const size_t own = rank->rank ? PIECE_BYTES : 0, other = PIECE_BYTES - own;
    void *blocks[2] = {receive + other, (char *)(uintptr_t)send + other};
    Message in = {.block = &blocks[0], .bytes = PIECE_BYTES, .peer = 1 - rank->rank};
    Message out = {.block = &blocks[1], .bytes = PIECE_BYTES, .peer = 1 - rank->rank, .is_send = true};
    must(rank->both->run->post(rank->both, &in, &error), &error);
    must(rank->both->run->post(rank->both, &out, &error), &error);
    memcpy(receive + own, send + own, PIECE_BYTES);
    must(rank->both->run->wait(rank->both, &in, &error), &error);
    must(rank->both->run->wait(rank->both, &out, &error), &error);
}

static void all_to_all(const Rank *rank, const char *send, char *receive)
{
    static const size_t begins[] = {0, PIECE_BYTES, 2 * PIECE_BYTES};
    Error error;
    AllToAll pieces = {send, receive, begins, begins, 0, 0};
    must(rank->both->run->all_to_all_post(rank->both, &pieces, &error), &error);
    must(rank->both->run->all_to_all_wait(rank->both, &pieces, &error), &error);
}

/* Measures the rate of all-to-alls of equal pieces. Prints it also in percent of the rate of moving as many bytes in
   another way: between threads by a memcpy of each member at the same time, between processes by messages. */
static void measure_all_to_all(const Rank *rank)
{
    enum { ROUNDS = 101 };
    static double times[2][2][ROUNDS];
    void (*const ways[2])(const Rank *, const char *,
                          char *) = {all_to_all, rank->transport->processes ? exchange_both : copy_both};
    char *send = aligned_alloc(4096, 2 * PIECE_BYTES), *receive = aligned_alloc(4096, 2 * PIECE_BYTES);
    Error error;
    memset(send, 1, 2 * PIECE_BYTES);
    memset(receive, 1, 2 * PIECE_BYTES);
    for (int i = 0; i < ROUNDS; i++)
        for (int way = 0; way < 2; way++) {
            char together[2];
            must(rank->world->run->gather(rank->world, "", 1, together, &error), &error);
            const int64_t start = clock_nanoseconds();
            ways[way](rank, send, receive);
            must(rank->world->run->gather(rank->world, "", 1, together, &error), &error);
            times[rank->rank][way][i] = (double)(clock_nanoseconds() - start);
        }
    const double own = median(times[rank->rank][0], ROUNDS), other = median(times[rank->rank][1], ROUNDS);
    print(rank, "all_to_all", 2.0 * PIECE_BYTES / own, "GB/s a member");
    print(rank, rank->transport->processes ? "all_to_all_over_messages" : "all_to_all_over_memcpy", 100 * other / own,
          "%");
    free(send);
    free(receive);
}

static void connect_both(Rank *rank)
{
    Error error;
    const int members[] = {0, 1};
    const CommunicatorConfig config = {.members = members,
                                       .count = 2,
                                       .messages_in_flight = IN_FLIGHT,
                                       .sum_elements = SUMMED,
                                       .sum_size = sizeof(float),
                                       .all_to_alls_in_flight = 1};
    must(rank->world->connect(rank->world, &config, &rank->both, &error), &error);
}

static void *run_rank(void *argument)
{
    Rank *rank = argument;
    connect_both(rank);
    if (rank->processor >= 0) {
        cpu_set_t one;
        CPU_ZERO(&one);
        CPU_SET((size_t)rank->processor, &one);
        pthread_setaffinity_np(pthread_self(), sizeof one, &one);
    }
    measure_latency(rank);
    measure_bandwidth(rank);
    measure_all_to_all(rank);
    return NULL;
}

static void *meet_and_end(void *argument)
{
    const Rank *rank = argument;
    char all[STARTED], mine = 0;
    Error error;
    must(rank->world->run->gather(rank->world, &mine, 1, all, &error), &error);
    return NULL;
}

/* Opens a world of `count` members, runs `body` in a thread for each, and closes the world. `processors`: the processor
   that `body` may pin each thread to; NULL: any. Returns the nanoseconds that opening took. */
static double run_threads(int count, void *(*body)(void *), const int *processors)
{
    World *members[STARTED];
    Rank ranks[STARTED];
    pthread_t threads[STARTED];
    Error error;
    const WorldConfig config = {.size = count, .deadline = 60};
    const int64_t start = clock_nanoseconds();
    must(transport_open(transports, &config, members, &error), &error);
    const double opened = (double)(clock_nanoseconds() - start);
    for (int rank = 0; rank < count; rank++) {
        ranks[rank] = (Rank){transports, members[rank], NULL, rank, processors ? processors[rank] : -1};
        if (pthread_create(&threads[rank], NULL, body, &ranks[rank]) != 0)
            exit(STATUS_RUN_FAILED);
    }
    for (int rank = 0; rank < count; rank++) {
        pthread_join(threads[rank], NULL);
        if (ranks[rank].both)
            ranks[rank].both->run->close(ranks[rank].both);
        members[rank]->run->close(members[rank]);
    }
    return opened;
}

static void measure_local(void)
{
    cpu_set_t allowed;
    int processors[2] = {-1, -1};
    sched_getaffinity(0, sizeof allowed, &allowed);
    for (int processor = 0, found = 0; processor < CPU_SETSIZE && found < 2; processor++)
        if (CPU_ISSET((size_t)processor, &allowed))
            processors[found++] = processor;
    run_threads(2, run_rank, processors);

    double opened[STARTS], ready[STARTS];
    for (int i = 0; i < STARTS; i++) {
        const int64_t start = clock_nanoseconds();
        opened[i] = run_threads(STARTED, meet_and_end, NULL) * 1e-3;
        ready[i] = (double)(clock_nanoseconds() - start) * 1e-3;
    }
    printf("local.open_8 %.4g us\n", median(opened, STARTS));
    printf("local.open_8_and_meet_on_threads %.4g us\n", median(ready, STARTS));
    fflush(stdout);
}

static int measure_mpi(void)
{
    World *members[2];
    Error error;
    const WorldConfig config = {.size = 2, .deadline = 60};
    const int64_t start = clock_nanoseconds();
    const Transport *mpi = transport_named("mpi", true);
    must(transport_open(mpi, &config, members, &error), &error);
    const int number = members[0] ? 0 : 1;
    Rank rank = {mpi, members[number], NULL, number, -1};
    print(&rank, "open_2", (double)(clock_nanoseconds() - start) * 1e-6, "ms");
    connect_both(&rank);
    measure_latency(&rank);
    measure_bandwidth(&rank);
    measure_hiding(&rank);
    measure_hidden_sum(&rank);
    measure_all_to_all(&rank);
    rank.both->run->close(rank.both);
    rank.world->run->close(rank.world);
    return 0;
}

int main(int count, char **arguments)
{
    char program[PATH_MAX], link[PATH_MAX], command[PATH_MAX + 100];
    if (count > 1 && strcmp(arguments[1], "mpi") == 0)
        return measure_mpi();
    measure_local();
    if (!mpirun_is_there() || !link_plugin(program, link)) {
        fprintf(stderr, "handover: no MPI here\n");
        return 0;
    }
    snprintf(command, sizeof command, "%s -n 2 %s mpi", mpirun_command(), program);
    return system(command) == 0 ? 0 : STATUS_RUN_FAILED;
}
