// The CUDA runtime of a GPU that computes nothing.
//
// Modelled: one device, its properties, memory as address space of the host, copies from and to the
// host (so that indices arrive), streams and events as tokens, the name of every launched kernel.
// NOT modelled:
//   - kernels: nothing runs, so the device's memory keeps what the host wrote, or zeros;
//   - copies and fills within the device;
//   - time: every stream and event is done at once, and every event pair lies 1 ms apart;
//   - order: a wait is counted and never waits, so a missing one goes unnoticed;
//   - limits: all memory is free at any time, and registers of torch's own kernels are unknown (64);
//   - a second device, peers, graphs, memory pools, IPC. Calls of these fail, see ../stubs.py.

#include <cuda_runtime_api.h>
#include <cxxabi.h>
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>
#include <unordered_map>

#include "board.h"
#include "ledger.h"

#undef cudaGetDeviceProperties

using null_gpu::board;
using null_gpu::Place;

namespace {

constexpr std::size_t kLongestName = 400;
// Bytes of one number. The host reads back only what kernels computed, and none has: it gets 0, not
// what a weight left in that memory, of which the root may not exist.
constexpr std::size_t kNumber = 8;

std::mutex names_mutex;

// Kernels by the address of their stub on the host, as libraries register them when they load.
std::unordered_map<const void*, std::string>& kernel_names() {
  static auto* names = new std::unordered_map<const void*, std::string>;
  return *names;
}

std::string readable(const std::string& mangled) {
  int status = 0;
  char* name = abi::__cxa_demangle(mangled.c_str(), nullptr, nullptr, &status);
  std::string found = status == 0 ? name : mangled;
  std::free(name);
  return found;
}

cudaError_t launched(const void* function) {
  std::string name = "unregistered kernel";
  {
    std::lock_guard<std::mutex> guard(names_mutex);
    const auto found = kernel_names().find(function);
    if (found != kernel_names().end()) name = found->second;
  }
  null_gpu::count("kernel", readable(name).substr(0, kLongestName));
  return cudaSuccess;
}

// On a stream other than the default one, where kernels run, a copy is also counted as `beside` them.
cudaError_t copied(void* to, const void* from, std::size_t bytes, cudaStream_t stream) {
  const Place target = null_gpu::place_of(to), source = null_gpu::place_of(from);
  const std::string way = name_of(source) + std::string(" -> ") + name_of(target);
  null_gpu::count("copy", way);
  if (stream) null_gpu::count("beside", way);
  if (source == Place::device && bytes <= kNumber) {
    if (target != Place::device) std::memset(to, 0, bytes);
  } else if (source != Place::device || target != Place::device) {
    std::memcpy(to, from, bytes);
  }
  return cudaSuccess;
}

// Streams and events are addresses that nobody looks into.
template <typename Handle>
cudaError_t token(Handle* handle) {
  *handle = reinterpret_cast<Handle>(std::malloc(64));
  return cudaSuccess;
}

cudaError_t waited(const char* what) {
  null_gpu::count("wait", what);
  return cudaSuccess;
}

int attribute_of(cudaDeviceAttr attribute) {
  switch (attribute) {
    case cudaDevAttrComputeCapabilityMajor:
      return board().major;
    case cudaDevAttrComputeCapabilityMinor:
      return board().minor;
    case cudaDevAttrMultiProcessorCount:
      return board().processors;
    case cudaDevAttrMaxSharedMemoryPerBlock:
      return null_gpu::kSharedByDefault;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      return board().shared_per_block;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
      return board().shared_per_processor;
    case cudaDevAttrMaxThreadsPerMultiProcessor:
      return null_gpu::kThreadsPerProcessor;
    case cudaDevAttrWarpSize:
      return null_gpu::kWarp;
    default:
      return 1;  // the others are asked as "can you?"
  }
}

}  // namespace

extern "C" {

// --- the device
cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}

cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int* version) {
  *version = null_gpu::kDriverVersion;
  return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = null_gpu::kDriverVersion;
  return cudaSuccess;
}

const char* cudaGetErrorString(cudaError_t error) {
  return error == cudaSuccess ? "no error" : "the null GPU does not model this call";
}

