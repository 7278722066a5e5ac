/* The order of a product's tiles: each tile comes once, and the tiles that run at the same time read at most 1.1 times
   as much memory as with the best height of bands. This is what the L2 cache must load from memory if it keeps
   everything while a wave runs. */

#include "runtime/cuda/kernels/kernels.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>

enum { H200 = 132 }; /* multiprocessors */

typedef struct Raster {
    unsigned m, n, k, tile_m, tile_n, band, blocks;
} Raster;

/* Bytes of bfloat16 operands that all waves read. A wave has `blocks` tiles, and reads each row and each column of
   these tiles once. */
static double wave_bytes(const Raster *r)
{
    const unsigned tiles = tiles_of(r->m, r->tile_m) * tiles_of(r->n, r->tile_n);
    unsigned *row_wave = calloc(tiles_of(r->m, r->tile_m), sizeof *row_wave);
    unsigned *column_wave = calloc(tiles_of(r->n, r->tile_n), sizeof *column_wave);
    double bytes = 0;
    for (unsigned tile = 0; tile < tiles; tile++) {
        const ProductTile at = product_tile(r->m, r->n, r->tile_m, r->tile_n, r->band, tile);
        const unsigned wave = tile / r->blocks + 1;
        unsigned *row = &row_wave[at.row / r->tile_m], *column = &column_wave[at.column / r->tile_n];
        bytes += 2.0 * r->k * ((*row != wave ? r->tile_m : 0) + (*column != wave ? r->tile_n : 0));
        *row = *column = wave;
    }
    free(row_wave);
    free(column_wave);
    return bytes;
}

static double band_bytes(Raster r, unsigned band)
{
    r.band = band;
    return wave_bytes(&r);
}

/* A square product, and the products of a GPT with hidden 4096 and sequences of 4096: attention's projections and the
   MLP's, forward and for weights. The last two products are smaller. */
static const unsigned shapes[][3] = {{8192, 8192, 8192},  {4096, 12288, 4096}, {4096, 4096, 4096}, {4096, 16384, 4096},
                                     {4096, 4096, 16384}, {16384, 4096, 4096}, {2560, 8192, 2048}, {1024, 4096, 1024}};

static void test_every_tile_once(void **state)
{
    (void)state;
    for (unsigned down = 1; down < 20; down++)
        for (unsigned across = 1; across < 12; across++)
            for (unsigned blocks = 1; blocks < 200; blocks = blocks * 3 + 1) {
                unsigned char seen[20][12] = {{0}};
                const unsigned band = product_band(down * 128 - 7, 128, 256, blocks);
                assert_in_range(band, 1, down);
                for (unsigned tile = 0; tile < down * across; tile++) {
                    const ProductTile at = product_tile(down * 128 - 7, across * 256 - 1, 128, 256, band, tile);
                    assert_true(at.row / 128 < down && at.column / 256 < across &&
                                !seen[at.row / 128][at.column / 256]);
                    seen[at.row / 128][at.column / 256] = 1;
                }
            }
}

static void test_few_bytes(void **state)
{
    (void)state;
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        Raster r = {shapes[s][0], shapes[s][1], shapes[s][2], HOPPER_TILE_M, HOPPER_TILE_N, 0, H200};
        r.band = product_band(r.m, r.tile_m, r.tile_n, r.blocks);
        const double bytes = wave_bytes(&r);
        double least = bytes;
        unsigned best = r.band;
        for (unsigned band = 1; band <= tiles_of(r.m, r.tile_m); band++)
            if (band_bytes(r, band) < least)
                least = band_bytes(r, best = band);
        printf("%u x %u x %u: bands of %u, %.0f MB; of 8, %.0f MB; of %u, %.0f MB\n", r.m, r.n, r.k, r.band,
               bytes * 1e-6, band_bytes(r, 8) * 1e-6, best, least * 1e-6);
        if (bytes > 1.1 * least)
            fail_msg("bands of %u tiles read %.0f MB, of %u %.0f MB", r.band, bytes * 1e-6, best, least * 1e-6);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_tile_once), cmocka_unit_test(test_few_bytes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
