#include "runtime/transport/local.h"
#include "tests/test.h"
#include "tests/transport/scenarios.h"

#include <pthread.h>
#include <time.h>

enum { MANY = 1024 };

typedef struct Rank {
    World *world;
    Communicator *everybody;
    int rank, ranks;
    uint64_t seed;
    void *blocks[IN_FLIGHT];
    bool (*body)(struct Rank *rank);
    bool good;
} Rank;

static void sleep_milliseconds(long milliseconds)
{
    nanosleep(&(struct timespec){.tv_sec = milliseconds / 1000, .tv_nsec = milliseconds % 1000 * 1000000}, NULL);
}

static bool connect_everybody(Rank *rank)
{
    Error error;
    int members[MANY];
    for (int i = 0; i < rank->ranks; i++)
        members[i] = i;
    const CommunicatorConfig config = {.members = members, .count = rank->ranks, .messages_in_flight = IN_FLIGHT};
    return rank->world->connect(rank->world, &config, &rank->everybody, &error) == STATUS_OK;
}

static void *run_rank(void *argument)
{
    Rank *rank = argument;
    rank->good = connect_everybody(rank) && rank->body(rank);
    if (!rank->good)
        world_abort(rank->world, "its test failed"); /* so that the other ranks do not wait until the deadline */
    return NULL;
}

static LinkModel network; /* the network that worlds imitate which are opened from now on; zeros: none */

static double short_deadline; /* in seconds, of the worlds that run_in_time opens */

/* Whether this is the error of a wait for a rank whose answer never comes. */
static bool is_no_answer(const Error *error, const char *rank)
{
    char expected[100];
    snprintf(expected, sizeof expected, "no answer from %s within %g s (--deadline)", rank, short_deadline);
    if (strcmp(error->text, expected) != 0)
        fprintf(stderr, "\"%s\" instead of \"%s\"\n", error->text, expected);
    return strcmp(error->text, expected) == 0;
}

static void open_world(int count, double deadline, int replicas, World **members)
{
    Error error;
    const WorldConfig config = {
        .size = count, .replicas = replicas, .deadline = deadline, .deadline_option = "--deadline", .link = network};
    assert_int_equal(transport_open(transport_named("local", false), &config, members, &error), STATUS_OK);
}

/* Runs `body` on `count` threads, one per member of `replicas` replicas, then closes the world. Returns whether each
   body has returned true. `meanwhile` is called after the threads have started; it may be NULL. */
static bool run_replicas(Rank *ranks, int count, double deadline, int replicas, bool (*body)(Rank *),
                         void (*meanwhile)(Rank *))
{
    World *members[count];
    pthread_t threads[count];
    open_world(count, deadline, replicas, members);
    for (int rank = 0; rank < count; rank++) {
        ranks[rank].world = members[rank];
        ranks[rank].rank = rank;
        ranks[rank].ranks = count;
        ranks[rank].body = body;
        assert_int_equal(pthread_create(&threads[rank], NULL, run_rank, &ranks[rank]), 0);
    }
    if (meanwhile)
        meanwhile(ranks);
    bool good = true;
    for (int rank = 0; rank < count; rank++) {
        pthread_join(threads[rank], NULL);
        good &= ranks[rank].good;
    }
    for (int rank = 0; rank < count; rank++) {
        ranks[rank].everybody->run->close(ranks[rank].everybody);
        members[rank]->run->close(members[rank]);
    }
    return good;
}

static void run_ranks(Rank *ranks, int count, double deadline, bool (*body)(Rank *), void (*meanwhile)(Rank *))
{
    assert_true(run_replicas(ranks, count, deadline, 1, body, meanwhile));
}

/* Runs bodies in which some ranks wait until the deadline, while others must do their part before it. If a body fails,
   as on a machine that is too slow, all run again with a deadline ten times as long. */
static void run_in_time(int count, int replicas, bool (*body)(Rank *))
{
    bool good = false;
    for (short_deadline = 0.05; !good && short_deadline < 60; short_deadline *= 10) {
        Rank ranks[4] = {0};
        good = run_replicas(ranks, count, short_deadline, replicas, body, NULL);
    }
    assert_true(good);
}

static const int counts[] = {2, 3, 8};
enum { COUNTS = sizeof counts / sizeof *counts };

static bool exchange_body(Rank *rank)
{
    return exchange_at_random(rank->everybody, rank->rank, rank->ranks, rank->seed, rank->blocks);
}