const char* cudaGetErrorName(cudaError_t error) {
  return error == cudaSuccess ? "cudaSuccess" : "cudaErrorNotSupported";
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* found, int) {
  std::memset(found, 0, sizeof *found);
  std::strcpy(found->name, board().name);
  found->major = board().major;
  found->minor = board().minor;
  found->multiProcessorCount = board().processors;
  found->totalGlobalMem = board().memory;
  found->l2CacheSize = board().l2_cache;
  found->memoryBusWidth = board().bus_bits;
  found->sharedMemPerBlock = null_gpu::kSharedByDefault;
  found->sharedMemPerBlockOptin = board().shared_per_block;
  found->sharedMemPerMultiprocessor = board().shared_per_processor;
  found->regsPerBlock = found->regsPerMultiprocessor = null_gpu::kRegisters;
  found->warpSize = null_gpu::kWarp;
  found->maxThreadsPerBlock = null_gpu::kThreadsPerBlock;
  found->maxThreadsPerMultiProcessor = null_gpu::kThreadsPerProcessor;
  found->maxBlocksPerMultiProcessor = 32;
  found->maxThreadsDim[0] = found->maxThreadsDim[1] = 1024;
  found->maxThreadsDim[2] = 64;
  found->maxGridSize[0] = 2147483647;
  found->maxGridSize[1] = found->maxGridSize[2] = 65535;
  found->concurrentKernels = found->unifiedAddressing = found->cooperativeLaunch = 1;
  found->asyncEngineCount = 3;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  *value = attribute_of(attribute);
  return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char* id, int size, int) {
  std::snprintf(id, size, "0000:00:00.0");
  return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  if (least) *least = 0;
  if (greatest) *greatest = -5;
  return cudaSuccess;
}

cudaError_t cudaDeviceCanAccessPeer(int* can, int, int) {
  *can = 0;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int) { return token(pool); }

// --- memory
cudaError_t cudaMemGetInfo(std::size_t* left, std::size_t* total) {
  *left = *total = board().memory;
  return cudaSuccess;
}

cudaError_t cudaMalloc(void** start, std::size_t bytes) {
  null_gpu::count("memory", "cudaMalloc");
  *start = null_gpu::reserve(bytes, Place::device);
  return *start ? cudaSuccess : cudaErrorMemoryAllocation;
}

cudaError_t cudaFree(void* start) {
  null_gpu::release(start);
  return cudaSuccess;
}

cudaError_t cudaHostAlloc(void** start, std::size_t bytes, unsigned) {
  null_gpu::count("memory", "cudaHostAlloc");
  *start = null_gpu::reserve(bytes, Place::pinned);
  return *start ? cudaSuccess : cudaErrorMemoryAllocation;
}

cudaError_t cudaFreeHost(void* start) {
  null_gpu::release(start);
  return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* found, const void* address) {
  std::memset(found, 0, sizeof *found);
  switch (null_gpu::place_of(address)) {
    case Place::device:
      found->type = cudaMemoryTypeDevice;
      break;
    case Place::pinned:
      found->type = cudaMemoryTypeHost;
      break;
    default:
      found->type = cudaMemoryTypeUnregistered;
  }
  found->devicePointer = found->hostPointer = const_cast<void*>(address);
  return cudaSuccess;
}

cudaError_t cudaGetSymbolAddress(void** address, const void*) {
  static char symbols[1 << 16];  // of any symbol: nobody reads it
  *address = symbols;
  return cudaSuccess;
}

// --- copies and fills
cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind) {
  waited("cudaMemcpy");
  return copied(to, from, bytes, nullptr);
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind,
                            cudaStream_t stream) {
  return copied(to, from, bytes, stream);
}

cudaError_t cudaMemset(void*, int, std::size_t) {
  null_gpu::count("kernel", "memset");
  return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void*, int, std::size_t, cudaStream_t) {
  null_gpu::count("kernel", "memset");
  return cudaSuccess;
}

