// cuDNN's graph interface of a GPU that computes nothing, for its attention.
//
// Every graph is accepted with one engine that needs no workspace, so this tells that torch chose
// cuDNN, not that cuDNN has a kernel for the shape. The name of a launch is "cudnn" with the number
// of products in the graph: attention has two forward and five backward.
// NOT modelled: support checks, heuristics, engines, and all of cuDNN but the graph interface.

#include <cudnn_backend.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "ledger.h"

namespace {

// What is kept of any descriptor: the descriptors it was given, so that a launch can be counted.
struct Descriptor {
  cudnnBackendDescriptorType_t type;
  std::vector<Descriptor*> parts;
  int products = 0;
};

int products_of(cudnnBackendDescriptorType_t type) {
  switch (type) {
    case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR:
      return 1;
    case CUDNN_BACKEND_OPERATION_SDPA_FWD_DESCRIPTOR:  // attention without a mask, as one node
      return 2;
    case CUDNN_BACKEND_OPERATION_SDPA_BWD_DESCRIPTOR:
      return 5;
    default:
      return 0;
  }
}

int products_in(const Descriptor* whole) {
  if (whole->products) return whole->products;
  int found = products_of(whole->type);
  for (const Descriptor* part : whole->parts) found += products_in(part);
  return found;
}

Descriptor* ours(cudnnBackendDescriptor_t descriptor) {
  return static_cast<Descriptor*>(descriptor);
}

}  // namespace

extern "C" {

cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) {
  *handle = static_cast<cudnnHandle_t>(std::calloc(1, 64));
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetStream(cudnnHandle_t, cudaStream_t* stream) {
  *stream = nullptr;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type,
                                           cudnnBackendDescriptor_t* descriptor) {
  *descriptor = new Descriptor{type};
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor,
                                       cudnnBackendAttributeName_t, cudnnBackendAttributeType_t type,
                                       std::int64_t count, const void* values) {
  if (type != CUDNN_TYPE_BACKEND_DESCRIPTOR) return CUDNN_STATUS_SUCCESS;
  const auto* given = static_cast<const cudnnBackendDescriptor_t*>(values);
  for (std::int64_t i = 0; i < count; i++) ours(descriptor)->parts.push_back(ours(given[i]));
  return CUDNN_STATUS_SUCCESS;
}

// Parts may be destroyed before the whole is launched, so products are counted here.
cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor) {
  ours(descriptor)->products = products_in(ours(descriptor));
  ours(descriptor)->parts.clear();
  return CUDNN_STATUS_SUCCESS;
}

// One of everything, all bits zero. A list of descriptors is filled by the caller, except that an
// engine's configuration inherits the products of the graph it was found for.
cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t descriptor,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, std::int64_t wanted,
                                       std::int64_t* count, void* values) {
  const bool is_list = type == CUDNN_TYPE_BACKEND_DESCRIPTOR;
  const bool exists = name != CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE &&
                      name != CUDNN_ATTR_ENGINE_NUMERICAL_NOTE &&
                      name != CUDNN_ATTR_ENGINE_KNOB_INFO;
  if (count) *count = exists ? 1 : 0;
  if (!values || wanted < 1 || !exists) return CUDNN_STATUS_SUCCESS;
  if (is_list) {
    auto* into = static_cast<cudnnBackendDescriptor_t*>(values);
    ours(into[0])->products = products_in(ours(descriptor));
  } else {
    std::memset(values, 0, type == CUDNN_TYPE_BOOLEAN ? 1 : type == CUDNN_TYPE_INT32 ? 4 : 8);
  }
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendExecute(cudnnHandle_t, cudnnBackendDescriptor_t plan,
                                  cudnnBackendDescriptor_t) {
  null_gpu::count("kernel",
                  "cudnn graph of " + std::to_string(ours(plan)->products) + " products");
  return CUDNN_STATUS_SUCCESS;
}

}  // extern "C"
