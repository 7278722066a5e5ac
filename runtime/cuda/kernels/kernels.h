#ifndef CUDA_KERNELS_KERNELS_H
#define CUDA_KERNELS_KERNELS_H

/* The kernels' names, parameters and launches. The host (C11) and the kernels (CUDA C++, compiled without any include
   path) share this header, so it includes nothing.

   Each operation is a set of independent tiles. A plain kernel NAME takes the operation's parameters by value as its
   only argument and computes tile blockIdx.x with TILE_THREADS threads; all its shared memory is dynamic. A kernel for
   elements of both types ("T" below) exists twice, and its name ends in _f32 or _bf16 (KERNELS_OF_COMPUTE_TYPES).
   Weight gradients, moments, statistics and master weights are always float; losses and norms are double.

   Pointers are to device memory and aligned to at least 16 bytes. Rows are dense and of any length; a length that is a
   multiple of 16 bytes is fast. Unless otherwise stated, outputs overlap no inputs. The same inputs give the same bits:
   no sum depends on the order in which blocks run. */

enum { TILE_THREADS = 256 };

#ifdef __cplusplus
#define KERNELS_ALIGNED(bytes) alignas(bytes)
#define KERNELS_ASSERT static_assert
#else
#define KERNELS_ALIGNED(bytes) _Alignas(bytes)
#define KERNELS_ASSERT _Static_assert
#endif

typedef struct Launch {
    /* number of blocks; threads per block; bytes of dynamic shared memory (more than 48 KiB must be enabled first) */
    unsigned grid, block, shared;
    /* number of neighbouring blocks that run together and access each other's shared memory; usually 1 */
    unsigned cluster;
} Launch;

/* X(source file without .cu, name, type of the parameters). Each of these kernels exists as NAME_f32 and NAME_bf16. */
#define KERNELS_OF_COMPUTE_TYPES(X)             \
    X(product, product_forward, Product)        \
    X(product, product_input, Product)          \
    X(product, product_weight, Product)         \
    X(attention, attention_forward, Attention)  \
    X(attention, attention_delta, Attention)    \
    X(attention, attention_backward, Attention) \
    X(layers, norm_forward, Norm)               \
    X(layers, norm_backward_input, Norm)        \
    X(layers, norm_backward_weight, Norm)       \
    X(layers, gelu_forward, Elementwise)        \
    X(layers, gelu_backward, Elementwise)       \
    X(layers, embedding_forward, Embedding)     \
    X(layers, embedding_backward, Embedding)    \
    X(training, cross_entropy, CrossEntropy)    \
    X(training, squared_error, SquaredError)    \
    X(training, accumulate, Elementwise)        \
    X(training, fill, Elementwise)              \
    X(training, to_float, Elementwise)          \
    X(training, from_float, Elementwise)

/* These kernels exist once, under their plain names. */
#define KERNELS_OF_FLOATS(X)         \
    X(training, sum_of_squares, Sum) \
    X(training, finish_sum, Sum)     \
    X(training, adamw, AdamWStep)    \
    X(training, copy_bytes, Copy)

/* These kernels exist for sm_90a and bfloat16 only. hopper_launch and hopper_attention_launch give their launches; see
   HopperProduct and HopperAttention. */
#define KERNELS_OF_HOPPER(X)                             \
    X(hopper, hopper_forward, HopperProduct)             \
    X(hopper, hopper_input, HopperProduct)               \
    X(hopper, hopper_weight, HopperProduct)              \
    X(hopper, hopper_attention_forward, HopperAttention) \
    X(hopper, hopper_attention_backward, HopperAttention)

/* A persistent kernel that computes the tiles of a table of operations; see Fused. It exists as fused_f32 and
   fused_bf16. */
#define KERNELS_OF_TABLES(X) X(fused, fused, Fused)

/* A kernel like `fused`, but its products and attention may use TMA and wgmma; sm_90a only, bfloat16 only. */
#define KERNELS_OF_HOPPER_TABLES(X) X(hopper, fused_hopper, Fused)

#define KERNELS(X)              \
    KERNELS_OF_COMPUTE_TYPES(X) \
    KERNELS_OF_FLOATS(X)        \
    KERNELS_OF_HOPPER(X)        \
    KERNELS_OF_HOPPER_TABLES(X) \
    KERNELS_OF_TABLES(X)

