// libcuda.so.1 of a GPU that computes nothing, for Triton: modules are loaded without a look at
// them, and every launch is counted by the kernel's name.
//
// NOT modelled: registers and spills of a loaded kernel (0 are reported; spills.py reads them from
// ptxas), occupancy (2 blocks), contexts, clocks, linking, and every function that is not here.

#include <cuda.h>
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "board.h"

using null_gpu::board;

namespace {

// The counters are in the preloaded library, which may be absent when only Triton is loaded.
void count_kernel(const char* name) {
  using Count = void (*)(const char*, const char*);
  static const auto count = reinterpret_cast<Count>(dlsym(RTLD_DEFAULT, "null_gpu_count"));
  if (count) count("kernel", name);
}

struct Function {
  std::string name;
};

CUresult launched(CUfunction function) {
  count_kernel(reinterpret_cast<Function*>(function)->name.c_str());
  return CUDA_SUCCESS;
}

const auto kContext = reinterpret_cast<CUcontext>(1);

}  // namespace

extern "C" {

CUresult cuDriverGetVersion(int* version) {
  *version = null_gpu::kDriverVersion;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int* count) {
  *count = 1;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice* device, int) {
  *device = 0;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char* name, int size, CUdevice) {
  std::snprintf(name, size, "%s", board().name);
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice) {
  switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
      *value = board().major;
      break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
      *value = board().minor;
      break;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
      *value = board().processors;
      break;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK:
      *value = null_gpu::kSharedByDefault;
      break;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN:
      *value = board().shared_per_block;
      break;
    case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK:
      *value = null_gpu::kRegisters;
      break;
    case CU_DEVICE_ATTRIBUTE_WARP_SIZE:
      *value = null_gpu::kWarp;
      break;
    case CU_DEVICE_ATTRIBUTE_CLOCK_RATE:
      *value = 1'980'000;  // kHz
      break;
    case CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE:
      *value = 3'200'000;  // kHz
      break;
    case CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH:
      *value = board().bus_bits;
      break;
    default:
      *value = 1;  // the others are asked as "can you?"
  }
  return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext* context) {
  *context = kContext;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice* device) {
  *device = 0;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetLimit(size_t* value, CUlimit) {
  *value = 0;
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxGetState(CUdevice, unsigned* flags, int* active) {
  *flags = 0;
  *active = 1;
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice) {
  *context = kContext;
  return CUDA_SUCCESS;
}

CUresult cuGetErrorString(CUresult, const char** text) {
  *text = "the null GPU does not model this call";
  return CUDA_SUCCESS;
}

CUresult cuGetErrorName(CUresult, const char** text) {
  return cuGetErrorString(CUDA_SUCCESS, text);
}

CUresult cuModuleLoadData(CUmodule* module, const void*) {
  *module = static_cast<CUmodule>(std::malloc(64));
  return CUDA_SUCCESS;
}

CUresult cuModuleLoadDataEx(CUmodule* module, const void*, unsigned, CUjit_option*, void**) {
  return cuModuleLoadData(module, nullptr);
}

CUresult cuModuleLoad(CUmodule* module, const char*) { return cuModuleLoadData(module, nullptr); }

CUresult cuModuleGetFunction(CUfunction* function, CUmodule, const char* name) {
  *function = reinterpret_cast<CUfunction>(new Function{name});
  return CUDA_SUCCESS;
}

CUresult cuFuncGetAttribute(int* value, CUfunction_attribute attribute, CUfunction) {
  *value = attribute == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK ? null_gpu::kThreadsPerBlock : 0;
  return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CUfunction, int, size_t) {
  *blocks = 2;
  return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxActiveClusters(int* clusters, CUfunction, const CUlaunchConfig*) {
  *clusters = 2;
  return CUDA_SUCCESS;
}

CUresult cuLaunchKernel(CUfunction function, unsigned, unsigned, unsigned, unsigned, unsigned,
                        unsigned, unsigned, CUstream, void**, void**) {
  return launched(function);
}

CUresult cuLaunchKernelEx(const CUlaunchConfig*, CUfunction function, void**, void**) {
  return launched(function);
}

CUresult cuLaunchCooperativeKernel(CUfunction function, unsigned, unsigned, unsigned, unsigned,
                                   unsigned, unsigned, unsigned, CUstream, void**) {
  return launched(function);
}

// Triton asks whether a pointer is on the device by asking for its address there.
CUresult cuPointerGetAttribute(void* value, CUpointer_attribute attribute, CUdeviceptr address) {
  if (attribute == CU_POINTER_ATTRIBUTE_CONTEXT) {
    *static_cast<CUcontext*>(value) = kContext;
  } else {
    *static_cast<CUdeviceptr*>(value) = address;
  }
  return CUDA_SUCCESS;
}

CUresult cuPointerGetAttributes(unsigned count, CUpointer_attribute* attributes, void** values,
                                CUdeviceptr address) {
  for (unsigned i = 0; i < count; i++) cuPointerGetAttribute(values[i], attributes[i], address);
  return CUDA_SUCCESS;
}

}  // extern "C"