// --- streams, events and waits
cudaError_t cudaDeviceSynchronize() { return waited("cudaDeviceSynchronize"); }
cudaError_t cudaStreamSynchronize(cudaStream_t) { return waited("cudaStreamSynchronize"); }
cudaError_t cudaEventSynchronize(cudaEvent_t) { return waited("cudaEventSynchronize"); }

cudaError_t cudaStreamCreate(cudaStream_t* stream) { return token(stream); }
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) { return token(stream); }

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned, int) {
  return token(stream);
}

cudaError_t cudaEventCreate(cudaEvent_t* event) { return token(event); }
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) { return token(event); }

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t, cudaEvent_t) {
  *milliseconds = 1;
  return cudaSuccess;
}

cudaError_t cudaStreamGetPriority(cudaStream_t, int* priority) {
  *priority = 0;
  return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus* status) {
  *status = cudaStreamCaptureStatusNone;
  return cudaSuccess;
}

cudaError_t cudaStreamGetCaptureInfo(cudaStream_t, cudaStreamCaptureStatus* status,
                                     unsigned long long* id, cudaGraph_t*, const cudaGraphNode_t**,
                                     const cudaGraphEdgeData**, std::size_t* nodes) {
  if (status) *status = cudaStreamCaptureStatusNone;
  if (id) *id = 0;
  if (nodes) *nodes = 0;
  return cudaSuccess;
}

cudaError_t cudaLaunchHostFunc(cudaStream_t, cudaHostFn_t function, void* data) {
  function(data);
  return cudaSuccess;
}

cudaError_t cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t function, void* data,
                                  unsigned) {
  function(stream, cudaSuccess, data);
  return cudaSuccess;
}

// --- kernels
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* found, const void*) {
  std::memset(found, 0, sizeof *found);
  found->maxThreadsPerBlock = null_gpu::kThreadsPerBlock;
  found->numRegs = 64;
  found->binaryVersion = found->ptxVersion = 10 * board().major + board().minor;
  return cudaSuccess;
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void*, int,
                                                          std::size_t) {
  *blocks = 2;
  return cudaSuccess;
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void*, int,
                                                                   std::size_t, unsigned) {
  *blocks = 2;
  return cudaSuccess;
}

cudaError_t cudaLaunchKernel(const void* function, dim3, dim3, void**, std::size_t, cudaStream_t) {
  return launched(function);
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t*, const void* function, void**) {
  return launched(function);
}

// What nvcc compiles a launch and a library's start into; not in any public header.

cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3, dim3, void**, std::size_t,
                               cudaStream_t) {
  return launched(reinterpret_cast<const void*>(kernel));
}

cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* function) {
  *kernel = reinterpret_cast<cudaKernel_t>(const_cast<void*>(function));
  return cudaSuccess;
}

void** __cudaRegisterFatBinary(void*) { return static_cast<void**>(std::calloc(1, 64)); }
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
void __cudaRegisterVar(void**, char*, char*, const char*, int, std::size_t, int, int) {}
char __cudaInitModule(void**) { return 1; }

void __cudaRegisterFunction(void**, const char* function, char* name, const char*, int, void*,
                            void*, void*, void*, int*) {
  std::lock_guard<std::mutex> guard(names_mutex);
  kernel_names()[function] = name;
}

struct LaunchShape {
  dim3 grid, block;
  std::size_t shared;
  void* stream;
};

static thread_local LaunchShape launch_shape;

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, std::size_t shared, void* stream) {
  launch_shape = {grid, block, shared, stream};
  return 0;
}

cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, std::size_t* shared,
                                       void* stream) {
  *grid = launch_shape.grid;
  *block = launch_shape.block;
  *shared = launch_shape.shared;
  *static_cast<void**>(stream) = launch_shape.stream;
  return cudaSuccess;
}

// --- the driver, for those who ask the runtime for its functions
cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned,
                                             unsigned long long,
                                             cudaDriverEntryPointQueryResult* result) {
  static void* driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
  *function = driver ? dlsym(driver, name) : nullptr;
  if (!*function) null_gpu::count("unmodelled", name);
  if (result) {
    *result = *function ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  }
  return *function ? cudaSuccess : cudaErrorNotSupported;
}

}  // extern "C"