static int compare_pointers(const void *left, const void *right)
{
    const uintptr_t a = *(const uintptr_t *)left, b = *(const uintptr_t *)right;
    return (a > b) - (a < b);
}

TEST(messages_arrive_whole_and_blocks_are_kept)
{
    for (int i = 0; i < COUNTS; i++)
        for (uint64_t seed = 1; seed <= 3; seed++) {
            const int count = counts[i];
            Rank *ranks = calloc((size_t)count, sizeof *ranks);
            uintptr_t before[count * IN_FLIGHT], after[count * IN_FLIGHT];
            for (int block = 0; block < count * IN_FLIGHT; block++) {
                void *memory = malloc(BLOCK_WORDS * sizeof(uint64_t));
                assert_non_null(memory);
                ranks[block / IN_FLIGHT].seed = seed;
                ranks[block / IN_FLIGHT].blocks[block % IN_FLIGHT] = memory;
                before[block] = (uintptr_t)memory;
            }
            run_ranks(ranks, count, 60, exchange_body, NULL);
            for (int block = 0; block < count * IN_FLIGHT; block++)
                after[block] = (uintptr_t)ranks[block / IN_FLIGHT].blocks[block % IN_FLIGHT];
            assert_memory_not_equal(before, after, sizeof before); /* blocks are exchanged, not copied */
            qsort(before, (size_t)count * IN_FLIGHT, sizeof *before, compare_pointers);
            qsort(after, (size_t)count * IN_FLIGHT, sizeof *after, compare_pointers);
            assert_memory_equal(before, after, sizeof before);
            for (int block = 0; block < count * IN_FLIGHT; block++)
                free((void *)after[block]);
            free(ranks);
        }
}

static bool sums_body(Rank *rank)
{
    return sum_in_turn(rank->everybody, rank->rank, rank->ranks) &&
           sum_at_once(rank->everybody, rank->rank, rank->ranks);
}

/* Rank 0 waits for a message that rank 1 sends only after their common sum is done. So rank 0 must help to add up the
   sum while it waits. */
static bool waiting_body(Rank *self)
{
    const int rank = self->rank, members[] = {0, 1};
    Error error;
    TestSum sum;
    uint64_t word = 0;
    void *block = &word;
    Message message = {.block = &block, .bytes = sizeof word, .peer = 1 - rank, .is_send = rank == 1};
    EXPECT(connect_sum(self->world, rank, members, 2, 1, &sum));
    EXPECT(post_sum(&sum, rank, most_elements, false, 1));
    LocalShared *shared = ((LocalCommunicator *)sum.communicator)->shared;
    const int64_t end = clock_nanoseconds() + 20000000000;
    while (rank == 1 && (atomic_load(&shared->ready) == 0 || atomic_load(&shared->finished) < shared->units))
        EXPECT(clock_nanoseconds() < end);
    EXPECT_GOOD(self->everybody->run->post(self->everybody, &message, &error));
    EXPECT_GOOD(self->everybody->run->wait(self->everybody, &message, &error));
    EXPECT(memcmp(sum.buffer, sum.expected, most_elements * sizeof(float)) == 0);
    EXPECT(wait_for_sum(&sum, rank));
    disconnect_sum(&sum);
    return true;
}

TEST(a_member_that_waits_adds_up)
{
    for (int i = 0; i < 10; i++) {
        Rank ranks[2] = {0};
        run_ranks(ranks, 2, 60, waiting_body, NULL);
    }
}

TEST(sums_give_the_same_bits)
{
    for (int i = 0; i < COUNTS; i++) {
        Rank ranks[8] = {0};
        run_ranks(ranks, counts[i], 60, sums_body, NULL);
    }
    Rank alone = {0};
    run_ranks(&alone, 1, 60, sums_body, NULL);
}

static bool pieces_body(Rank *rank)
{
    return exchange_pieces(rank->everybody, rank->rank, rank->ranks) && post_too_many(rank->everybody, rank->rank);
}

TEST(pieces_of_all_to_alls_arrive)
{
    for (int i = 0; i < COUNTS; i++) {
        Rank ranks[8] = {0};
        run_ranks(ranks, counts[i], 60, pieces_body, NULL);
    }
    Rank alone = {0};
    run_ranks(&alone, 1, 60, pieces_body, NULL);
}

static bool slow_body(Rank *rank) { return transfers_take_their_time(rank->everybody, rank->rank, rank->ranks); }