#define KERNEL_NUMBER(file, name, parameters) CUDA_##name,
typedef enum KernelNumber { KERNELS(KERNEL_NUMBER) CUDA_KERNELS } KernelNumber;
#undef KERNEL_NUMBER

/* ---- matrix products ---- */

/* product_forward  c[m, n]  = a[m, k] b[k, n] + bias + residual;  gelu = GELU(c)   y = x w
   product_input    c[m, n]  = a[m, k] b[n, k]^T, times the GELU's derivative at `gelu_input`   dx = dy w^T
   product_weight   c[m, n] += a[k, m]^T b[k, n];  column_sums[n] += sums of b's rows  dw += x^T dy, dbias += sums of dy
   The elements of c are T, in product_weight float. If a pointer is NULL, its term is left out. */
typedef struct Product {
    const void *a, *b;
    void *c;
    const void *bias, *residual; /* forward: T[n], T[m, n]; the residual may be c */
    void *gelu;                  /* forward: T[m, n] */
    const void *gelu_input;      /* input: T[m, n] */
    float *column_sums;          /* weight */
    unsigned m, n, k;
} Product;

/* ---- causal attention ---- */

/* attention_forward   writes y and logsumexp
   attention_delta     computes delta from y and dy; runs before attention_backward
   attention_backward  computes dqkv from the other fields but y
   logsumexp is to the base 2. columns / heads is at most ATTENTION_WIDTH. attention_fit sets `tile`, the number of
   queries (or keys) of a tile, and `stages`, how many blocks of keys (or queries) are in shared memory at once while
   the tile loops over them. */
enum { ATTENTION_WIDTH = 128 };

typedef struct Attention {
    const void *qkv;          /* T[rows, 3 columns] */
    void *y;                  /* T[rows, columns] */
    const void *dy;           /* T[rows, columns] */
    void *dqkv;               /* T[rows, 3 columns] */
    float *logsumexp, *delta; /* [rows, heads] each */
    unsigned rows, columns, sequence, heads;
    unsigned tile, stages;
} Attention;

/* ---- layers ---- */

/* norm_forward          computes y and statistics from x, gain, shift
   norm_backward_input   computes dx from x, statistics, gain, dy; adds the residual unless it
                         is NULL. dx may be the residual
   norm_backward_weight  adds to dgain and dshift */
typedef struct Norm {
    const void *x, *gain, *shift, *dy, *residual; /* T */
    void *y, *dx;                                 /* T */
    float *statistics;                            /* [rows, 2] */
    float *dgain, *dshift;
    unsigned rows, columns;
} Norm;

/* gelu_forward   to = GELU(from)
   gelu_backward  to = other * GELU'(from); to may be other
   accumulate     to += from
   fill           to = value
   to_float       float to = T from
   from_float     T to = float from */
typedef struct Elementwise {
    const void *from, *other;
    void *to;
    float value;
    unsigned long long count;
} Elementwise;

/* embedding_forward   computes y from the tokens and both tables
   embedding_backward  adds to the tables' gradients */
typedef struct Embedding {
    const int *tokens; /* [rows] */
    const void *token_table, *position_table, *dy;
    void *y;
    float *dtoken_table, *dposition_table;
    unsigned rows, columns, sequence;
} Embedding;

/* ---- training ---- */

/* Overwrites the logits with the gradient of scale * the mean loss. Writes the loss of each row to row_losses[rows];
   finish_sum with scale 1 / rows then computes the mean loss. */
typedef struct CrossEntropy {
    void *logits; /* T[rows, columns] */
    const int *targets;
    double *row_losses;
    float scale;
    unsigned rows, columns;
} CrossEntropy;

/* dy = 2 (y - targets) scale / count. Writes partial sums of the squared errors to partial[sum_partials(count)];
   finish_sum with scale 1 / count then computes the loss. */
typedef struct SquaredError {
    const void *y;
    const float *targets;
    void *dy;
    double *partial;
    float scale;
    unsigned long long count;
} SquaredError;

/* sum_of_squares  writes partial sums of the squares of values[count] to partial[sum_partials(count)]
   finish_sum      *result = scale * the sum of partial[count]: one block, in fixed order */
typedef struct Sum {
    const float *values;
    double *partial;
    double *result;
    double scale;
    unsigned long long count;
} Sum;

enum { SUM_CHUNK = 16384 }; /* number of elements in each partial sum but the last, which may have fewer */

