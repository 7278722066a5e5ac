#ifndef BASE_FLIGHTS_H
#define BASE_FLIGHTS_H

/* The times of the all-to-alls of a step on one rank. From these follows for how much of the time in which all-to-alls
   were in flight the rank waited for them. In the rest of that time it computed: that part of the communication was
   hidden. Times are in ns of clock_nanoseconds. */

#include "runtime/base/parts.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* An all-to-all is in flight from its post until it arrives. If the time of the arrival is unknown, it counts as in
   flight until the end of its wait. */
typedef struct Flight {
    uint32_t layer;
    uint8_t component; /* ModelPart: RECIPE_DISPATCH or RECIPE_COMBINE */
    uint8_t pass;      /* RECIPE_F or RECIPE_B */
    uint8_t half;      /* of the merged list of an F&B or F&F: 0 or 1; otherwise 0 */
    /* it exchanges only numbers of rows; the all-to-all of the rows themselves is another one */
    bool counts;
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
    int64_t waited;    /* the part of it in posts of all-to-alls and waits for them */
} FlightTimes;

/* Begins an all-to-all: appends a copy of `flight`, and notes that its post begins now. Returns its number. If there is
   no room for it, that is `room`, and the three functions below ignore it. In these four functions `flights` may be
   NULL: then they do nothing. */
size_t flights_post(Flights *flights, const Flight *flight);
/* Notes that the post has returned. */
void flights_release(Flights *flights, size_t number);
/* Notes that the wait begins. */
void flights_await(Flights *flights, size_t number);
/* Notes that the wait has ended. `arrival`: when the all-to-all arrived; 0: unknown. */
void flights_end(Flights *flights, size_t number, int64_t arrival);

/* The time of this all-to-all in its post and its wait, while it was in flight. */
int64_t flight_waited(const Flight *flight);
/* The times of all all-to-alls together. In `in_flight`, the time in which several are in flight counts once. */
FlightTimes flights_times(const Flights *flights);

#endif
