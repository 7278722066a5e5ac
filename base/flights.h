#pragma once

/* The times of the all-to-alls of a step on one rank: how long all-to-alls were in flight, and for how much of that
   time the rank waited for them. In the rest of it the rank computed: this part of the communication was hidden. Times
   are in ns of clock_nanoseconds. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* An all-to-all is in flight from its post until it arrives (AllToAll.arrival). If the time of the arrival is unknown,
   it counts as in flight until the end of its wait. */
typedef struct Flight {
    uint32_t layer;
    uint8_t component;       /* ModelPart: RECIPE_DISPATCH or RECIPE_COMBINE */
    uint8_t pass;            /* RECIPE_F or RECIPE_B */
    uint8_t half;            /* 0 or 1: the half of a merged F&B or F&F that posts it; 0 in single passes */
    bool counts;             /* true: it exchanges numbers of rows; false: the rows themselves */
    int64_t posted;          /* when the post began */
    int64_t released;        /* when the post returned */
    int64_t awaited, landed; /* when the wait began; when the all-to-all arrived, or if unknown, when the wait ended */
} Flight;

/* The all-to-alls of a step in the order of their posts. */
typedef struct Flights {
    Flight *entries; /* [room] */
    size_t count, room;
} Flights;

typedef struct FlightTimes {
    int64_t in_flight; /* time in which at least one all-to-all was in flight */
    int64_t waited;    /* the part of in_flight that the rank spent in posts of all-to-alls and in waits for them */
} FlightTimes;

/* Begins an all-to-all: appends a copy of `flight`, and notes that its post begins now. Returns the number of the
   all-to-all for the three functions below. If there is no room for it, the number is `room`, and they ignore it. In
   these four functions `flights` may be NULL: then they do nothing. */
size_t flights_post(Flights *flights, const Flight *flight);
/* Notes that the post has returned. */
void flights_release(Flights *flights, size_t number);
/* Notes that the wait begins. */
void flights_await(Flights *flights, size_t number);
/* Notes that the wait has ended. `arrival`: when the all-to-all arrived; 0: unknown. */
void flights_end(Flights *flights, size_t number, int64_t arrival);

/* How long the rank was in the post of this all-to-all, or in the wait for it, while it was in flight. */
int64_t flight_waited(const Flight *flight);
/* The times of all all-to-alls together. In `in_flight`, the time in which several are in flight counts once. */
FlightTimes flights_times(const Flights *flights);