/* AdamW (Loshchilov & Hutter, 2019). The host computes what depends only on the step: inverse_root_correction = 1 /
   sqrt(1 - beta2^step), rate_corrected = rate / (1 - beta1^step). A gradient is first multiplied by `clip`, and is zero
   afterwards. */
typedef struct AdamWStep {
    float *parameters, *gradients, *moment1, *moment2;
    void *bf16_copy; /* the new parameters for passes, rounded to bfloat16; NULL if passes read `parameters` */
    float rate, rate_corrected, beta1, beta2, one_minus_beta1, one_minus_beta2, inverse_root_correction, epsilon, decay,
        clip;
    unsigned long long count;
} AdamWStep;

typedef struct Copy {
    const void *from;
    void *to;
    unsigned long long bytes;
} Copy;

/* ---- Hopper: products and attention by TMA and wgmma ---- */

/* The bytes of a CUtensorMap, aligned as CUDA 13 requires. cuTensorMapEncodeTiled fills them in on the host from a
   TensorMapShape. */
typedef struct TensorMap {
    KERNELS_ALIGNED(128) unsigned char bytes[128];
} TensorMap;

/* A persistent launch: hopper_launch has at most one block per multiprocessor. The two blocks of a cluster compute
   tiles that are one below the other, so they need the same part of b, which is read from global memory only once. */
typedef struct HopperProduct {
    TensorMap a, b;
    Product product;
    unsigned columns; /* of a tile: HOPPER_TILE_N, or hopper_columns */
    unsigned band;    /* hopper_band */
} HopperProduct;
KERNELS_ASSERT(sizeof(HopperProduct) == 2 * sizeof(TensorMap) + 128, "the maps side by side, for host and GPU alike");

enum {
    HOPPER_TILE_M = 128,
    HOPPER_TILE_N = 256,
    HOPPER_NARROW_N = 128, /* columns of a tile where wider ones would leave half of the multiprocessors idle */
    HOPPER_TILE_K = 64,
    HOPPER_THREADS = 384,
    /* rows of a (or columns of b) in one part. A stage has one part of a and two of b, of a narrow tile one; in a
       cluster of two each block loads one part of b for both, if there are two */
    HOPPER_PART = 128,
    HOPPER_STAGES = 4,
    HOPPER_STAGE_BYTES = (HOPPER_TILE_M + HOPPER_TILE_N) * HOPPER_TILE_K * 2,
    HOPPER_SUM_COLUMNS = 64,
    HOPPER_SUM_BYTES = HOPPER_TILE_M * HOPPER_SUM_COLUMNS * 4 /* shared memory through which sums are stored */
};

/* hopper_attention_forward and hopper_attention_backward compute the same as attention_forward and attention_backward,
   if hopper_attention_takes returns true. Their launches are persistent: at most one block per multiprocessor. */
typedef struct HopperAttention {
    TensorMap qkv, dy; /* dy: backward */
    Attention attention;
} HopperAttention;
KERNELS_ASSERT(sizeof(HopperAttention) == 2 * sizeof(TensorMap) + 128, "as above");

typedef enum ProductLayout { PRODUCT_FORWARD, PRODUCT_INPUT, PRODUCT_WEIGHT } ProductLayout;

/* The arguments of cuTensorMapEncodeTiled that differ between matrices (operands of products, qkv and dy of
   attention). The others are fixed: bfloat16, rank 2, element strides 1, no interleave, swizzle 128B, promotion to 256
   bytes, zeros out of bounds. */
typedef struct TensorMapShape {
    unsigned long long sizes[2]; /* elements of a row, and number of rows */
    unsigned long long pitch;    /* bytes from one row to the next */
    unsigned box[2];             /* what one load copies: elements of a row, and number of rows */
} TensorMapShape;

/* ---- launches ---- */

#ifdef __CUDACC__
#define KERNELS_BOTH static __forceinline__ __host__ __device__
#else
#define KERNELS_BOTH static inline
#endif

KERNELS_BOTH unsigned tiles_of(unsigned long long count, unsigned tile)
{
    return (unsigned)((count + tile - 1) / tile);
}

