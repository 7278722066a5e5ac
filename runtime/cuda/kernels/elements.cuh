#ifndef CUDA_KERNELS_ELEMENTS_CUH
#define CUDA_KERNELS_ELEMENTS_CUH

/* Access to float and bfloat16 elements, eight at a time: converted to float when loaded and rounded when stored. */

#include "instructions.cuh"
#include "kernels.h"

/* Defines a kernel in which each block computes one tile; the last arguments are its code. bounds, for
   __launch_bounds__: (TILE_THREADS), or (TILE_THREADS, BLOCKS) with the blocks that must fit on a multiprocessor. */
#define TILE_KERNEL(bounds, name, Parameters, ...)                      \
    KERNEL __launch_bounds__ bounds name(KERNEL_PARAMETER Parameters p) \
    {                                                                   \
        KERNEL_SHARED(shared);                                          \
        const unsigned tile = blockIdx.x;                               \
        (void)shared, (void)tile;                                       \
        __VA_ARGS__;                                                    \
    }

struct Bf16 {
    unsigned short bits;
};

/* X(suffix, T) for each type of elements. The build compiles a source for each type separately (ONLY_...), so that a
   device loads only the types that it uses. */
#if defined ONLY_f32
#define OF_COMPUTE_TYPES(X) X(f32, float)
#elif defined ONLY_bf16
#define OF_COMPUTE_TYPES(X) X(bf16, Bf16)
#else
#define OF_COMPUTE_TYPES(X) X(f32, float) X(bf16, Bf16)
#endif

DEVICE float to_float(float value) { return value; }
DEVICE float to_float(Bf16 value) { return __uint_as_float((unsigned)value.bits << 16); }

template <typename T> struct Elements;

template <> struct Elements<float> {
    DEVICE float of(float value) { return value; }
    DEVICE void load8(const float *from, float (&v)[8])
    {
        const float4 a = *(const float4 *)from, b = *(const float4 *)(from + 4);
        v[0] = a.x, v[1] = a.y, v[2] = a.z, v[3] = a.w, v[4] = b.x, v[5] = b.y, v[6] = b.z, v[7] = b.w;
    }
    DEVICE void store8(float *to, const float (&v)[8])
    {
        *(float4 *)to = make_float4(v[0], v[1], v[2], v[3]);
        *(float4 *)(to + 4) = make_float4(v[4], v[5], v[6], v[7]);
    }
};

template <> struct Elements<Bf16> {
    DEVICE Bf16 of(float value) { return Bf16{(unsigned short)(pack_bf16(value, 0) & 0xffff)}; }
    DEVICE void load8(const Bf16 *from, float (&v)[8])
    {
        const uint4 words = *(const uint4 *)from;
        const unsigned w[4] = {words.x, words.y, words.z, words.w};
        UNROLL for (int i = 0; i < 4; i++)
        {
            v[2 * i] = __uint_as_float(w[i] << 16);
            v[2 * i + 1] = __uint_as_float(w[i] & 0xffff0000u);
        }
    }
    DEVICE void store8(Bf16 *to, const float (&v)[8])
    {
        *(uint4 *)to =
            make_uint4(pack_bf16(v[0], v[1]), pack_bf16(v[2], v[3]), pack_bf16(v[4], v[5]), pack_bf16(v[6], v[7]));
    }
};

/* Whether eight elements can be read at once from the start of every row, in an aligned matrix with rows of `length`
   elements. */
DEVICE bool rows_are_aligned(size_t length) { return length % 8 == 0; }

/* Loads elements [at, at + 8) of a row of `length`; zero after its end. `aligned`: rows_are_aligned(length). */
template <typename T> DEVICE void load8(const T *row, size_t at, size_t length, bool aligned, float (&v)[8])
{
    if (aligned && at < length)
        Elements<T>::load8(row + at, v);
    else
        UNROLL for (unsigned i = 0; i < 8; i++) v[i] = !aligned && at + i < length ? to_float(row[at + i]) : 0;
}

/* Calls visit with a constant: whether rows of `length` elements are aligned. A loop that chose at each load would have
   one load in flight at a time. */
template <typename Visit> DEVICE void by_alignment(size_t length, Visit visit)
{
    if (rows_are_aligned(length))
        visit(true);
    else
        visit(false);
}

template <typename T> DEVICE void store8(T *row, size_t at, size_t length, bool aligned, const float (&v)[8])
{
    if (aligned && at < length)
        Elements<T>::store8(row + at, v);
    else
        UNROLL for (unsigned i = 0; i < 8; i++) if (at + i < length) row[at + i] = Elements<T>::of(v[i]);
}

DEVICE unsigned smaller(unsigned a, unsigned b) { return a < b ? a : b; }

DEVICE unsigned lane_of_warp() { return threadIdx.x % 32; }

DEVICE float warp_sum(float value)
{
    UNROLL for (int distance = 16; distance > 0; distance /= 2) value += __shfl_xor_sync(0xffffffffu, value, distance);
    return value;
}

/* The sum of `value` over the threads of the tile; every thread gets it. `scratch`: shared memory, one double per
   warp. */
DEVICE double tile_sum(double value, double *scratch)
{
    UNROLL for (int distance = 16; distance > 0; distance /= 2) value += __shfl_xor_sync(0xffffffffu, value, distance);
    tile_barrier();
    if (lane_of_warp() == 0)
        scratch[threadIdx.x / 32] = value;
    tile_barrier();
    value = 0;
    UNROLL for (int warp = 0; warp < TILE_THREADS / 32; warp++) value += scratch[warp];
    return value;
}

/* The standard normal distribution, for results of type T: exp(-x²/2), and the cumulative distribution function, which
   is given this `bell`. */
template <typename T> struct Normal;

template <> struct Normal<float> {
    DEVICE float bell(float x) { return expf(-0.5f * x * x); }
    DEVICE float integral(float x, float) { return 0.5f * erfcf(-0.70710678118654752f * x); }
};

/* In 15 instructions. The integral below 0 is bell * t * P(t) with t = 1 / (1 + 0.3 |x|) and a polynomial P that was
   fitted for |x| < 13: the relative error is at most 2.4e-4, an eighth of bfloat16's. */
template <> struct Normal<Bf16> {
    DEVICE float bell(float x) { return power_of_two(-0.72134752044448170f * x * x); }
    DEVICE float integral(float x, float bell)
    {
        const float t = inverse_of(1 + 0.3f * fabsf(x));
        const float sum = 0.11820660f + t * (0.13746522f + t * (0.03561172f + t * 0.20883080f)), scale = bell * t;
        return x < 0 ? scale * sum : fmaf(-scale, sum, 1);
    }
};

template <typename T> DEVICE float gelu(float x) { return x * Normal<T>::integral(x, Normal<T>::bell(x)); }

template <typename T> DEVICE float gelu_derivative(float x)
{
    const float bell = Normal<T>::bell(x);
    return Normal<T>::integral(x, bell) + x * 0.39894228040143268f * bell;
}

#endif
