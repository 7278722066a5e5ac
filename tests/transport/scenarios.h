#ifndef TESTS_TRANSPORT_SCENARIOS_H
#define TESTS_TRANSPORT_SCENARIOS_H

/* What every transport must do, as one rank sees it. The same bodies run on threads (local.c) and on processes (mpi.c),
   where cmocka's assertions cannot be used; they print what is wrong and return false. */

#include "runtime/transport/transport.h"

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

/* --- messages --- */

enum {
    ROUNDS = 300,
    ROUND_MESSAGES = 6, /* most, of the whole round */
    IN_FLIGHT = 24,     /* blocks of a rank, and its messages of one direction */
    BLOCK_WORDS = 3000,
};

typedef struct Flight {
    Message message;
    void *block;
    uint64_t number; /* of the message, in the whole run */
    bool busy;
} Flight;

static inline bool settle(const Transport *transport, Endpoint *endpoint, int rank, Flight *flight)
{
    Error error;
    EXPECT_GOOD(transport->wait(endpoint, &flight->message, &error));
    flight->busy = false;
    uint64_t *words = flight->block;
    const size_t count = flight->message.bytes / sizeof *words;
    for (size_t i = 0; !flight->message.is_send && i < count; i++)
        EXPECT(words[i] == flight->number * BLOCK_WORDS + i);
    memset(words, 0xee, BLOCK_WORDS * sizeof *words); /* it is ours now: nobody may see this */
    return true;
}

static inline bool settle_one_of(const Transport *transport, Endpoint *endpoint, int rank, Flight flights[IN_FLIGHT],
                                 uint64_t *random)
{
    int chosen = random_below(random, IN_FLIGHT);
    while (!flights[chosen].busy)
        chosen = (chosen + 1) % IN_FLIGHT;
    return settle(transport, endpoint, rank, &flights[chosen]);
}

/* Every rank draws the same messages from `seed`, posts its own in that order and waits in an order of its own; the one
   in flights[0] of each rank it lets lie for most of the run. `blocks` are the rank's; it holds as many afterwards. */
static inline bool exchange_at_random(const Transport *transport, Endpoint *endpoint, int rank, int ranks,
                                      uint64_t seed, void *blocks[IN_FLIGHT])
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
            EXPECT(settle_one_of(transport, endpoint, rank, flights, &own));
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
            EXPECT_GOOD((from == rank ? transport->send : transport->receive)(endpoint, &flight->message, &error));
            busy++;
        }
        if (transport->progress)
            EXPECT_GOOD(transport->progress(endpoint, &error));
        for (int waits = random_below(&own, 4); waits > 0 && busy > 1; waits--, busy--) {
            const bool long_lasting = flights[0].busy && round < ROUNDS - 20;
            flights[0].busy &= !long_lasting;
            EXPECT(settle_one_of(transport, endpoint, rank, flights, &own));
            flights[0].busy |= long_lasting;
        }
    }
    for (; busy > 0; busy--)
        EXPECT(settle_one_of(transport, endpoint, rank, flights, &own));
    for (int i = 0; i < IN_FLIGHT; i++)
        blocks[i] = flights[i].block;
    return true;
}

/* --- meetings --- */

/* Of very different sizes, so that the order of a sum shows in its bits. Floats, or doubles that are none. */
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

static inline bool reduce_and_compare(const Transport *transport, Endpoint *endpoint, int rank, const int *members,
                                      int count, size_t elements, bool doubles, uint64_t seed)
{
    Error error;
    const size_t size = doubles ? sizeof(double) : sizeof(float);
    char *buffer = malloc(elements * size + 1), *expected = malloc(elements * size + 1),
         *addend = malloc(elements * size + 1);
    EXPECT(buffer && expected && addend);
    for (int i = 0; i < count; i++) {
        fill(i == 0 ? expected : addend, doubles, elements, seed + (uint64_t)members[i]);
        if (i > 0)
            add_up(expected, addend, doubles, elements);
    }
    fill(buffer, doubles, elements, seed + (uint64_t)rank);
    buffer[elements * size] = 42;
    EXPECT_GOOD(transport->reduce(endpoint, members, count, buffer, elements, size, &error));
    EXPECT(buffer[elements * size] == 42);
    EXPECT(memcmp(buffer, expected, elements * size) == 0);
    free(buffer);
    free(expected);
    free(addend);
    return true;
}