enum {
    PRODUCT_TILE = 128,       /* rows, and also columns, of a tile */
    PRODUCT_BAND = 8,         /* rows of tiles in a band, for the kernels that do not know how many blocks run */
    PRODUCT_SUM_COLUMNS = 32, /* columns of a tile that computes column_sums */
    PRODUCT_SHARED = 64 * 1024,
    /* queries or keys of a tile, 16 per warp. If they do not fit in shared memory, a tile has half as many, and half of
       the warps compute */
    ATTENTION_TILE = 128,
    ATTENTION_DELTAS = 128, /* deltas that a block computes, each for a (row, head) */
    NORM_TILE_ROWS = 8,
    NORM_TILE_COLUMNS = 32,
    ELEMENTWISE_TILE = 4096,
    EMBEDDING_TILE_COLUMNS = 256,
    COPY_TILE = 32768 /* bytes */
};

/* Where a tile begins. Tiles are numbered in bands of `band` rows of tiles, column of tiles after column, so that
   blocks that run at the same time share operands in the L2 cache. */
typedef struct ProductTile {
    unsigned row, column;
} ProductTile;

KERNELS_BOTH ProductTile product_tile(unsigned m, unsigned n, unsigned tile_m, unsigned tile_n, unsigned band,
                                      unsigned tile)
{
    const unsigned down = tiles_of(m, tile_m), across = tiles_of(n, tile_n), whole = band * across;
    const unsigned first = tile / whole * band, height = down - first < band ? down - first : band;
    const ProductTile place = {(first + tile % whole % height) * tile_m, tile % whole / height * tile_n};
    return place;
}

/* The height of the bands, in rows of tiles. It is chosen so that `blocks` tiles at once read as little as possible: h
   rows and blocks / h columns of tiles read h tile_m rows of a and (blocks / h) tile_n columns of b. Then it is
   adjusted so that all bands are about equally high. */
KERNELS_BOTH unsigned product_band(unsigned m, unsigned tile_m, unsigned tile_n, unsigned blocks)
{
    const unsigned down = tiles_of(m, tile_m);
    unsigned height = 1;
    while (height * (height + 1) * tile_m < blocks * tile_n)
        height++;
    const unsigned bands = (down + height / 2) / height;
    return bands > 1 ? tiles_of(down, bands) : down;
}

KERNELS_BOTH unsigned product_tiles(unsigned m, unsigned n)
{
    return tiles_of(m, PRODUCT_TILE) * tiles_of(n, PRODUCT_TILE);
}

/* Tiles are numbered: first those of the product, then those that compute column_sums. */
KERNELS_BOTH Launch product_launch(const Product *p)
{
    const unsigned sums = p->column_sums ? tiles_of(p->n, PRODUCT_SUM_COLUMNS) : 0;
    const Launch launch = {product_tiles(p->m, p->n) + sums, TILE_THREADS, PRODUCT_SHARED, 1};
    return launch;
}

KERNELS_BOTH unsigned attention_blocks(const Attention *p, unsigned tile)
{
    return (p->sequence + tile - 1) / tile * (p->rows / p->sequence) * p->heads;
}

/* Bytes of shared memory of a tile. It has the tile's own rows (forward: queries; backward: of two matrices), `stages`
   blocks of two matrices each, and two floats per row of a block. Rows are padded by 16 bytes against bank
   conflicts. */
KERNELS_BOTH unsigned attention_shared(const Attention *p, unsigned element_size, int backward)
{
    const unsigned head = p->columns / p->heads, width = head <= 64 ? 64 : 128;
    const unsigned block = p->stages * 2 * (element_size == 4 ? 16 : backward ? 32 : 64);
    return ((backward ? 2u : 1u) * p->tile + block) * (width * element_size + 16) + block * 4;
}

/* Chooses p->tile and p->stages so that a tile fits in `most` bytes of shared memory. If the largest values do not fit,
   p->stages becomes 1; if that does not fit either, p->tile is halved. */
KERNELS_BOTH void attention_fit(Attention *p, unsigned element_size, int backward, unsigned most)
{
    p->tile = ATTENTION_TILE;
    p->stages = element_size == 4 ? 1 : 2;
    if (attention_shared(p, element_size, backward) > most)
        p->stages = 1;
    if (attention_shared(p, element_size, backward) > most)
        p->tile = ATTENTION_TILE / 2;
}

/* The launch of attention_forward. `element_size`: bytes of an element, 2 or 4. */
KERNELS_BOTH Launch attention_forward_launch(const Attention *p, unsigned element_size)
{
    const Launch launch = {attention_blocks(p, p->tile), TILE_THREADS, attention_shared(p, element_size, 0), 1};
    return launch;
}

