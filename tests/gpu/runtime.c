/* Checks the calls of the CUDA runtime that LaunchKernel, KernelSetAttributeForDevice and EncodeTensorMap make. The
   linker replaces the functions of the runtime (--wrap), and the replacements record their arguments. Skipped if the
   build has no toolkit. */

#include "runtime/cuda/runtime.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#if __has_include(<cuda_runtime_api.h>)
#include <cuda.h>
#include <cuda_runtime_api.h>

/* --- recorded calls --- */

static cudaLaunchConfig_t launched;
static cudaLaunchAttribute attribute;
static const void *kernel;
static unsigned first_word;

cudaError_t __wrap_cudaLaunchKernelExC(const cudaLaunchConfig_t *config, const void *function, void **arguments);
cudaError_t __wrap_cudaLaunchKernelExC(const cudaLaunchConfig_t *config, const void *function, void **arguments)
{
    launched = *config;
    if (config->numAttrs > 0)
        attribute = config->attrs[0];
    kernel = function;
    memcpy(&first_word, arguments[0], sizeof first_word);
    return cudaSuccess;
}

static struct {
    CUtensorMapDataType type;
    cuuint32_t rank, box[2], steps[2];
    cuuint64_t sizes[2], pitch;
    void *matrix;
    CUtensorMapInterleave interleave;
    CUtensorMapSwizzle swizzle;
    CUtensorMapFloatOOBfill outside;
} encoded;
static CUresult encoder_says;

static CUresult encode(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank, void *matrix,
                       const cuuint64_t *sizes, const cuuint64_t *pitches, const cuuint32_t *box,
                       const cuuint32_t *steps, CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                       CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill outside)
{
    (void)promotion;
    encoded.type = type, encoded.rank = rank, encoded.matrix = matrix, encoded.pitch = pitches[0];
    encoded.interleave = interleave, encoded.swizzle = swizzle, encoded.outside = outside;
    for (int d = 0; d < 2; d++)
        encoded.sizes[d] = sizes[d], encoded.box[d] = box[d], encoded.steps[d] = steps[d];
    assert_int_equal((uintptr_t)map % 128, 0);
    return encoder_says;
}

static enum cudaDriverEntryPointQueryResult driver_says;

cudaError_t __wrap_cudaGetDriverEntryPointByVersion(const char *name, void **entry, unsigned version,
                                                    unsigned long long flags,
                                                    enum cudaDriverEntryPointQueryResult *result);
cudaError_t __wrap_cudaGetDriverEntryPointByVersion(const char *name, void **entry, unsigned version,
                                                    unsigned long long flags,
                                                    enum cudaDriverEntryPointQueryResult *result)
{
    assert_string_equal(name, "cuTensorMapEncodeTiled");
    assert_int_equal(version, 12000); /* the first version of CUDA that has this function with this signature */
    assert_int_equal(flags, cudaEnableDefault);
    *result = driver_says;
    *entry = driver_says == cudaDriverEntryPointSuccess ? (void *)(uintptr_t)encode : NULL;
    return cudaSuccess;
}

static enum cudaFuncAttribute asked;
static int asked_value, asked_device;

cudaError_t __wrap_cudaKernelSetAttributeForDevice(cudaKernel_t function, enum cudaFuncAttribute which, int value,
                                                   int device);
cudaError_t __wrap_cudaKernelSetAttributeForDevice(cudaKernel_t function, enum cudaFuncAttribute which, int value,
                                                   int device)
{
    kernel = function, asked = which, asked_value = value, asked_device = device;
    return cudaSuccess;
}

/* --- tests --- */

static void test_launch(void **state)
{
    (void)state;
    static int a_kernel, a_stream;
    const unsigned parameters = 4711;
    CudaKernel *const of = (CudaKernel *)(void *)&a_kernel;
    CudaStream *const on = (CudaStream *)(void *)&a_stream;
    for (unsigned cluster = 1; cluster <= 2; cluster++) {
        const Launch launch = {264, 384, 231424, cluster};
        assert_int_equal(cuda_runtime->LaunchKernel(of, launch, &parameters, on), CUDA_OK);
        assert_ptr_equal(kernel, of);
        assert_ptr_equal(launched.stream, on);
        assert_int_equal(first_word, parameters);
        assert_int_equal(launched.gridDim.x, 264);
        assert_int_equal(launched.gridDim.y * launched.gridDim.z, 1);
        assert_int_equal(launched.blockDim.x, 384);
        assert_int_equal(launched.blockDim.y * launched.blockDim.z, 1);
        assert_int_equal(launched.dynamicSmemBytes, 231424);
        /* no attribute without clusters: GPUs before 9.0 refuse the cluster attribute */
        assert_int_equal(launched.numAttrs, cluster - 1);
    }
    assert_int_equal(attribute.id, cudaLaunchAttributeClusterDimension);
    assert_int_equal(attribute.val.clusterDim.x, 2);
    assert_int_equal(attribute.val.clusterDim.y * attribute.val.clusterDim.z, 1);
    assert_int_equal(cuda_runtime->KernelSetAttributeForDevice(of, 232448, 3), CUDA_OK);
    assert_ptr_equal(kernel, of);
    assert_int_equal(asked, cudaFuncAttributeMaxDynamicSharedMemorySize);
    assert_int_equal(asked_value, 232448);
    assert_int_equal(asked_device, 3);
}

static void test_tensor_map(void **state)
{
    (void)state;
    static TensorMap map;
    static char matrix[16];
    const Product product = {.m = 640, .n = 384, .k = 200};
    const TensorMapShape shape = tensor_map_shape(PRODUCT_FORWARD, &product, 1);
    driver_says = cudaDriverEntryPointSymbolNotFound; /* an old driver; must be first, as a success is cached */
    assert_int_not_equal(cuda_runtime->EncodeTensorMap(&map, matrix, &shape), CUDA_OK);
    driver_says = cudaDriverEntryPointSuccess;
    assert_int_equal(cuda_runtime->EncodeTensorMap(&map, matrix, &shape), CUDA_OK);
    assert_int_equal(encoded.type, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16);
    assert_int_equal(encoded.rank, 2);
    assert_ptr_equal(encoded.matrix, matrix);
    assert_int_equal(encoded.sizes[0], 384);
    assert_int_equal(encoded.sizes[1], 200);
    assert_int_equal(encoded.pitch, 768);
    assert_int_equal(encoded.box[0] * 2, 128); /* bytes of a row of a box: at most one row of the swizzle */
    assert_int_equal(encoded.box[1], HOPPER_TILE_K);
    assert_int_equal(encoded.steps[0] * encoded.steps[1], 1);
    assert_int_equal(encoded.interleave, CU_TENSOR_MAP_INTERLEAVE_NONE);
    assert_int_equal(encoded.swizzle, CU_TENSOR_MAP_SWIZZLE_128B);
    assert_int_equal(encoded.outside, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    encoder_says = CUDA_ERROR_INVALID_CONTEXT;
    assert_int_equal(cuda_runtime->EncodeTensorMap(&map, matrix, &shape), CUDA_ERROR_INVALID_CONTEXT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_launch), cmocka_unit_test(test_tensor_map)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#else
int main(void) { return puts("SKIPPED: built without the CUDA toolkit") < 0; }
#endif
