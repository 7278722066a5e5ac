#pragma once

/* Schedules with a placement and no orders, as the place pass makes them; for tests and benches of the search. */

#include "compiler/schedule/schedule.h"

/* `microbatches` per pipe. Stage s of pipe p is on rank home[p * stages + s]; no rank may be empty. */
static inline void placement_make(Arena *arena, uint32_t ranks, uint32_t pipes, uint32_t stages, uint32_t microbatches,
                                  const uint16_t *home, Schedule *schedule)
{
    *schedule = (Schedule){.name = "search", .ranks = ranks, .microbatches = pipes * microbatches, .pipe_count = pipes};
    schedule->pipes = arena_array(arena, pipes, sizeof *schedule->pipes);
    schedule->chunk_counts = arena_array(arena, ranks, sizeof *schedule->chunk_counts);
    schedule->chunks = arena_array(arena, ranks, sizeof *schedule->chunks);
    schedule->orders = arena_array(arena, ranks, sizeof *schedule->orders);
    for (uint32_t r = 0; r < ranks; r++)
        schedule->chunks[r] = arena_array(arena, pipes * stages, sizeof **schedule->chunks);
    for (uint32_t p = 0; p < pipes; p++) {
        PlacedPipe *pipe = &schedule->pipes[p];
        *pipe = (PlacedPipe){.name = "p",
                             .stages = stages,
                             .microbatches = microbatches,
                             .written = microbatches,
                             .first = p * microbatches,
                             .homes = arena_array(arena, stages, sizeof *pipe->homes)};
        for (uint32_t s = 0; s < stages; s++) {
            const uint16_t rank = home[p * stages + s];
            pipe->homes[s] = (Home){rank, (uint8_t)schedule->chunk_counts[rank]};
            schedule->chunks[rank][schedule->chunk_counts[rank]++] = (PlacedChunk){(uint16_t)p, (uint16_t)s};
        }
    }
}

/* `chunks` per rank; the stages in a loop (0 1 2 0 1 2) or in waves (0 1 2 2 1 0); a second pipe runs in the other
   direction. */
static inline void placement_usual(Arena *arena, uint32_t ranks, uint32_t chunks, bool waves, uint32_t pipes,
                                   uint32_t microbatches, Schedule *schedule)
{
    const uint32_t stages = ranks * chunks;
    uint16_t *home = arena_array(arena, pipes * stages, sizeof *home);
    for (uint32_t p = 0; p < pipes; p++)
        for (uint32_t s = 0; s < stages; s++)
            home[p * stages + s] =
                (uint16_t)(((s / ranks) % 2 && waves) != (p % 2) ? ranks - 1 - s % ranks : s % ranks);
    placement_make(arena, ranks, pipes, stages, microbatches, home, schedule);
}

/* The costs of the zero-bubble paper's models in ms (Qi et al., ICLR 2024, table 9), and its bubble rates (table 5) for
   its schedulers with the memory of 1F1B and with twice that. */
static const struct {
    const char *model;
    uint32_t ranks, microbatches;
    double forward, input, weight, message, published[2];
} published[] = {
    {"1.5B", 8, 24, 18.522, 18.086, 9.337, 0.601, {0.1585, 0.0433}},
    {"6.2B", 8, 24, 29.718, 29.444, 19.927, 0.527, {0.1323, 0.0029}},
    {"14.6B", 16, 48, 11.347, 11.248, 8.132, 0.377, {0.1397, 0.0066}},
    {"28.3B", 32, 96, 10.419, 10.207, 7.715, 0.408, {0.1421, 0.0038}},
};