KERNELS_BOTH Launch attention_delta_launch(const Attention *p)
{
    const Launch launch = {tiles_of((unsigned long long)p->rows * p->heads, ATTENTION_DELTAS), TILE_THREADS, 0, 1};
    return launch;
}

/* First the tiles for the gradients of keys and values, then those for queries. */
KERNELS_BOTH Launch attention_backward_launch(const Attention *p, unsigned element_size)
{
    const Launch launch = {2 * attention_blocks(p, p->tile), TILE_THREADS, attention_shared(p, element_size, 1), 1};
    return launch;
}

KERNELS_BOTH Launch norm_rows_launch(const Norm *p) /* norm_forward, norm_backward_input */
{
    const Launch launch = {tiles_of(p->rows, NORM_TILE_ROWS), TILE_THREADS, 0, 1};
    return launch;
}

KERNELS_BOTH Launch norm_columns_launch(const Norm *p) /* norm_backward_weight */
{
    const Launch launch = {tiles_of(p->columns, NORM_TILE_COLUMNS), TILE_THREADS,
                           2 * TILE_THREADS / 4 * (NORM_TILE_COLUMNS + 1) * 4, 1};
    return launch;
}

/* For gelu, accumulate, fill, conversions, adamw, and embedding_forward. */
KERNELS_BOTH Launch elementwise_launch(unsigned long long count)
{
    const Launch launch = {tiles_of(count, ELEMENTWISE_TILE), TILE_THREADS, 0, 1};
    return launch;
}

KERNELS_BOTH Launch embedding_forward_launch(const Embedding *p)
{
    return elementwise_launch((unsigned long long)p->rows * tiles_of(p->columns, 8) * 8);
}

/* First the tiles for the token table, one per row of dy and strip of columns; then those for the position table, one
   per position and strip. */
KERNELS_BOTH Launch embedding_backward_launch(const Embedding *p)
{
    const unsigned strips = tiles_of(p->columns, EMBEDDING_TILE_COLUMNS);
    const unsigned positions = p->rows < p->sequence ? p->rows : p->sequence;
    const Launch launch = {(p->rows + positions) * strips, TILE_THREADS, (TILE_THREADS + 16) * 4, 1};
    return launch;
}

KERNELS_BOTH Launch cross_entropy_launch(const CrossEntropy *p)
{
    const Launch launch = {p->rows, TILE_THREADS, 32 * 8, 1};
    return launch;
}

KERNELS_BOTH unsigned sum_partials(unsigned long long count) { return tiles_of(count, SUM_CHUNK); }

KERNELS_BOTH Launch sum_launch(unsigned long long count) /* sum_of_squares, squared_error */
{
    const Launch launch = {sum_partials(count), TILE_THREADS, 32 * 8, 1};
    return launch;
}

KERNELS_BOTH Launch finish_sum_launch(void)
{
    const Launch launch = {1, TILE_THREADS, 32 * 8, 1};
    return launch;
}

KERNELS_BOTH Launch copy_launch(unsigned long long bytes)
{
    const Launch launch = {tiles_of(bytes, COPY_TILE), TILE_THREADS, 0, 1};
    return launch;
}

/* Whether hopper_* can compute the product; otherwise use product_*. Rows of both operands must have a multiple of 8
   elements (16 bytes), as TMA requires. So must rows of the result, which is stored 8 elements at a time. */
KERNELS_BOTH int hopper_takes(ProductLayout layout, const Product *p)
{
    const unsigned a_row = layout == PRODUCT_WEIGHT ? p->m : p->k, b_row = layout == PRODUCT_INPUT ? p->k : p->n;
    return a_row % 8 == 0 && b_row % 8 == 0 && p->n % 8 == 0;
}

/* The number of tiles of a product, each with `columns` columns, if `cluster` blocks form a cluster. The tiles of a
   cluster have consecutive numbers. */
KERNELS_BOTH unsigned hopper_tiles(const Product *p, unsigned columns, unsigned cluster)
{
    return tiles_of(p->m, cluster * HOPPER_TILE_M) * cluster * tiles_of(p->n, columns);
}

/* The columns of a tile. Both widths give the same bits. */
KERNELS_BOTH unsigned hopper_columns(const Product *p, unsigned multiprocessors)
{
    return hopper_tiles(p, HOPPER_NARROW_N, 1) <= multiprocessors ? HOPPER_NARROW_N : HOPPER_TILE_N;
}

