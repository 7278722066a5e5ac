/* The instructions of a warp: asynchronous copies of 16 bytes, and products of matrix fragments. Copies run as late as
   possible; their accesses are checked from the time at which they may run. */

#include "tests/gpu/simt_machine.h"

using namespace simt;

void simt_copy_async(void *to, const void *from, unsigned bytes)
{
    if ((std::uintptr_t)to % 16 || (std::uintptr_t)from % 16)
        simt_fail("copies 16 bytes to or from an address that is not a multiple of 16");
    simt_write(to, 16);
    machine.running->copies.push_back({to, from, bytes, machine.running->groups});
}

void simt_copy_async_commit() { machine.running->groups++; }

void simt_copy_async_wait(unsigned groups)
{
    Fiber *me = machine.running;
    std::vector<AsyncCopy> rest;
    for (const AsyncCopy &copy : me->copies)
        if (copy.group + groups < me->groups) {
            simt_write(copy.to, 16);
            std::memset(copy.to, 0, 16);
            if (copy.bytes)
                std::memcpy(copy.to, copy.from, copy.bytes);
        } else {
            rest.push_back(copy);
        }
    me->copies.swap(rest);
}

namespace
{

struct LoadMatrices {
    unsigned *r;
    const char *row;
    bool transposed;
};

unsigned element(const char *row, unsigned column)
{
    std::uint16_t bits;
    std::memcpy(&bits, row + 2 * column, sizeof bits);
    return bits;
}

void finish_load_matrices(void *const *lanes)
{
    for (unsigned matrix = 0; matrix < 4; matrix++) {
        unsigned banks = 0;
        const char *rows[8];
        for (unsigned row = 0; row < 8; row++) {
            rows[row] = ((LoadMatrices *)lanes[matrix * 8 + row])->row;
            banks |= 1u << ((std::uintptr_t)rows[row] / 16 % 8);
            if ((std::uintptr_t)rows[row] % 16)
                simt_fail("ldmatrix reads from an address that is not a multiple of 16");
            simt_read(rows[row], 16);
        }
        machine.bank_conflicts += 8 - (unsigned)__builtin_popcount(banks);
        for (unsigned lane = 0; lane < 32; lane++) {
            const LoadMatrices *own = (LoadMatrices *)lanes[lane];
            const unsigned row = lane / 4, column = lane % 4 * 2;
            own->r[matrix] = own->transposed ? element(rows[column], row) | element(rows[column + 1], row) << 16
                                             : element(rows[row], column) | element(rows[row], column + 1) << 16;
        }
    }
}

struct MultiplyFragments {
    float *c;
    const unsigned *a;
    unsigned b[2];
};

void finish_multiply_fragments(void *const *lanes)
{
    float a[16][16], b[16][8];
    for (unsigned lane = 0; lane < 32; lane++) {
        const MultiplyFragments *own = (MultiplyFragments *)lanes[lane];
        const unsigned group = lane / 4, pair = lane % 4 * 2;
        for (unsigned i = 0; i < 4; i++) {
            a[group + i % 2 * 8][pair + i / 2 * 8] = low(own->a[i]);
            a[group + i % 2 * 8][pair + i / 2 * 8 + 1] = high(own->a[i]);
        }
        for (unsigned i = 0; i < 2; i++) {
            b[pair + i * 8][group] = low(own->b[i]);
            b[pair + i * 8 + 1][group] = high(own->b[i]);
        }
    }
    for (unsigned lane = 0; lane < 32; lane++)
        for (unsigned i = 0; i < 4; i++) {
            const unsigned row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
            float sum = 0;
            for (unsigned k = 0; k < 16; k++)
                sum += a[row][k] * b[k][column];
            ((MultiplyFragments *)lanes[lane])->c[i] += sum;
        }
}

} // namespace

void simt_load_matrices(unsigned *r, const void *row, bool transposed)
{
    LoadMatrices operands{r, (const char *)row, transposed};
    simt_collective(transposed ? "ldmatrix.trans" : "ldmatrix", &operands, finish_load_matrices);
}

void simt_multiply_fragments(float *c, const unsigned *a, unsigned b0, unsigned b1)
{
    MultiplyFragments operands{c, a, {b0, b1}};
    simt_collective("mma", &operands, finish_multiply_fragments);
}
