// cuBLAS: matrix products are counted by the types that go in, and not computed.
#include "record.h"

#include <cublasLt.h>
#include <cublas_v2.h>
#include <dlfcn.h>

#include <cstdlib>
#include <cstring>

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {

cublasMath_t math_mode;

cublasStatus_t product(const char* name) {
  pretended_launch(name);
  return CUBLAS_STATUS_SUCCESS;
}

const char* named(cudaDataType type) {
  if (type == CUDA_R_16BF) return "product in bf16";
  if (type == CUDA_R_32F) return "product in fp32";
  return "product in another type";
}

const char* in_fp32() { return math_mode & CUBLAS_TF32_TENSOR_OP_MATH ? "product in tf32" : "product in fp32"; }

}  // namespace

EXPORT cublasStatus_t cublasCreate_v2(cublasHandle_t* handle) {
  *handle = (cublasHandle_t)calloc(1, 64);
  return CUBLAS_STATUS_SUCCESS;
}
EXPORT cublasStatus_t cublasDestroy_v2(cublasHandle_t handle) {
  free(handle);
  return CUBLAS_STATUS_SUCCESS;
}
EXPORT cublasStatus_t cublasSetStream_v2(cublasHandle_t, cudaStream_t) { return CUBLAS_STATUS_SUCCESS; }
EXPORT cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t, void*, size_t) { return CUBLAS_STATUS_SUCCESS; }
EXPORT cublasStatus_t cublasGetMathMode(cublasHandle_t, cublasMath_t* mode) {
  *mode = math_mode;
  return CUBLAS_STATUS_SUCCESS;
}
EXPORT cublasStatus_t cublasSetMathMode(cublasHandle_t, cublasMath_t mode) {
  math_mode = mode;
  return CUBLAS_STATUS_SUCCESS;
}
EXPORT cublasStatus_t cublasGetPointerMode_v2(cublasHandle_t, cublasPointerMode_t* mode) {
  *mode = CUBLAS_POINTER_MODE_HOST;
  return CUBLAS_STATUS_SUCCESS;
}
EXPORT cublasStatus_t cublasSetPointerMode_v2(cublasHandle_t, cublasPointerMode_t) { return CUBLAS_STATUS_SUCCESS; }
EXPORT cublasStatus_t cublasSetSmCountTarget(cublasHandle_t, int) { return CUBLAS_STATUS_SUCCESS; }

EXPORT cublasStatus_t cublasSgemm_v2(cublasHandle_t, cublasOperation_t, cublasOperation_t, int, int, int, const float*,
                                     const float*, int, const float*, int, const float*, float*, int) {
  return product(in_fp32());
}
EXPORT cublasStatus_t cublasSgemmStridedBatched(cublasHandle_t, cublasOperation_t, cublasOperation_t, int, int, int,
                                                const float*, const float*, int, long long, const float*, int,
                                                long long, const float*, float*, int, long long, int) {
  return product(in_fp32());
}
EXPORT cublasStatus_t cublasGemmEx(cublasHandle_t, cublasOperation_t, cublasOperation_t, int, int, int, const void*,
                                   const void*, cudaDataType type, int, const void*, cudaDataType, int, const void*,
                                   void*, cudaDataType, int, cublasComputeType_t, cublasGemmAlgo_t) {
  return product(named(type));
}
EXPORT cublasStatus_t cublasGemmStridedBatchedEx(cublasHandle_t, cublasOperation_t, cublasOperation_t, int, int, int,
                                                 const void*, const void*, cudaDataType type, int, long long,
                                                 const void*, cudaDataType, int, long long, const void*, void*,
                                                 cudaDataType, int, long long, int, cublasComputeType_t,
                                                 cublasGemmAlgo_t) {
  return product(named(type));
}
EXPORT cublasStatus_t cublasSgemv_v2(cublasHandle_t, cublasOperation_t, int, int, const float*, const float*, int,
                                     const float*, int, const float*, float*, int) {
  return product(in_fp32());
}
EXPORT cublasStatus_t cublasSdot_v2(cublasHandle_t, int, const float*, int, const float*, int, float*) {
  return product("dot product");
}
EXPORT cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t,
                                                     cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                                     cublasLtMatrixLayout_t, cublasLtMatmulPreference_t, int,
                                                     cublasLtMatmulHeuristicResult_t results[], int* number) {
  memset(results, 0, sizeof results[0]);
  results[0].state = CUBLAS_STATUS_SUCCESS;
  *number = 1;
  return CUBLAS_STATUS_SUCCESS;
}
EXPORT cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t, const void*, const void*,
                                     cublasLtMatrixLayout_t layout, const void*, cublasLtMatrixLayout_t, const void*,
                                     const void*, cublasLtMatrixLayout_t, void*, cublasLtMatrixLayout_t,
                                     const cublasLtMatmulAlgo_t*, void*, size_t, cudaStream_t) {
  uint32_t type = CUDA_R_16BF;
  size_t written = 0;
  // of the real library, which PyTorch has loaded for itself alone; layouts are its own and need no device
  static void* real = dlopen("libcublasLt.so.13", RTLD_NOW | RTLD_NOLOAD);
  using Get = decltype(&cublasLtMatrixLayoutGetAttribute);
  static const Get get = real ? (Get)dlsym(real, "cublasLtMatrixLayoutGetAttribute") : nullptr;
  if (get) get(layout, CUBLASLT_MATRIX_LAYOUT_TYPE, &type, sizeof type, &written);
  return product(named((cudaDataType)type));
}
