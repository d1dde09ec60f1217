// cuBLAS and cuBLASLt of a GPU that computes nothing: products are counted by type and shape.
//
// NOT modelled: which algorithm is chosen (the first is always taken as found), epilogues (a bias
// or an activation inside a product is not told apart), workspaces, and everything but products.
// A name is "TYPE M N K xBATCH", column-major as the libraries see it.

#include <cublasLt.h>
#include <cublas_v2.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>

#include "ledger.h"

namespace {

std::string type_name(cudaDataType type) {
  switch (type) {
    case CUDA_R_16BF:
      return "bf16";
    case CUDA_R_16F:
      return "fp16";
    case CUDA_R_32F:
      return "fp32";
    case CUDA_R_64F:
      return "fp64";
    default:
      return "type" + std::to_string(static_cast<int>(type));
  }
}

cublasStatus_t product(cudaDataType type, std::uint64_t m, std::uint64_t n, std::uint64_t k,
                       std::int64_t batch = 1) {
  null_gpu::count("product", type_name(type) + " " + std::to_string(m) + " " + std::to_string(n) +
                                 " " + std::to_string(k) + " x" + std::to_string(batch));
  return CUBLAS_STATUS_SUCCESS;
}

// What this file keeps in cuBLASLt's opaque structures.
struct Layout {
  cudaDataType type;
  std::uint64_t rows, columns;
  std::int32_t batch;
};

struct Operation {
  std::int32_t transposes_a;
};

}  // namespace

extern "C" {

cublasStatus_t cublasCreate_v2(cublasHandle_t* handle) {
  *handle = static_cast<cublasHandle_t>(std::calloc(1, 64));
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGetMathMode(cublasHandle_t, cublasMath_t* mode) {
  *mode = CUBLAS_DEFAULT_MATH;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGetPointerMode_v2(cublasHandle_t, cublasPointerMode_t* mode) {
  *mode = CUBLAS_POINTER_MODE_HOST;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGemmEx(cublasHandle_t, cublasOperation_t, cublasOperation_t, int m, int n,
                            int k, const void*, const void*, cudaDataType type, int, const void*,
                            cudaDataType, int, const void*, void*, cudaDataType, int,
                            cublasComputeType_t, cublasGemmAlgo_t) {
  return product(type, m, n, k);
}

cublasStatus_t cublasSgemmEx(cublasHandle_t, cublasOperation_t, cublasOperation_t, int m, int n,
                             int k, const float*, const void*, cudaDataType type, int, const void*,
                             cudaDataType, int, const float*, void*, cudaDataType, int) {
  return product(type, m, n, k);
}

cublasStatus_t cublasSgemm_v2(cublasHandle_t, cublasOperation_t, cublasOperation_t, int m, int n,
                              int k, const float*, const float*, int, const float*, int,
                              const float*, float*, int) {
  return product(CUDA_R_32F, m, n, k);
}

cublasStatus_t cublasDgemm_v2(cublasHandle_t, cublasOperation_t, cublasOperation_t, int m, int n,
                              int k, const double*, const double*, int, const double*, int,
                              const double*, double*, int) {
  return product(CUDA_R_64F, m, n, k);
}

cublasStatus_t cublasGemmStridedBatchedEx(cublasHandle_t, cublasOperation_t, cublasOperation_t,
                                          int m, int n, int k, const void*, const void*,
                                          cudaDataType type, int, long long, const void*,
                                          cudaDataType, int, long long, const void*, void*,
                                          cudaDataType, int, long long, int batch,
                                          cublasComputeType_t, cublasGemmAlgo_t) {
  return product(type, m, n, k, batch);
}

cublasStatus_t cublasSgemmStridedBatched(cublasHandle_t, cublasOperation_t, cublasOperation_t,
                                         int m, int n, int k, const float*, const float*, int,
                                         long long, const float*, int, long long, const float*,
                                         float*, int, long long, int batch) {
  return product(CUDA_R_32F, m, n, k, batch);
}

std::size_t cublasLtGetVersion() { return 130101; }

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* operation, cublasComputeType_t,
                                        cudaDataType) {
  *operation = static_cast<cublasLtMatmulDesc_t>(std::calloc(1, sizeof(cublasLtMatmulDescOpaque_t)));
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t operation,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, std::size_t) {
  if (attribute == CUBLASLT_MATMUL_DESC_TRANSA) {
    const auto given = *static_cast<const std::int32_t*>(value);
    reinterpret_cast<Operation*>(operation)->transposes_a = given != CUBLAS_OP_N;
  }
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType type,
                                          std::uint64_t rows, std::uint64_t columns,
                                          std::int64_t) {
  *layout = static_cast<cublasLtMatrixLayout_t>(std::calloc(1, sizeof(cublasLtMatrixLayoutOpaque_t)));
  *reinterpret_cast<Layout*>(*layout) = {type, rows, columns, 1};
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t attribute,
                                                const void* value, std::size_t) {
  if (attribute == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT) {
    reinterpret_cast<Layout*>(layout)->batch = *static_cast<const std::int32_t*>(value);
  }
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  *preference = static_cast<cublasLtMatmulPreference_t>(
      std::calloc(1, sizeof(cublasLtMatmulPreferenceOpaque_t)));
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t,
                                              cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                              cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                              cublasLtMatmulPreference_t, int,
                                              cublasLtMatmulHeuristicResult_t* results,
                                              int* found) {
  std::memset(results, 0, sizeof *results);
  *found = 1;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t operation, const void*,
                              const void*, cublasLtMatrixLayout_t a, const void*,
                              cublasLtMatrixLayout_t, const void*, const void*,
                              cublasLtMatrixLayout_t, void*, cublasLtMatrixLayout_t d,
                              const cublasLtMatmulAlgo_t*, void*, std::size_t, cudaStream_t) {
  const auto* left = reinterpret_cast<const Layout*>(a);
  const auto* result = reinterpret_cast<const Layout*>(d);
  const bool transposed = reinterpret_cast<const Operation*>(operation)->transposes_a;
  return product(left->type, result->rows, result->columns,
                 transposed ? left->rows : left->columns, result->batch);
}

}  // extern "C"
