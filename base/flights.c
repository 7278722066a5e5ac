#include "base/flights.h"

#include "base/clock.h"

static int64_t smaller(int64_t one, int64_t other) { return one < other ? one : other; }
static int64_t larger(int64_t one, int64_t other) { return one > other ? one : other; }

static bool is_noted(const Flights *flights, size_t number) { return flights && number < flights->room; }

size_t flights_post(Flights *flights, const Flight *flight)
{
    if (!flights || flights->count == flights->room)
        return flights ? flights->room : 0;
    flights->entries[flights->count] = *flight;
    flights->entries[flights->count].posted = clock_nanoseconds();
    return flights->count++;
}

void flights_release(Flights *flights, size_t number)
{
    if (is_noted(flights, number))
        flights->entries[number].released = clock_nanoseconds();
}

void flights_await(Flights *flights, size_t number)
{
    if (is_noted(flights, number))
        flights->entries[number].awaited = clock_nanoseconds();
}

void flights_end(Flights *flights, size_t number, int64_t arrival)
{
    const int64_t now = clock_nanoseconds();
    if (is_noted(flights, number))
        flights->entries[number].landed =
            arrival ? larger(smaller(arrival, now), flights->entries[number].posted) : now;
}

int64_t flight_waited(const Flight *flight)
{
    return smaller(flight->released, flight->landed) - flight->posted + larger(flight->landed - flight->awaited, 0);
}

FlightTimes flights_times(const Flights *flights)
{
    FlightTimes times = {0, 0};
    int64_t until = 0; /* the latest arrival of the all-to-alls before this one */
    for (size_t i = 0; i < flights->count; i++) {
        const Flight *flight = &flights->entries[i];
        times.in_flight += larger(flight->landed - larger(flight->posted, until), 0);
        times.waited += flight_waited(flight);
        until = larger(until, flight->landed);
    }
    return times;
}