static bool all_body(Rank *rank) { return sums_body(rank) && pieces_body(rank); }

TEST(a_network_slows_transfers_down)
{
    for (int i = 0; i < COUNTS; i++) {
        Rank ranks[8] = {0};
        network = slow_link;
        run_ranks(ranks, counts[i], 60, slow_body, NULL);
        network = fast_link;
        run_ranks(ranks, counts[i], 60, all_body, NULL);
    }
    network = (LinkModel){0};
}

/* Rank 0 sends two bytes to rank 1, which expects one. */
static bool uneven_body(Rank *self)
{
    static const size_t begins[2][2][3] = {{{0, 0, 2}, {0, 0, 0}}, {{0, 0, 0}, {0, 1, 1}}};
    static char send[2], receive[2];
    const int rank = self->rank, members[] = {0, 1};
    Error error;
    Communicator *communicator;
    AllToAll uneven = {send, receive, begins[rank][0], begins[rank][1], 0, 0};
    EXPECT(connect_all_to_all(self->world, rank, members, 2, 1, &communicator));
    EXPECT_GOOD(communicator->run->all_to_all_post(communicator, &uneven, &error));
    const Status status = communicator->run->all_to_all_wait(communicator, &uneven, &error);
    if (status == STATUS_OK || !strstr(error.text, "--deadline"))
        EXPECT(strcmp(error.text, "rank 0 sends 2 bytes to rank 1, which expects 1") == 0);
    communicator->run->close(communicator);
    return status != STATUS_OK;
}

TEST(pieces_of_different_sizes_are_named) { run_in_time(2, 1, uneven_body); }

/* All three members post. Rank 0 claims the piece to rank 1 and finds that it has the wrong size, so this piece is
   never moved. Rank 1 then waits for rank 0, and not for rank 2. */
static bool stuck_body(Rank *self)
{
    static const size_t begins[3][2][4] = {{{0, 0, 2, 2}}, {{0}, {0, 1, 1, 1}}, {{0}}};
    static char send[2], receive[2];
    const int rank = self->rank, members[] = {0, 1, 2};
    Error error;
    Communicator *communicator;
    AllToAll uneven = {send, receive, begins[rank][0], begins[rank][1], 0, 0};
    EXPECT(connect_all_to_all(self->world, rank, members, 3, 1, &communicator));
    EXPECT_GOOD(communicator->run->all_to_all_post(communicator, &uneven, &error));
    /* the index of the state of the piece from rank 0 to rank 1 in all-to-all 1 */
    enum { PIECE = (1 * 3 + 0) * 3 + 1 };
    _Atomic uint64_t *piece = &((LocalCommunicator *)communicator)->shared->states[PIECE];
    const int64_t end = clock_nanoseconds() + 20000000000;
    while (rank == 1 && atomic_load(piece) == 0)
        EXPECT(clock_nanoseconds() < end);
    const Status status = communicator->run->all_to_all_wait(communicator, &uneven, &error);
    communicator->run->close(communicator);
    EXPECT(rank != 1 || is_no_answer(&error, "rank 0"));
    EXPECT(status == (rank == 2 ? STATUS_OK : STATUS_RUN_FAILED));
    return true;
}

TEST(a_deadline_names_who_holds_a_piece) { run_in_time(3, 1, stuck_body); }

TEST(the_order_of_a_sum_shows)
{
    float values[3][100];
    int differences = 0;
    for (uint64_t i = 0; i < 3; i++)
        fill(values[i], false, 100, i);
    for (int i = 0; i < 100; i++)
        differences += values[0][i] + values[1][i] + values[2][i] != values[2][i] + values[1][i] + values[0][i];
    assert_true(differences > 5);
}

/* Rank 0 waits for a message that rank 1 never sends; the other ranks leave. */
static bool vain_body(Rank *self)
{
    if (self->rank != 0)
        return true;
    const int rank = self->rank;
    Error error;
    uint64_t words[4] = {0};
    void *block = words;
    Message message = {.block = &block, .bytes = sizeof words, .peer = 1};
    EXPECT_GOOD(self->everybody->run->post(self->everybody, &message, &error));
    EXPECT(self->everybody->run->wait(self->everybody, &message, &error) == STATUS_RUN_FAILED);
    EXPECT(is_no_answer(&error, "rank 1"));
    return true;
}