static inline bool meet_and_compare(const Transport *transport, Endpoint *endpoint, int rank, int ranks)
{
    static const size_t sizes[] = {0, 1, 7, 1000, 100003, 1300000};
    Error error;
    int *members = malloc((size_t)ranks * sizeof *members);
    uint32_t *all = malloc((size_t)ranks * 3 * sizeof *all);
    EXPECT(members && all);
    const uint32_t rounds = ranks <= 3 ? 6 : 5; /* the last is there for its size alone */
    for (uint32_t round = 0; round < rounds; round++) {
        const size_t elements = sizes[round];
        const uint32_t mine[3] = {(uint32_t)rank, round, 7 * (uint32_t)rank};
        EXPECT_GOOD(transport->gather(endpoint, mine, sizeof mine, all, &error));
        for (uint32_t from = 0; from < (uint32_t)ranks; from++)
            EXPECT(all[3 * from] == from && all[3 * from + 1] == round && all[3 * from + 2] == 7 * from);

        for (int i = 0; i < ranks; i++)
            members[i] = i;
        EXPECT(reduce_and_compare(transport, endpoint, rank, members, ranks, elements, round % 2, 1000 + round));
        for (int i = 0; i < ranks; i++)
            members[i] = ranks - 1 - i;
        EXPECT(reduce_and_compare(transport, endpoint, rank, members, ranks, elements, round % 2 == 0, 2000 + round));
        /* the two copies of a stage, all pairs at once; both orders of the same pair in turn */
        const int mirror = ranks - 1 - rank;
        for (int order = 0; order < 2 && mirror != rank; order++) {
            members[order] = rank < mirror ? rank : mirror;
            members[1 - order] = rank < mirror ? mirror : rank;
            EXPECT(reduce_and_compare(transport, endpoint, rank, members, 2, elements, order == 1, 3000 + round));
        }
        /* groups that overlap */
        for (int first = 0; first + 2 < ranks; first++)
            if (rank >= first && rank < first + 3) {
                members[0] = first + 1;
                members[1] = first + 2;
                members[2] = first;
                EXPECT(reduce_and_compare(transport, endpoint, rank, members, 3, elements % 5000, round % 2,
                                          4000 + round));
            }
    }
    free(members);
    free(all);
    return true;
}

/* --- failures --- */

/* Rank 0 waits for what rank 1 never sends; the others leave. `deadline_text` is the deadline as the message has it. */
static inline bool wait_in_vain(const Transport *transport, Endpoint *endpoint, int rank, const char *deadline_text)
{
    if (rank != 0)
        return true;
    Error error;
    uint64_t words[4] = {0};
    void *block = words;
    Message message = {.block = &block, .bytes = sizeof words, .peer = 1};
    EXPECT_GOOD(transport->receive(endpoint, &message, &error));
    EXPECT(transport->wait(endpoint, &message, &error) == STATUS_RUN_FAILED);
    char expected[100];
    snprintf(expected, sizeof expected, "no answer from rank 1 within %s s (--deadline)", deadline_text);
    if (strcmp(error.text, expected) != 0)
        fprintf(stderr, "rank %d: \"%s\" instead of \"%s\"\n", rank, error.text, expected);
    return strcmp(error.text, expected) == 0;
}

static const char abort_reason[] = "the disk is on fire";
static const char abort_message[] = "rank 1 ended the run: the disk is on fire";

/* Waits for a message of rank 1, which sends none but aborts, and then tries again in other ways. */
static inline bool be_aborted(const Transport *transport, Endpoint *endpoint, int rank, int ranks)
{
    Error error = {""};
    uint64_t words[2][4] = {0}, mine = 0;
    void *blocks[2] = {words[0], words[1]};
    Message message = {.block = &blocks[0], .bytes = sizeof words[0], .peer = 1};
    EXPECT_GOOD(transport->receive(endpoint, &message, &error));
    EXPECT(transport->wait(endpoint, &message, &error) == STATUS_RUN_FAILED);
    if (strcmp(error.text, abort_message) != 0)
        fprintf(stderr, "rank %d: \"%s\" instead of \"%s\"\n", rank, error.text, abort_message);
    EXPECT(strcmp(error.text, abort_message) == 0);

    Message later = {.block = &blocks[1], .bytes = sizeof words[1], .peer = 1, .is_send = true};
    EXPECT_GOOD(transport->send(endpoint, &later, &error));
    error = (Error){""};
    EXPECT(transport->wait(endpoint, &later, &error) == STATUS_RUN_FAILED);
    EXPECT(strcmp(error.text, abort_message) == 0);

    uint64_t *all = calloc((size_t)ranks, sizeof *all);
    EXPECT(all);
    error = (Error){""};
    EXPECT(transport->gather(endpoint, &mine, sizeof mine, all, &error) == STATUS_RUN_FAILED);
    EXPECT(strcmp(error.text, abort_message) == 0);
    free(all);
    return true;
}

#endif
