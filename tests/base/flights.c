/* The time in which all-to-alls were in flight, and the part of it in which the rank waited for them. */

#include "base/clock.h"
#include "base/flights.h"
#include "program/parts.h"
#include "tests/test.h"

/* An all-to-all whose post takes 1 ns. */
static Flight flight(int64_t posted, int64_t awaited, int64_t landed)
{
    return (Flight){.posted = posted, .released = posted + 1, .awaited = awaited, .landed = landed};
}

static void check(Flight *entries, size_t count, int64_t in_flight, int64_t waited)
{
    const Flights flights = {entries, count, count};
    const FlightTimes times = flights_times(&flights);
    assert_int_equal(times.in_flight, in_flight);
    assert_int_equal(times.waited, waited);
}

TEST(what_is_not_waited_for_is_hidden)
{
    check(NULL, 0, 0, 0);
    check((Flight[]){flight(100, 101, 150)}, 1, 50, 50); /* awaited at once: nothing is hidden */
    check((Flight[]){flight(100, 140, 150)}, 1, 50, 11);
    check((Flight[]){flight(100, 170, 150)}, 1, 50, 1); /* it has arrived before the wait */
    check((Flight[]){flight(100, 170, 100)}, 1, 0, 0);  /* it has arrived before the post returns */
    check((Flight[]){flight(100, 101, 150), flight(160, 170, 190)}, 2, 80, 71);
}

/* The second all-to-all is posted while the first is in flight. The time in which both are in flight counts once. The
   waits do not overlap, so they are added. */
TEST(time_of_two_counts_once)
{
    check((Flight[]){flight(100, 120, 150), flight(110, 155, 180)}, 2, 80, 1 + 30 + 1 + 25);
    check((Flight[]){flight(100, 160, 180), flight(110, 120, 150)}, 2, 80, 1 + 20 + 1 + 30);
}

TEST(notes_are_in_the_order_of_the_calls)
{
    Flight entries[2];
    Flights flights = {entries, 0, 2};
    const Flight which = {.layer = 7, .component = RECIPE_COMBINE, .pass = RECIPE_B, .half = 1};
    const int64_t begun = clock_nanoseconds();
    for (size_t i = 0; i < 3; i++) {
        const size_t number = flights_post(&flights, &which);
        assert_int_equal(number, i);
        flights_release(&flights, number);
        flights_await(&flights, number);
        flights_end(&flights, number, i ? begun : 0);
    }
    assert_int_equal(flights.count, 2); /* there was no room for the third */
    const Flight *first = &entries[0], *second = &entries[1];
    assert_int_equal(first->layer, 7);
    assert_int_equal(first->component, RECIPE_COMBINE);
    assert_int_equal(first->half, 1);
    assert_true(begun <= first->posted && first->posted <= first->released && first->released <= first->awaited);
    assert_true(first->awaited <= first->landed && first->landed <= second->posted);
    assert_int_equal(second->landed, second->posted); /* it cannot arrive before its post */
    flights_end(NULL, flights_post(NULL, &which), 0);
}

int main(void) { return test_program("flights", NULL, NULL); }