/* No rank receives the message, so the wait for the send ends only at the deadline: a transfer is a rendezvous. */
static bool unreceived_body(Rank *self)
{
    if (self->rank != 0)
        return true;
    const int rank = self->rank;
    Error error;
    int word = 0;
    void *block = &word;
    Message message = {.block = &block, .bytes = sizeof word, .peer = 1, .is_send = true};
    EXPECT_GOOD(self->everybody->run->post(self->everybody, &message, &error));
    EXPECT(self->everybody->run->wait(self->everybody, &message, &error) == STATUS_RUN_FAILED);
    EXPECT(is_no_answer(&error, "rank 1"));
    return true;
}

/* Rank 2 does not take part in the gather. */
static bool missing_body(Rank *self)
{
    const int rank = self->rank;
    Error error;
    int all[3];
    if (rank == 2)
        return true;
    EXPECT(self->world->run->gather(self->world, &rank, sizeof rank, all, &error) == STATUS_RUN_FAILED);
    EXPECT(is_no_answer(&error, "rank 2"));
    return true;
}

/* Rank 2 does not post its sum. */
static bool missing_sum_body(Rank *self)
{
    const int rank = self->rank, members[] = {0, 1, 2};
    Error error;
    TestSum sum;
    if (rank == 2)
        return true;
    EXPECT(connect_sum(self->world, rank, members, 3, 1, &sum));
    EXPECT(post_sum(&sum, rank, 100, false, 1));
    const Status status = sum.communicator->run->sum_wait(sum.communicator, &error);
    disconnect_sum(&sum);
    EXPECT(status == STATUS_RUN_FAILED && is_no_answer(&error, "rank 2"));
    return true;
}

static TestAllToAll of_missing[2]; /* not on the stack: after a failure other members may still use this memory */

/* Rank 2 does not post its all-to-all. */
static bool missing_pieces_body(Rank *self)
{
    const int rank = self->rank, members[] = {0, 1, 2};
    Error error;
    Communicator *communicator;
    TestAllToAll *one = &of_missing[rank];
    if (rank == 2)
        return true;
    EXPECT(connect_all_to_all(self->world, rank, members, 3, 1, &communicator));
    free_all_to_all(one); /* of the last try */
    EXPECT(make_all_to_all(one, rank, 3) && post_all_to_all(communicator, rank, one, 0));
    const Status status = communicator->run->all_to_all_wait(communicator, &one->posted, &error);
    communicator->run->close(communicator);
    EXPECT(status == STATUS_RUN_FAILED && is_no_answer(&error, "rank 2"));
    return true;
}

TEST(a_deadline_names_who_is_missing)
{
    run_in_time(3, 1, vain_body);
    run_in_time(3, 1, unreceived_body);
    run_in_time(3, 1, missing_body);
    run_in_time(3, 1, missing_sum_body);
    run_in_time(3, 1, missing_pieces_body);
    for (int i = 0; i < 2; i++)
        free_all_to_all(&of_missing[i]);
}

/* Two replicas of two ranks, each with its own communicator: peers are numbered within the communicator, and the text
   of an error names the rank and its replica. */
static bool replica_body(Rank *self)
{
    const int rank = self->rank, members[] = {rank / 2 * 2, rank / 2 * 2 + 1};
    const CommunicatorConfig config = {.members = members, .count = 2, .number = 1, .messages_in_flight = 1};
    Error error;
    Communicator *replica;
    uint64_t word = (uint64_t)rank;
    void *block = &word;
    Message message = {.block = &block, .bytes = sizeof word, .peer = 1 - rank % 2, .is_send = rank % 2};
    EXPECT_GOOD(self->world->connect(self->world, &config, &replica, &error));
    EXPECT(replica->self == rank % 2 && replica->count == 2);
    EXPECT_GOOD(replica->run->post(replica, &message, &error));
    Status status = replica->run->wait(replica, &message, &error);
    const uint64_t got = *(uint64_t *)block;
    if (status == STATUS_OK && rank == 2) {
        EXPECT_GOOD(replica->run->post(replica, &message, &error));
        status = replica->run->wait(replica, &message, &error);
    }
    replica->run->close(replica);
    EXPECT(status == (rank == 2 ? STATUS_RUN_FAILED : STATUS_OK));
    EXPECT(rank != 2 || is_no_answer(&error, "rank 1 of replica 1"));
    EXPECT(got == (uint64_t)(rank % 2 ? rank - 1 : rank + 1));
    return true;
}

TEST(members_have_the_names_that_the_caller_gives) { run_in_time(4, 2, replica_body); }

