#include "tests/transport/scenarios.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include <cmocka.h>

typedef struct Rank {
    Endpoint *endpoint;
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

static void *run_rank(void *argument)
{
    Rank *rank = argument;
    rank->good = rank->body(rank);
    if (!rank->good)
        transport_local.abort(rank->endpoint, "its test failed"); /* the others need not wait for the deadline */
    return NULL;
}

/* Runs `body` on `count` threads, one a rank; closes the endpoints. `meanwhile` may be NULL. */
static void run_ranks(Rank *ranks, int count, double deadline, bool (*body)(Rank *), void (*meanwhile)(Rank *))
{
    Endpoint *endpoints[count];
    pthread_t threads[count];
    Error error;
    const TransportConfig config = {.ranks = count, .messages_in_flight = IN_FLIGHT, .deadline = deadline};
    assert_int_equal(transport_local.open(&config, endpoints, &error), STATUS_OK);
    for (int rank = 0; rank < count; rank++) {
        ranks[rank].endpoint = endpoints[rank];
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
        transport_local.close(endpoints[rank]);
        good &= ranks[rank].good;
    }
    assert_true(good);
}

static const int counts[] = {2, 3, 8};
enum { COUNTS = sizeof counts / sizeof *counts };

static bool exchange_body(Rank *rank)
{
    return exchange_at_random(&transport_local, rank->endpoint, rank->rank, rank->ranks, rank->seed, rank->blocks);
}

static int compare_pointers(const void *left, const void *right)
{
    const uintptr_t a = *(const uintptr_t *)left, b = *(const uintptr_t *)right;
    return (a > b) - (a < b);
}

static void messages_arrive_whole_and_blocks_are_kept(void **state)
{
    (void)state;
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
            assert_memory_not_equal(before, after, sizeof before); /* exchanged, not copied */
            qsort(before, (size_t)count * IN_FLIGHT, sizeof *before, compare_pointers);
            qsort(after, (size_t)count * IN_FLIGHT, sizeof *after, compare_pointers);
            assert_memory_equal(before, after, sizeof before);
            for (int block = 0; block < count * IN_FLIGHT; block++)
                free((void *)after[block]);
            free(ranks);
        }
}

static bool meeting_body(Rank *rank)
{
    return meet_and_compare(&transport_local, rank->endpoint, rank->rank, rank->ranks);
}

static void meetings_give_the_same_bits(void **state)
{
    (void)state;
    for (int i = 0; i < COUNTS; i++) {
        Rank ranks[8] = {0};
        run_ranks(ranks, counts[i], 60, meeting_body, NULL);
    }
    Rank alone = {0};
    run_ranks(&alone, 1, 60, meeting_body, NULL);
}

static void the_order_of_a_sum_shows(void **state)
{
    (void)state;
    float values[3][100];
    int differences = 0;
    for (uint64_t i = 0; i < 3; i++)
        fill(values[i], false, 100, i);
    for (int i = 0; i < 100; i++)
        differences += values[0][i] + values[1][i] + values[2][i] != values[2][i] + values[1][i] + values[0][i];
    assert_true(differences > 5);
}

static bool vain_body(Rank *rank) { return wait_in_vain(&transport_local, rank->endpoint, rank->rank, "0.05"); }

/* Nobody receives: a send is a rendezvous. */
static bool unreceived_body(Rank *self)
{
    if (self->rank != 0)
        return true;
    const int rank = self->rank;
    Error error;
    int word = 0;
    void *block = &word;
    Message message = {.block = &block, .bytes = sizeof word, .peer = 1, .is_send = true};
    EXPECT_GOOD(transport_local.send(self->endpoint, &message, &error));
    EXPECT(transport_local.wait(self->endpoint, &message, &error) == STATUS_RUN_FAILED);
    EXPECT(strcmp(error.text, "no answer from rank 1 within 0.05 s (--deadline)") == 0);
    return true;
}

/* Rank 2 does not come. */
static bool missing_body(Rank *self)
{
    const int rank = self->rank;
    Error error;
    int all[3];
    if (rank == 2)
        return true;
    EXPECT(transport_local.gather(self->endpoint, &rank, sizeof rank, all, &error) == STATUS_RUN_FAILED);
    EXPECT(strcmp(error.text, "no answer from rank 2 within 0.05 s (--deadline)") == 0);
    return true;
}

