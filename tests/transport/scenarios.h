#pragma once

/* What the transports `local` and `mpi` must do, as seen by one rank. Most bodies run both on threads (local.c) and in
   processes (mpi.c). cmocka's assertions cannot be used in processes, so the bodies print what is wrong and return
   false. */

#include "base/clock.h"
#include "runtime/transport/transport.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPECT(condition)                                                                          \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: rank %d: not so: %s\n", __FILE__, __LINE__, rank, #condition); \
            return false;                                                                          \
        }                                                                                          \
    } while (0)

#define EXPECT_GOOD(call)                                                                             \
    do {                                                                                              \
        if ((call) != STATUS_OK) {                                                                    \
            fprintf(stderr, "%s:%d: rank %d: %s: %s\n", __FILE__, __LINE__, rank, #call, error.text); \
            return false;                                                                             \
        }                                                                                             \
    } while (0)

static inline uint64_t random_next(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u; /* splitmix64 */
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static inline int random_below(uint64_t *state, int limit) { return (int)(random_next(state) % (uint64_t)limit); }

/* The members of a communicator of all ranks, in the order of the ranks. */
static const int numbers_from_0[64] = {0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15,
                                       16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31,
                                       32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43, 44, 45, 46, 47,
                                       48, 49, 50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61, 62, 63};

/* --- messages --- */

enum {
    ROUNDS = 300,
    ROUND_MESSAGES = 6, /* largest number of messages in a round */
    /* blocks of a rank, one for each message that it may have in flight */
    IN_FLIGHT = 24,
    BLOCK_WORDS = 3000,
};

typedef struct Flight {
    Message message;
    void *block;
    uint64_t number; /* number of the message in the whole run */
    bool busy;
} Flight;

static inline bool settle(Communicator *everybody, int rank, Flight *flight)
{
    Error error;
    EXPECT_GOOD(everybody->run->wait(everybody, &flight->message, &error));
    flight->busy = false;
    uint64_t *words = flight->block;
    const size_t count = flight->message.bytes / sizeof *words;
    for (size_t i = 0; !flight->message.is_send && i < count; i++)
        EXPECT(words[i] == flight->number * BLOCK_WORDS + i);
    /* after the wait the block belongs to this rank again: no other rank may read this content */
    memset(words, 0xee, BLOCK_WORDS * sizeof *words);
    return true;
}

static inline bool settle_one_of(Communicator *everybody, int rank, Flight flights[IN_FLIGHT], uint64_t *random)
{
    int chosen = random_below(random, IN_FLIGHT);
    while (!flights[chosen].busy)
        chosen = (chosen + 1) % IN_FLIGHT;
    return settle(everybody, rank, &flights[chosen]);
}

/* Every rank draws the same messages at random from `seed`, posts those that it sends or receives in that order, and
   waits for them in a random order. The message in flights[0] is in flight for most of the run. `blocks`: the rank's
   blocks. Afterwards they may be other blocks, because transports exchange blocks, but as many. */
static inline bool exchange_at_random(Communicator *everybody, int rank, int ranks, uint64_t seed,
                                      void *blocks[IN_FLIGHT])
{
    Error error;
    Flight flights[IN_FLIGHT] = {0};
    uint64_t shared = seed, own = seed * 31 + (uint64_t)rank, number = 0;
    int busy = 0;
    for (int i = 0; i < IN_FLIGHT; i++)
        flights[i].block = blocks[i];
    for (int round = 0; round < ROUNDS; round++) {
        const int messages = 1 + random_below(&shared, ROUND_MESSAGES);
        for (; busy > IN_FLIGHT - 2 * messages; busy--) {
            const bool long_lasting = flights[0].busy;
            flights[0].busy = false;
            EXPECT(settle_one_of(everybody, rank, flights, &own));
            flights[0].busy = long_lasting;
        }
        for (int i = 0; i < messages; i++, number++) {
            const int from = random_below(&shared, ranks);
            const int to = (from + 1 + random_below(&shared, ranks - 1)) % ranks;
            const size_t words = 1 + (size_t)random_below(&shared, BLOCK_WORDS);
            if (from != rank && to != rank)
                continue;
            Flight *flight = flights;
            while (flight->busy)
                flight++;
            *flight = (Flight){.block = flight->block, .number = number, .busy = true};
            flight->message = (Message){.block = &flight->block, .bytes = words * sizeof(uint64_t)};
            flight->message.is_send = from == rank;
            flight->message.peer = from == rank ? to : from;
            for (size_t word = 0; from == rank && word < words; word++)
                ((uint64_t *)flight->block)[word] = number * BLOCK_WORDS + word;
            EXPECT_GOOD(everybody->run->post(everybody, &flight->message, &error));
            busy++;
        }
        if (everybody->run->progress)
            EXPECT_GOOD(everybody->run->progress(everybody, &error));
        for (int waits = random_below(&own, 4); waits > 0 && busy > 1; waits--, busy--) {
            const bool long_lasting = flights[0].busy && round < ROUNDS - 20;
            flights[0].busy &= !long_lasting;
            EXPECT(settle_one_of(everybody, rank, flights, &own));
            flights[0].busy |= long_lasting;
        }
    }
    for (; busy > 0; busy--)
        EXPECT(settle_one_of(everybody, rank, flights, &own));
    for (int i = 0; i < IN_FLIGHT; i++)
        blocks[i] = flights[i].block;
    return true;
}

/* --- gather and sums --- */

/* The values differ much in size, so the order of a sum shows in its bits. Doubles are not representable as floats. */
static inline void fill(void *values, bool doubles, size_t count, uint64_t seed)
{
    for (size_t i = 0; i < count; i++) {
        const uint64_t bits = random_next(&seed);
        const double scale = (double)(1u << (bits >> 60)) * ((bits & 1) ? 1 : -1);
        const double value = scale * (double)(bits >> 8 & 0xffffff) / 3;
        if (doubles)
            ((double *)values)[i] = value;
        else
            ((float *)values)[i] = (float)value;
    }
}

static inline void add_up(void *sums, const void *addends, bool doubles, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (doubles)
            ((double *)sums)[i] += ((const double *)addends)[i];
        else
            ((float *)sums)[i] += ((const float *)addends)[i];
}

/* A sum on one communicator. post_sum fills `buffer` with the values of this rank, and `expected` with the sum over
   all members. All members call it with the same `seed`. The seed of a member's values: `seed` + its number in the
   world. */
typedef struct TestSum {
    Communicator *communicator;
    int number;
    char *buffer, *expected;
    size_t elements, size;
} TestSum;

static const size_t most_elements = 1300000; /* more elements than a transport sums in one piece */

static inline bool connect_sum(World *world, int rank, const int *members, int count, int number, TestSum *sum)
{
    Error error;
    const CommunicatorConfig config = {.members = members,
                                       .count = count,
                                       .number = number,
                                       .sum_elements = most_elements,
                                       .sum_size = sizeof(double)};
    *sum = (TestSum){.number = number,
                     .buffer = malloc(most_elements * sizeof(double) + 1),
                     .expected = malloc(most_elements * sizeof(double))};
    EXPECT(sum->buffer && sum->expected);
    EXPECT_GOOD(world->connect(world, &config, &sum->communicator, &error));
    return true;
}

static inline void disconnect_sum(TestSum *sum)
{
    if (sum->communicator)
        sum->communicator->run->close(sum->communicator);
    free(sum->buffer);
    free(sum->expected);
}

static inline bool post_sum(TestSum *sum, int rank, size_t elements, bool doubles, uint64_t seed)
{
    Error error;
    Communicator *communicator = sum->communicator;
    sum->elements = elements;
    sum->size = doubles ? sizeof(double) : sizeof(float);
    for (int i = 0; i < communicator->count; i++) {
        fill(i == 0 ? sum->expected : sum->buffer, doubles, elements, seed + (uint64_t)communicator->members[i]);
        if (i > 0)
            add_up(sum->expected, sum->buffer, doubles, elements);
    }
    fill(sum->buffer, doubles, elements, seed + (uint64_t)rank);
    sum->buffer[elements * sum->size] = 42;
    EXPECT_GOOD(communicator->run->sum_post(communicator, sum->buffer, elements, sum->size, &error));
    return true;
}

static inline bool wait_for_sum(TestSum *sum, int rank)
{
    Error error;
    EXPECT_GOOD(sum->communicator->run->sum_wait(sum->communicator, &error));
    EXPECT(sum->buffer[sum->elements * sum->size] == 42);
    EXPECT(memcmp(sum->buffer, sum->expected, sum->elements * sum->size) == 0);
    return true;
}

static inline bool sum_and_compare(TestSum *sum, int rank, size_t elements, bool doubles, uint64_t seed)
{
    return post_sum(sum, rank, elements, doubles, seed) && wait_for_sum(sum, rank);
}

enum { SUMS = 16 };

/* Makes communicators: of all ranks, in both orders; of each rank and the rank that mirrors it (a middle rank has
   none), in both orders, as for two copies of a stage; and of overlapping groups of three ranks. All ranks make them in
   one common order. Returns how many include this rank; 0: a failure. */
static inline int connect_sums(World *world, int rank, int ranks, TestSum sums[SUMS])
{
    int members[64], made = 0, number = 1;
    for (int order = 0; order < 2; order++, number++) {
        for (int i = 0; i < ranks; i++)
            members[i] = order ? ranks - 1 - i : i;
        if (!connect_sum(world, rank, members, ranks, number, &sums[made++]))
            return 0;
    }
    const int mirror = ranks - 1 - rank;
    for (int order = 0; order < 2 && mirror != rank; order++) {
        members[order] = rank < mirror ? rank : mirror;
        members[1 - order] = rank < mirror ? mirror : rank;
        if (!connect_sum(world, rank, members, 2, number + order, &sums[made++]))
            return 0;
    }
    number += 2;
    for (int first = 0; first + 2 < ranks; first++, number++)
        if (rank >= first && rank < first + 3) {
            members[0] = first + 1;
            members[1] = first + 2;
            members[2] = first;
            if (!connect_sum(world, rank, members, 3, number, &sums[made++]))
                return 0;
        }
    return made;
}

static inline bool sum_in_turn(Communicator *everybody, int rank, int ranks)
{
    static const size_t sizes[] = {0, 1, 7, 1000, 100003, 1300000};
    World *world = everybody->world;
    Error error;
    TestSum sums[SUMS] = {0};
    const int count = connect_sums(world, rank, ranks, sums);
    uint32_t *all = malloc((size_t)ranks * 3 * sizeof *all);
    EXPECT(all && count > 0);
    const uint32_t rounds = ranks <= 3 ? 6 : 5; /* the sixth round, of the largest size, only runs with few ranks */
    for (uint32_t round = 0; round < rounds; round++) {
        const uint32_t mine[3] = {(uint32_t)rank, round, 7 * (uint32_t)rank};
        EXPECT_GOOD(world->run->gather(world, mine, sizeof mine, all, &error));
        for (uint32_t from = 0; from < (uint32_t)ranks; from++)
            EXPECT(all[3 * from] == from && all[3 * from + 1] == round && all[3 * from + 2] == 7 * from);
        for (int i = 0; i < count; i++)
            EXPECT(sum_and_compare(&sums[i], rank, sums[i].number <= 4 ? sizes[round] : sizes[round] % 5000,
                                   ((int)round + sums[i].number) % 2, 1000 * round));
    }
    for (int i = 0; i < count; i++)
        disconnect_sum(&sums[i]);
    free(all);
    return true;
}

/* In each round posts messages and sums, and waits for the messages before the sums. Each rank waits for the sums in an
   order of its own. */
static inline bool sum_at_once(Communicator *everybody, int rank, int ranks)
{
    enum { AT_ONCE = 40 };
    Error error;
    TestSum sums[SUMS] = {0};
    uint64_t shared = 5, own = 77 + (uint64_t)rank;
    void *blocks[2] = {malloc(sizeof(uint64_t)), malloc(sizeof(uint64_t))}; /* the ranks exchange their blocks */
    const int count = connect_sums(everybody->world, rank, ranks, sums);
    EXPECT(count > 0 && blocks[0] && blocks[1]);
    for (int round = 0; round < AT_ONCE; round++) {
        const size_t elements = (size_t)random_below(&shared, 60000);
        bool posted[SUMS] = {false};
        Message out = {.block = &blocks[0], .bytes = sizeof(uint64_t), .peer = (rank + 1) % ranks, .is_send = true};
        Message in = {.block = &blocks[1], .bytes = sizeof(uint64_t), .peer = (rank + ranks - 1) % ranks};
        *(uint64_t *)blocks[0] = (uint64_t)rank;
        if (ranks > 1) {
            EXPECT_GOOD(everybody->run->post(everybody, &in, &error));
            EXPECT_GOOD(everybody->run->post(everybody, &out, &error));
        }
        for (int i = 0; i < count; i++) {
            EXPECT(post_sum(&sums[i], rank, elements, round % 2, 100 * (uint64_t)round));
            posted[i] = true;
            if (everybody->run->progress)
                EXPECT_GOOD(everybody->run->progress(everybody, &error));
        }
        if (ranks > 1) {
            EXPECT_GOOD(everybody->run->wait(everybody, &in, &error));
            EXPECT_GOOD(everybody->run->wait(everybody, &out, &error));
            EXPECT(*(uint64_t *)blocks[1] == (uint64_t)in.peer);
        }
        for (int left = count; left > 0; left--) {
            int chosen = random_below(&own, count);
            while (!posted[chosen])
                chosen = (chosen + 1) % count;
            posted[chosen] = false;
            EXPECT(wait_for_sum(&sums[chosen], rank));
        }
    }
    for (int i = 0; i < count; i++)
        disconnect_sum(&sums[i]);
    free(blocks[0]);
    free(blocks[1]);
    return true;
}

/* If a transport needs calls of progress, a sum completes by such calls alone, before the wait. */
static inline bool sum_by_progress(Communicator *everybody, int rank, int ranks)
{
    Error error;
    TestSum sum;
    EXPECT(connect_sum(everybody->world, rank, numbers_from_0, ranks, 100, &sum));
    EXPECT(post_sum(&sum, rank, most_elements, false, 9));
    const int64_t end = clock_nanoseconds() + 20000000000;
    while (memcmp(sum.buffer, sum.expected, most_elements * sizeof(float)) != 0) {
        EXPECT(clock_nanoseconds() < end);
        EXPECT_GOOD(everybody->run->progress(everybody, &error));
    }
    EXPECT(wait_for_sum(&sum, rank));
    disconnect_sum(&sum);
    return true;
}

/* --- all-to-alls --- */

enum {
    ALL_TO_ALLS = 8, /* in flight at once */
    PIECE_WORDS = 1000,
    ALL_TO_ALL_ROUNDS = 40,
};

/* An all-to-all of one member, with its memory, which is used again and again. */
typedef struct TestAllToAll {
    AllToAll posted;
    uint64_t *send, *receive;
    size_t *send_begins, *receive_begins;
    uint64_t number; /* number of the all-to-all in the test */
    bool busy;
} TestAllToAll;

static inline bool make_all_to_all(TestAllToAll *one, int rank, int ranks)
{
    const size_t words = (size_t)ranks * PIECE_WORDS + 1, begins = (size_t)ranks + 1;
    *one = (TestAllToAll){.send = malloc(words * sizeof *one->send), .receive = malloc(words * sizeof *one->receive)};
    one->send_begins = malloc(begins * sizeof *one->send_begins);
    one->receive_begins = malloc(begins * sizeof *one->receive_begins);
    EXPECT(one->send && one->receive && one->send_begins && one->receive_begins);
    one->posted = (AllToAll){one->send, one->receive, one->send_begins, one->receive_begins, 0, 0};
    return true;
}

static inline void free_all_to_all(TestAllToAll *one)
{
    free(one->send);
    free(one->receive);
    free(one->send_begins);
    free(one->receive_begins);
}

/* How many words member `from` sends to member `to` in all-to-all `number`. Five patterns take turns: any numbers;
   everything goes to one member; nothing goes to one member or comes from it; nothing at all; as much as possible. */
static inline size_t piece_words(uint64_t number, int from, int to, int ranks)
{
    const int one = (int)(number / 5 % (uint64_t)ranks);
    uint64_t random = number * 1000003 + (uint64_t)from * 1009 + (uint64_t)to;
    const size_t any = (size_t)random_below(&random, PIECE_WORDS + 1);
    switch (number % 5) {
    case 0: return any;
    case 1: return to == one ? any : 0;
    case 2: return from == one || to == one ? 0 : any;
    case 3: return 0;
    default: return PIECE_WORDS;
    }
}

static inline uint64_t piece_word(uint64_t number, int from, int to, size_t word)
{
    return ((number * 64 + (uint64_t)from) * 64 + (uint64_t)to) * PIECE_WORDS + word;
}

static inline bool post_all_to_all(Communicator *communicator, int rank, TestAllToAll *one, uint64_t number)
{
    Error error;
    const int ranks = communicator->count, self = communicator->self;
    size_t sent = 0, received = 0;
    one->number = number;
    one->busy = true;
    for (int m = 0; m < ranks; m++) {
        const size_t out = piece_words(number, self, m, ranks), in = piece_words(number, m, self, ranks);
        one->send_begins[m] = sent * sizeof *one->send;
        one->receive_begins[m] = received * sizeof *one->receive;
        for (size_t i = 0; i < out; i++)
            one->send[sent + i] = piece_word(number, self, m, i);
        sent += out, received += in;
    }
    one->send_begins[ranks] = sent * sizeof *one->send;
    one->receive_begins[ranks] = received * sizeof *one->receive;
    one->receive[received] = 42;
    EXPECT_GOOD(communicator->run->all_to_all_post(communicator, &one->posted, &error));
    return true;
}

static inline bool wait_for_all_to_all(Communicator *communicator, int rank, TestAllToAll *one)
{
    Error error;
    const int ranks = communicator->count;
    EXPECT_GOOD(communicator->run->all_to_all_wait(communicator, &one->posted, &error));
    one->busy = false;
    for (int m = 0; m < ranks; m++) {
        const uint64_t *piece = one->receive + one->receive_begins[m] / sizeof *one->receive;
        for (size_t i = 0; i < piece_words(one->number, m, communicator->self, ranks); i++)
            EXPECT(piece[i] == piece_word(one->number, m, communicator->self, i));
    }
    EXPECT(one->receive[one->receive_begins[ranks] / sizeof *one->receive] == 42);
    /* after the wait `send` belongs to this member again: no other member may read it now */
    memset(one->send, 0xee, one->send_begins[ranks]);
    return true;
}

static inline bool connect_all_to_all(World *world, int rank, const int *members, int count, int number,
                                      Communicator **made)
{
    Error error;
    const CommunicatorConfig config = {
        .members = members, .count = count, .number = number, .all_to_alls_in_flight = ALL_TO_ALLS};
    EXPECT_GOOD(world->connect(world, &config, made, &error));
    /* for each all-to-all in flight and each member at least one word is counted as planned memory */
    EXPECT((*made)->bytes >= ALL_TO_ALLS * (size_t)count * sizeof(uint64_t));
    return true;
}

static inline bool wait_for_one_of(Communicator *communicator, int rank, TestAllToAll ones[ALL_TO_ALLS],
                                   uint64_t *random)
{
    int chosen = random_below(random, ALL_TO_ALLS);
    while (!ones[chosen].busy)
        chosen = (chosen + 1) % ALL_TO_ALLS;
    return wait_for_all_to_all(communicator, rank, &ones[chosen]);
}

/* Runs many all-to-alls at once, with a sum and a message around the ring. Each member first waits for the message,
   then for the all-to-alls in an order of its own. So an all-to-all must complete even while other members wait for
   something else. */
static inline bool exchange_pieces(Communicator *everybody, int rank, int ranks)
{
    Error error;
    int members[64];
    uint64_t own = 31 + (uint64_t)rank, number = 0;
    Communicator *communicator = NULL;
    TestAllToAll ones[ALL_TO_ALLS];
    TestSum sum;
    void *blocks[2] = {malloc(sizeof(uint64_t)), malloc(sizeof(uint64_t))}; /* the ranks exchange their blocks */
    for (int i = 0; i < ranks; i++)
        members[i] = (i + 1) % ranks; /* a communicator whose members are in another order than the ranks */
    EXPECT(connect_all_to_all(everybody->world, rank, members, ranks, 200, &communicator) && blocks[0] && blocks[1]);
    EXPECT(connect_sum(everybody->world, rank, members, ranks, 201, &sum));
    for (int i = 0; i < ALL_TO_ALLS; i++)
        EXPECT(make_all_to_all(&ones[i], rank, ranks));
    for (int round = 0; round < ALL_TO_ALL_ROUNDS; round++) {
        Message out = {.block = &blocks[0], .bytes = sizeof(uint64_t), .peer = (rank + 1) % ranks, .is_send = true};
        Message in = {.block = &blocks[1], .bytes = sizeof(uint64_t), .peer = (rank + ranks - 1) % ranks};
        EXPECT(post_sum(&sum, rank, 1000, round % 2, 100 * (uint64_t)round));
        for (int i = 0; i < ALL_TO_ALLS; i++, number++)
            if (!ones[i].busy)
                EXPECT(post_all_to_all(communicator, rank, &ones[i], number));
        if (ranks > 1) {
            EXPECT_GOOD(everybody->run->post(everybody, &in, &error));
            EXPECT_GOOD(everybody->run->post(everybody, &out, &error));
            EXPECT_GOOD(everybody->run->wait(everybody, &in, &error));
            EXPECT_GOOD(everybody->run->wait(everybody, &out, &error));
        }
        if (everybody->run->progress)
            EXPECT_GOOD(everybody->run->progress(everybody, &error));
        for (int i = 0; i < ALL_TO_ALLS; i++)
            EXPECT(wait_for_one_of(communicator, rank, ones, &own));
        EXPECT(wait_for_sum(&sum, rank));
    }
    /* this all-to-all stays in flight during the next ones */
    EXPECT(post_all_to_all(communicator, rank, &ones[0], number++));
    for (int i = 1; i < 3 * ALL_TO_ALLS; i++)
        EXPECT(post_all_to_all(communicator, rank, &ones[1], number++) &&
               wait_for_all_to_all(communicator, rank, &ones[1]));
    EXPECT(wait_for_all_to_all(communicator, rank, &ones[0]));
    for (int i = 0; i < ALL_TO_ALLS; i++)
        free_all_to_all(&ones[i]);
    communicator->run->close(communicator);
    disconnect_sum(&sum);
    free(blocks[0]);
    free(blocks[1]);
    return true;
}

/* A communicator refuses more all-to-alls in flight than its configuration announced. `everybody` announced none, so it
   refuses any. */
static inline bool post_too_many(Communicator *everybody, int rank)
{
    static const char text[] = "has more all-to-alls in flight than it announced";
    Error error;
    Communicator *alone;
    TestAllToAll ones[ALL_TO_ALLS + 1];
    EXPECT(connect_all_to_all(everybody->world, rank, &rank, 1, 300, &alone));
    for (int i = 0; i <= ALL_TO_ALLS; i++)
        EXPECT(make_all_to_all(&ones[i], rank, everybody->count));
    for (int i = 0; i < ALL_TO_ALLS; i++)
        EXPECT(post_all_to_all(alone, rank, &ones[i], (uint64_t)i));
    memset(ones[ALL_TO_ALLS].send_begins, 0, 2 * sizeof(size_t));
    memset(ones[ALL_TO_ALLS].receive_begins, 0, 2 * sizeof(size_t));
    EXPECT(alone->run->all_to_all_post(alone, &ones[ALL_TO_ALLS].posted, &error) == STATUS_RUN_FAILED);
    EXPECT(strstr(error.text, text));
    EXPECT(everybody->run->all_to_all_post(everybody, &ones[ALL_TO_ALLS].posted, &error) == STATUS_RUN_FAILED);
    EXPECT(strstr(error.text, text));
    for (int i = 0; i < ALL_TO_ALLS; i++)
        EXPECT(wait_for_all_to_all(alone, rank, &ones[i]));
    for (int i = 0; i <= ALL_TO_ALLS; i++)
        free_all_to_all(&ones[i]);
    alone->run->close(alone);
    return true;
}

/* --- an imitated network --- */

/* 8000 bytes keep a link busy for 4 ms, and every transfer arrives 2 ms after that. */
static const LinkModel slow_link = {.given = true, .latency = 2e-3, .bandwidth = 2e6, .last = INT_MAX};
enum { LINK_BUSY = 4000000, LINK_LATENCY = 2000000, LINK_WORDS = 1000 };
/* A network that is faster than the real transfers. Tests check that everything still arrives. */
static const LinkModel fast_link = {.given = true, .latency = 1e-6, .bandwidth = 1e12, .last = INT_MAX};

/* Rank 0 sends three messages to rank 1 over one link. */
static inline bool messages_take_their_time(Communicator *everybody, int rank)
{
    enum { MESSAGES = 3 };
    Error error;
    Message messages[MESSAGES];
    void *blocks[MESSAGES];
    const int64_t begun = clock_nanoseconds();
    for (int i = 0; i < MESSAGES && rank < 2; i++) {
        EXPECT((blocks[i] = calloc(LINK_WORDS, sizeof(uint64_t))));
        *(uint64_t *)blocks[i] = 77 + (uint64_t)(rank == 0 ? i : 0);
        messages[i] = (Message){
            .block = &blocks[i], .bytes = LINK_WORDS * sizeof(uint64_t), .peer = 1 - rank, .is_send = rank == 0};
        EXPECT_GOOD(everybody->run->post(everybody, &messages[i], &error));
    }
    for (int i = 0; i < MESSAGES && rank < 2; i++) {
        EXPECT_GOOD(everybody->run->wait(everybody, &messages[i], &error));
        EXPECT(rank == 0 || clock_nanoseconds() - begun >= (i + 1) * LINK_BUSY + LINK_LATENCY);
        EXPECT(rank == 0 || *(uint64_t *)blocks[i] == 77 + (uint64_t)i);
    }
    for (int i = 0; i < MESSAGES && rank < 2; i++)
        free(blocks[i]);
    return true;
}

/* Each member sends 8000 bytes to every other one. All pieces that a member sends share one link, so the last of them
   arrives after all the others. */
static inline bool pieces_take_their_time(Communicator *everybody, int rank, int ranks)
{
    enum { ROUNDS_IN_FLIGHT = 2 };
    Error error;
    int64_t ended, all[64], last = 0;
    Communicator *communicator = NULL;
    TestAllToAll ones[ROUNDS_IN_FLIGHT];
    EXPECT(connect_all_to_all(everybody->world, rank, numbers_from_0, ranks, 400, &communicator));
    const int64_t begun = clock_nanoseconds();
    for (int i = 0; i < ROUNDS_IN_FLIGHT; i++) {
        EXPECT(make_all_to_all(&ones[i], rank, ranks));
        EXPECT(post_all_to_all(communicator, rank, &ones[i], 4 + 5 * (uint64_t)i)); /* largest pieces */
    }
    for (int i = 0; i < ROUNDS_IN_FLIGHT; i++) {
        EXPECT(wait_for_all_to_all(communicator, rank, &ones[i]));
        ended = clock_nanoseconds();
        EXPECT_GOOD(everybody->world->run->gather(everybody->world, &ended, sizeof ended, all, &error));
        for (int m = 0; m < ranks; m++)
            last = all[m] > last ? all[m] : last;
        EXPECT(last - begun >= (int64_t)(i + 1) * (ranks - 1) * LINK_BUSY + LINK_LATENCY);
        free_all_to_all(&ones[i]);
    }
    communicator->run->close(communicator);
    return true;
}

/* A sum is two rounds of transfers between all members; each transfer is one slice of the buffer. */
static inline bool sums_take_their_time(Communicator *everybody, int rank, int ranks)
{
    TestSum sum;
    EXPECT(connect_sum(everybody->world, rank, numbers_from_0, ranks, 401, &sum));
    const int64_t begun = clock_nanoseconds();
    EXPECT(sum_and_compare(&sum, rank, (size_t)ranks * LINK_WORDS, true, 3));
    const int64_t slice = LINK_BUSY * 9 / 10; /* slices are whole cache lines, and differ a little in length */
    EXPECT(clock_nanoseconds() - begun >= 2 * (slice + LINK_LATENCY));
    disconnect_sum(&sum);
    return true;
}

/* Runs the three tests of the imitated network above: messages, all-to-alls and sums. The world must have slow_link. */
static inline bool transfers_take_their_time(Communicator *everybody, int rank, int ranks)
{
    return messages_take_their_time(everybody, rank) && pieces_take_their_time(everybody, rank, ranks) &&
           sums_take_their_time(everybody, rank, ranks);
}

/* --- failures --- */

static const char abort_reason[] = "the disk is on fire";
static const char abort_message[] = "rank 1 ended the run: the disk is on fire";

/* Waits for a message from rank 1, which aborts instead. Then waits for a send, and then calls gather. All three must
   fail with abort_message. */
static inline bool be_aborted(Communicator *everybody, int rank, int ranks)
{
    Error error = {""};
    uint64_t words[2][4] = {0}, mine = 0;
    void *blocks[2] = {words[0], words[1]};
    Message message = {.block = &blocks[0], .bytes = sizeof words[0], .peer = 1};
    EXPECT_GOOD(everybody->run->post(everybody, &message, &error));
    EXPECT(everybody->run->wait(everybody, &message, &error) == STATUS_RUN_FAILED);
    if (strcmp(error.text, abort_message) != 0)
        fprintf(stderr, "rank %d: \"%s\" instead of \"%s\"\n", rank, error.text, abort_message);
    EXPECT(strcmp(error.text, abort_message) == 0);

    Message later = {.block = &blocks[1], .bytes = sizeof words[1], .peer = 1, .is_send = true};
    EXPECT_GOOD(everybody->run->post(everybody, &later, &error));
    error = (Error){""};
    EXPECT(everybody->run->wait(everybody, &later, &error) == STATUS_RUN_FAILED);
    EXPECT(strcmp(error.text, abort_message) == 0);

    uint64_t *all = calloc((size_t)ranks, sizeof *all);
    EXPECT(all);
    error = (Error){""};
    EXPECT(everybody->world->run->gather(everybody->world, &mine, sizeof mine, all, &error) == STATUS_RUN_FAILED);
    EXPECT(strcmp(error.text, abort_message) == 0);
    free(all);
    return true;
}