/* Blocks per cluster. Per stage, a block in a cluster of two reads 32 KiB from the L2 cache, a single block 48 KiB. At
   790 TFLOP/s these are 6.2 and 9.3 TB/s for the whole GPU; 9.3 is more than its cache delivers. So a cluster has two
   blocks, unless there is only one row of tiles, or two blocks need more waves than single blocks. */
KERNELS_BOTH unsigned hopper_cluster(const Product *p, unsigned columns, unsigned multiprocessors)
{
    if (multiprocessors < 2 || p->m <= HOPPER_TILE_M)
        return 1;
    const unsigned waves = tiles_of(hopper_tiles(p, columns, 1), multiprocessors);
    return tiles_of(hopper_tiles(p, columns, 2), multiprocessors / 2 * 2) <= waves ? 2 : 1;
}

KERNELS_BOTH unsigned hopper_band(const Product *p, unsigned columns, unsigned multiprocessors, unsigned cluster)
{
    return product_band(p->m, cluster * HOPPER_TILE_M, columns, multiprocessors / cluster);
}

KERNELS_BOTH Launch hopper_launch(const HopperProduct *p, unsigned multiprocessors, unsigned cluster)
{
    const unsigned clusters = hopper_tiles(&p->product, p->columns, cluster) / cluster,
                   most = multiprocessors / cluster;
    const Launch launch = {(clusters < most ? clusters : most) * cluster, HOPPER_THREADS,
                           HOPPER_STAGES * HOPPER_STAGE_BYTES + 1024 + HOPPER_SUM_BYTES, cluster};
    return launch;
}

KERNELS_BOTH TensorMapShape tensor_map_shape(ProductLayout layout, const Product *p, int operand)
{
    const unsigned extent = operand ? p->n : p->m;
    const int k_contiguous = operand ? layout == PRODUCT_INPUT : layout != PRODUCT_WEIGHT;
    TensorMapShape shape;
    shape.sizes[0] = k_contiguous ? p->k : extent;
    shape.sizes[1] = k_contiguous ? extent : p->k;
    shape.pitch = shape.sizes[0] * 2;
    shape.box[0] = 64; /* 64 elements are 128 bytes, one row of the swizzle; longer rows take several boxes */
    shape.box[1] = k_contiguous ? HOPPER_PART : HOPPER_TILE_K;
    return shape;
}

/* Whether hopper_attention_* can compute this attention: a row of a head must be one or two boxes wide. */
KERNELS_BOTH int hopper_attention_takes(const Attention *p)
{
    const unsigned width = p->columns / p->heads;
    return width == 64 || width == 128;
}

/* As in attention_backward_launch, the tiles for queries come last. */
KERNELS_BOTH unsigned hopper_attention_tiles(const Attention *p, int backward)
{
    return (backward ? 2 : 1) * attention_blocks(p, ATTENTION_TILE);
}

KERNELS_BOTH Launch hopper_attention_launch(const Attention *p, unsigned multiprocessors, int backward)
{
    const unsigned tiles = hopper_attention_tiles(p, backward);
    const Launch launch = {tiles < multiprocessors ? tiles : multiprocessors, HOPPER_THREADS,
                           HOPPER_STAGES * HOPPER_STAGE_BYTES + 1024 + HOPPER_SUM_BYTES, 1};
    return launch;
}

/* The shape of the tensor map of a matrix with `parts` times p->columns columns: 3 for qkv, 1 for dy. */
KERNELS_BOTH TensorMapShape attention_map_shape(const Attention *p, unsigned parts, int backward)
{
    const unsigned columns = parts * p->columns, rows = (backward ? 1u : 2u) * ATTENTION_TILE / 2;
    const TensorMapShape shape = {{columns, p->rows}, 2ull * columns, {64, rows}};
    return shape;
}

/* ---- fused: many operations in one launch ---- */

enum { OPERATION_AFTER = 4, FUSED_OPERATIONS_MOST = 256 };

typedef struct Operation { /* aligned to 128 bytes, as its TensorMaps must be */
    KernelNumber kind;     /* a kernel for which operation_tiles does not return 0 */
    unsigned tiles;        /* operation_tiles */
    unsigned after_count;  /* length of `after`, the indices of the operations that must be done before it begins */
    unsigned after[OPERATION_AFTER];
    union {
        Product product;
        Attention attention;
        Norm norm;
        Elementwise elementwise;
        Embedding embedding;
        CrossEntropy cross_entropy;
        SquaredError squared_error;
        Sum sum;
        Copy copy;
        HopperProduct hopper;
        HopperAttention hopper_attention;
    } of;
} Operation;
KERNELS_ASSERT(sizeof(Operation) == 128 + sizeof(HopperProduct), "a table's maps at 128 bytes, for host and GPU alike");

