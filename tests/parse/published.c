/* The orders equal those of the published generators, at every size that both admit with 1 to 8 ranks and up to 4
   microbatches per rank. For each number of ranks the table has one CRC-32, over the orders as text (--emit=csv,
   without idle cells): for each size, from 1 microbatch on, that with 1 chunk, with 2 and with 3 (if `chunks` is set).

   From PyTorch 2.11.0, torch/distributed/pipelining/schedules.py: pipeline_order of ScheduleLoopedBFS,
   ScheduleInterleaved1F1B, ScheduleInterleavedZeroBubble, ScheduleZBVZeroBubble and ScheduleDualPipeV, and
   _get_pipeline_order of ScheduleGPipe and Schedule1F1B without its REDUCE_GRAD cells (2.15.0 gives the same without
   its WAIT_REDUCE_GRAD cells). From DeepSeek's DualPipe at 3da1bbe: the passes in the order in which step() of DualPipe
   and DualPipeV calls them. For DualPipeV both sources give the same. */

#include "compiler/output/emit.h"
#include "tests/parse/front.h"

#include <zlib.h>

enum { RANKS = 8 };

typedef struct Size {
    int ranks, microbatches;
} Size;

static bool every(Size size)
{
    (void)size;
    return true;
}

/* PyTorch's list of 1F1B can be compared from P-1 microbatches on: with fewer it has passes that do not exist. For the
   last rank it counts microbatches from 1, so that row is left out; with one rank no row is left. PyTorch's own step
   does not run these lists. */
static bool warms_up(Size size) { return size.ranks >= 2 && size.microbatches >= size.ranks - 1; }

/* PyTorch's number of rounds, M/P but at least 1, has to divide the microbatches. */
static bool even_rounds(Size size)
{
    const int rounds = size.microbatches / size.ranks;
    return size.microbatches % (rounds ? rounds : 1) == 0;
}

static bool enough(Size size) { return size.microbatches >= 2 * size.ranks; }
static bool enough_and_even(Size size) { return enough(size) && size.ranks % 2 == 0 && size.microbatches % 2 == 0; }

static const struct Published {
    const char *schedule;
    /* whether the published generator and the schedule admit this size; from 1 to 4P microbatches are tried */
    bool (*admits)(Size size);
    bool chunks;            /* the schedule has the parameter `chunks`; 1, 2 and 3 are tried */
    uint32_t rows_left_out; /* how many of the last ranks are not compared */
    uint32_t crc[RANKS];    /* [i]: for i + 1 ranks; 0: no size is admitted */
} published[] = {
    {"gpipe",
     every,
     false,
     0,
     {0xbe6f7bc6, 0x709517e7, 0xeaadcb15, 0xf8409239, 0x7426a63e, 0xf3a63e3a, 0x13e3ea2d, 0x31fba242}},
    {"1f1b",
     warms_up,
     false,
     1,
     {0x00000000, 0x340dde78, 0xd36fb9de, 0xeb8323af, 0xe6348b76, 0xe286b815, 0xc7d4516d, 0xee59e4a2}},
    {"looped-bfs",
     every,
     true,
     0,
     {0x8bbee831, 0xb00f20f6, 0x72ad4b66, 0xc8469ff8, 0x94104e00, 0xbe8a0b7d, 0x62845e2d, 0xcac03cd9}},
    {"interleaved-1f1b",
     even_rounds,
     true,
     0,
     {0x74407d8b, 0x9a60e585, 0xe0d80c12, 0xaa566d8b, 0x73c3b4b3, 0x662b70e4, 0x5ae8dec6, 0xfab5f481}},
    {"interleaved-zb",
     even_rounds,
     true,
     0,
     {0x3616d9b3, 0x408a6efa, 0x1fd3584f, 0x0f357520, 0x1f017942, 0xe9ea85ff, 0x5d9fcc1a, 0xcb5fa031}},
    {"zb-v",
     every,
     false,
     0,
     {0x380ce64e, 0xafd1312d, 0xc2034bb6, 0xb8805b3e, 0x1fc5638e, 0xa01fc277, 0xc150617e, 0xd3d047f9}},
    {"dualpipev",
     enough,
     false,
     0,
     {0x98b669e2, 0x207f72fc, 0x8264b08e, 0xc83eaf25, 0x6371ffb0, 0xd666e36b, 0x8e295116, 0x9cbef629}},
    {"dualpipe",
     enough_and_even,
     false,
     0,
     {0x00000000, 0x4e0fd6a7, 0x00000000, 0x3955b7de, 0x00000000, 0x6d72141a, 0x00000000, 0x3c0b3807}},
};

static uint32_t add_order(uint32_t crc, const struct Published *of, Size size, int chunks)
{
    char path[64], *text = NULL;
    size_t length;
    snprintf(path, sizeof path, "schedules/%s.dps", of->schedule);
    Parameters parameters = {0};
    Arena arena = {0};
    parameters_set_ranks(&parameters, size.ranks);
    parameters_set_microbatches(&parameters, size.microbatches);
    if (of->chunks)
        parameters_set(&parameters, &arena, "chunks", chunks);
    Front front;
    front_run_file(&front, path, &parameters);
    if (!front.good)
        fail_msg("%s", front.report);
    front.schedule.ranks -= of->rows_left_out;
    FILE *stream = open_memstream(&text, &length);
    emit_csv(&front.schedule, false, stream);
    fclose(stream);
    crc = (uint32_t)crc32(crc, (const unsigned char *)text, (unsigned)length);
    free(text);
    front_close(&front);
    arena_free(&arena);
    return crc;
}

TEST(orders_are_the_published_ones)
{
    for (size_t i = 0; i < sizeof published / sizeof *published; i++)
        for (int ranks = 1; ranks <= RANKS; ranks++) {
            uint32_t crc = 0;
            for (int microbatches = 1; microbatches <= 4 * ranks; microbatches++)
                for (int chunks = 1; chunks <= (published[i].chunks ? 3 : 1); chunks++)
                    if (published[i].admits((Size){ranks, microbatches}))
                        crc = add_order(crc, &published[i], (Size){ranks, microbatches}, chunks);
            if (crc != published[i].crc[ranks - 1])
                fail_msg("%s, %d ranks: 0x%08x, published 0x%08x", published[i].schedule, ranks, crc,
                         published[i].crc[ranks - 1]);
        }
}

int main(void) { return test_program("published", NULL, NULL); }