static bool abort_body(Rank *rank)
{
    if (rank->rank == 1) {
        sleep_milliseconds(20); /* so that some of the other threads already wait */
        world_abort(rank->world, abort_reason);
        world_abort(rank->world, "a later reason");
    }
    return be_aborted(rank->everybody, rank->rank, rank->ranks);
}

static bool aborted_body(Rank *rank) { return be_aborted(rank->everybody, rank->rank, rank->ranks); }

static void abort_for_rank_1(Rank *ranks)
{
    sleep_milliseconds(20);
    world_abort(ranks[1].world, abort_reason);
}

static bool meet_without_end(Rank *self)
{
    const int rank = self->rank;
    Error error;
    int all[8];
    while (self->world->run->gather(self->world, &rank, sizeof rank, all, &error) == STATUS_OK)
        EXPECT(all[self->ranks - 1] == self->ranks - 1);
    EXPECT(strcmp(error.text, abort_message) == 0);
    return true;
}

TEST(an_abort_reaches_every_rank)
{
    Rank ranks[8] = {0};
    for (int i = 0; i < COUNTS; i++) {
        run_ranks(ranks, counts[i], 0, abort_body, NULL);
        run_ranks(ranks, counts[i], 60, aborted_body, abort_for_rank_1);
        run_ranks(ranks, counts[i], 60, meet_without_end, abort_for_rank_1);
    }
}

static void open_connected(int count, Rank *ranks, World **members)
{
    open_world(count, 1, 1, members);
    for (int rank = 0; rank < count; rank++) {
        ranks[rank] = (Rank){.world = members[rank], .rank = rank, .ranks = count};
        assert_true(connect_everybody(&ranks[rank]));
    }
}

static void close_connected(int count, Rank *ranks)
{
    for (int rank = 0; rank < count; rank++) {
        ranks[rank].everybody->run->close(ranks[rank].everybody);
        ranks[rank].world->run->close(ranks[rank].world);
    }
}

TEST(too_many_messages_are_refused)
{
    enum { MOST = 2 * IN_FLIGHT };
    World *members[2];
    Rank ranks[2];
    Error error;
    open_connected(2, ranks, members);
    Message messages[MOST + 1];
    int word = 0;
    void *block = &word;
    for (int i = 0; i <= MOST; i++) {
        messages[i] = (Message){.block = &block, .bytes = sizeof word, .peer = 1, .is_send = true};
        assert_int_equal(ranks[0].everybody->run->post(ranks[0].everybody, &messages[i], &error),
                         i < MOST ? STATUS_OK : STATUS_RUN_FAILED);
    }
    assert_string_equal(error.text, "internal error, rank 0 has more messages in flight than it announced");
    close_connected(2, ranks);
}

TEST(a_thousand_ranks_open)
{
    static World *members[MANY];
    static Rank ranks[MANY];
    Error error;
    open_connected(MANY, ranks, members);
    int words[2] = {1, 2};
    void *blocks[2] = {&words[0], &words[1]};
    for (int rank = 0; rank + 1 < MANY; rank++) {
        Message out = {.block = &blocks[0], .bytes = sizeof(int), .peer = rank + 1, .is_send = true};
        Message in = {.block = &blocks[1], .bytes = sizeof(int), .peer = rank};
        Communicator *from = ranks[rank].everybody, *to = ranks[rank + 1].everybody;
        assert_int_equal(from->run->post(from, &out, &error), STATUS_OK);
        assert_int_equal(to->run->post(to, &in, &error), STATUS_OK);
        assert_int_equal(from->run->wait(from, &out, &error), STATUS_OK);
        assert_int_equal(to->run->wait(to, &in, &error), STATUS_OK);
        assert_int_equal(*(int *)blocks[1], 1 + rank % 2);
    }
    close_connected(MANY, ranks);
}

TEST(transports_are_found_by_what_they_do)
{
    assert_string_equal(transport_for(false, false)->name, "local");
    assert_string_equal(transport_for(false, true)->name, "local");
    assert_string_equal(transport_for(true, false)->name, "mpi");
    assert_string_equal(transport_for(true, true)->name, "nccl");
    for (int processes = 0; processes < 2; processes++) {
        assert_int_equal(transport_named("nccl", processes)->processes, processes);
        assert_true(transport_named("mpi", processes)->processes);
        assert_false(transport_named("local", processes)->processes);
        assert_null(transport_named("tcp", processes));
    }
}

int main(void) { return test_program("local", NULL, NULL); }