/* Consecutive tiles of an operation. The first tile has the ticket `ticket` (see Fused), the next one ticket + 1, and
   so on. */
typedef struct TileRun {
    unsigned operation, first_tile, tiles, ticket;
} TileRun;

/* The parameters of a fused launch. Each tile has a ticket, and blocks draw tickets in order. So if the runs are in an
   order in which a single block could compute them, then with any number of blocks every tile waits only for tiles that
   are done or being computed (tests/gpu/fused_check.h). */
typedef struct Fused {
    const Operation *operations;
    const TileRun *runs;
    unsigned run_count, tickets;
    unsigned *drawn;   /* the number of tickets drawn so far; zero before the launch */
    unsigned *done;    /* [operations]: finished tiles of each operation; zero before the launch */
    unsigned *cleared; /* [cleared_count]: numbers that the launch sets to 0, such as the counters of the next launch */
    unsigned cleared_count;
} Fused;

/* The number of tiles of an operation; 0: a table cannot hold this kernel, or there is nothing to compute. */
KERNELS_BOTH unsigned operation_tiles(const Operation *o, unsigned element_size)
{
    switch (o->kind) {
    case CUDA_product_forward:
    case CUDA_product_input:
    case CUDA_product_weight: return product_launch(&o->of.product).grid;
    case CUDA_attention_forward: return attention_forward_launch(&o->of.attention, element_size).grid;
    case CUDA_attention_delta: return attention_delta_launch(&o->of.attention).grid;
    case CUDA_attention_backward: return attention_backward_launch(&o->of.attention, element_size).grid;
    case CUDA_norm_forward:
    case CUDA_norm_backward_input: return norm_rows_launch(&o->of.norm).grid;
    case CUDA_norm_backward_weight: return norm_columns_launch(&o->of.norm).grid;
    case CUDA_gelu_forward:
    case CUDA_gelu_backward:
    case CUDA_to_float:
    case CUDA_from_float: return elementwise_launch(o->of.elementwise.count).grid;
    case CUDA_embedding_forward: return embedding_forward_launch(&o->of.embedding).grid;
    case CUDA_embedding_backward: return embedding_backward_launch(&o->of.embedding).grid;
    case CUDA_cross_entropy: return cross_entropy_launch(&o->of.cross_entropy).grid;
    case CUDA_squared_error: return sum_launch(o->of.squared_error.count).grid;
    case CUDA_finish_sum: return finish_sum_launch().grid;
    case CUDA_copy_bytes: return copy_launch(o->of.copy.bytes).grid;
    case CUDA_hopper_forward:
    case CUDA_hopper_input:
    case CUDA_hopper_weight: return hopper_tiles(&o->of.hopper.product, HOPPER_TILE_N, 1);
    case CUDA_hopper_attention_forward: return hopper_attention_tiles(&o->of.hopper_attention.attention, 0);
    default: return 0;
    }
}

/* The launch of `fused`: one block for each of the multiprocessors that it may use, so that all blocks run at once. The
   shared memory of a block is enough for any operation. A block may have `most` bytes, of which FUSED_HEAD are for the
   launch itself. */
enum { FUSED_HEAD = 1024 };
KERNELS_BOTH Launch fused_launch(unsigned multiprocessors, unsigned element_size, unsigned most)
{
    Attention widest;
    widest.columns = ATTENTION_WIDTH;
    widest.heads = 1;
    attention_fit(&widest, element_size, 1, most - FUSED_HEAD);
    const Launch launch = {multiprocessors, TILE_THREADS, FUSED_HEAD + attention_shared(&widest, element_size, 1), 1};
    return launch;
}

/* The launch of `fused_hopper`. Its blocks have one more warpgroup than those of `fused`; one thread of it draws tiles
   and loads the operands of products and attention. */
KERNELS_BOTH Launch fused_hopper_launch(unsigned multiprocessors)
{
    const Launch launch = {multiprocessors, HOPPER_THREADS,
                           FUSED_HEAD + HOPPER_STAGES * HOPPER_STAGE_BYTES + HOPPER_SUM_BYTES, 1};
    return launch;
}

#endif