static void a_deadline_names_who_is_missing(void **state)
{
    (void)state;
    Rank ranks[3] = {0};
    run_ranks(ranks, 3, 0.05, vain_body, NULL);
    run_ranks(ranks, 3, 0.05, unreceived_body, NULL);
    run_ranks(ranks, 3, 0.05, missing_body, NULL);
}

static bool abort_body(Rank *rank)
{
    if (rank->rank == 1) {
        sleep_milliseconds(20); /* for some of the others to be asleep */
        transport_local.abort(rank->endpoint, abort_reason);
        transport_local.abort(rank->endpoint, "a later reason");
    }
    return be_aborted(&transport_local, rank->endpoint, rank->rank, rank->ranks);
}

static bool aborted_body(Rank *rank) { return be_aborted(&transport_local, rank->endpoint, rank->rank, rank->ranks); }

static void abort_for_rank_1(Rank *ranks)
{
    sleep_milliseconds(20);
    transport_local.abort(ranks[1].endpoint, abort_reason);
}

static bool meet_without_end(Rank *self)
{
    const int rank = self->rank;
    Error error;
    int all[8];
    while (transport_local.gather(self->endpoint, &rank, sizeof rank, all, &error) == STATUS_OK)
        EXPECT(all[self->ranks - 1] == self->ranks - 1);
    EXPECT(strcmp(error.text, abort_message) == 0);
    return true;
}

static void an_abort_reaches_every_rank(void **state)
{
    (void)state;
    Rank ranks[8] = {0};
    for (int i = 0; i < COUNTS; i++) {
        run_ranks(ranks, counts[i], 0, abort_body, NULL);
        run_ranks(ranks, counts[i], 60, aborted_body, abort_for_rank_1);
        run_ranks(ranks, counts[i], 60, meet_without_end, abort_for_rank_1);
    }
}

static void too_many_messages_are_refused(void **state)
{
    (void)state;
    Endpoint *endpoints[2];
    Error error;
    const TransportConfig config = {.ranks = 2, .messages_in_flight = 2, .deadline = 1};
    assert_int_equal(transport_local.open(&config, endpoints, &error), STATUS_OK);
    Message messages[5];
    int word = 0;
    void *block = &word;
    for (int i = 0; i < 5; i++) {
        messages[i] = (Message){.block = &block, .bytes = sizeof word, .peer = 1, .is_send = true};
        assert_int_equal(transport_local.send(endpoints[0], &messages[i], &error),
                         i < 4 ? STATUS_OK : STATUS_RUN_FAILED);
    }
    assert_string_equal(error.text, "rank 0 has more messages in flight than it announced");
    transport_local.close(endpoints[0]);
    transport_local.close(endpoints[1]);
}

static void a_thousand_ranks_open(void **state)
{
    (void)state;
    enum { MANY = 1024 };
    static Endpoint *endpoints[MANY];
    Error error;
    const TransportConfig config = {.ranks = MANY, .messages_in_flight = 64, .deadline = 1};
    assert_int_equal(transport_local.open(&config, endpoints, &error), STATUS_OK);
    int words[2] = {1, 2};
    void *blocks[2] = {&words[0], &words[1]};
    for (int rank = 0; rank + 1 < MANY; rank++) {
        Message out = {.block = &blocks[0], .bytes = sizeof(int), .peer = rank + 1, .is_send = true};
        Message in = {.block = &blocks[1], .bytes = sizeof(int), .peer = rank};
        assert_int_equal(transport_local.send(endpoints[rank], &out, &error), STATUS_OK);
        assert_int_equal(transport_local.receive(endpoints[rank + 1], &in, &error), STATUS_OK);
        assert_int_equal(transport_local.wait(endpoints[rank], &out, &error), STATUS_OK);
        assert_int_equal(transport_local.wait(endpoints[rank + 1], &in, &error), STATUS_OK);
        assert_int_equal(*(int *)blocks[1], 1 + rank % 2);
    }
    for (int rank = 0; rank < MANY; rank++)
        transport_local.close(endpoints[rank]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_arrive_whole_and_blocks_are_kept),
        cmocka_unit_test(meetings_give_the_same_bits),
        cmocka_unit_test(the_order_of_a_sum_shows),
        cmocka_unit_test(a_deadline_names_who_is_missing),
        cmocka_unit_test(an_abort_reaches_every_rank),
        cmocka_unit_test(too_many_messages_are_refused),
        cmocka_unit_test(a_thousand_ranks_open),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
