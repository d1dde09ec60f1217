// NCCL of a GPU that computes nothing, with one rank: collectives are counted with type and bytes.
//
// NOT modelled: a second rank (a communicator of several is refused, nothing would answer), the
// result of a collective, its time, and the overlap with kernels.

#include <nccl.h>

#include <cstdlib>
#include <cstring>
#include <string>

#include "ledger.h"

namespace {

struct Type {
  const char* name;
  int bytes;
};

Type type_of(ncclDataType_t type) {
  switch (type) {
    case ncclFloat32:
      return {"fp32", 4};
    case ncclBfloat16:
      return {"bf16", 2};
    case ncclFloat16:
      return {"fp16", 2};
    case ncclFloat64:
      return {"fp64", 8};
    case ncclInt64:
      return {"int64", 8};
    case ncclInt32:
      return {"int32", 4};
    default:
      return {"bytes", 1};
  }
}

ncclResult_t sent(const char* kind, std::size_t count, ncclDataType_t type) {
  const Type found = type_of(type);
  null_gpu::count("collective", std::string(kind) + " " + found.name + " " +
                                    std::to_string(count * found.bytes));
  return ncclSuccess;
}

ncclResult_t joined(ncclComm_t* communicator, int ranks) {
  if (ranks != 1) return ncclInvalidUsage;
  *communicator = static_cast<ncclComm_t>(std::calloc(1, 64));
  return ncclSuccess;
}

}  // namespace

extern "C" {

ncclResult_t ncclGetVersion(int* version) {
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t) { return "the null GPU does not model this call"; }
const char* ncclGetLastError(ncclComm_t) { return "the null GPU does not model this call"; }

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  std::memset(id, 1, sizeof *id);
  return ncclSuccess;
}

ncclResult_t ncclCommInitRank(ncclComm_t* communicator, int ranks, ncclUniqueId, int) {
  return joined(communicator, ranks);
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* communicator, int ranks, ncclUniqueId, int,
                                    ncclConfig_t*) {
  return joined(communicator, ranks);
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t, ncclResult_t* error) {
  *error = ncclSuccess;
  return ncclSuccess;
}

ncclResult_t ncclAllReduce(const void*, void*, std::size_t count, ncclDataType_t type, ncclRedOp_t,
                           ncclComm_t, cudaStream_t) {
  return sent("all_reduce", count, type);
}

ncclResult_t ncclReduce(const void*, void*, std::size_t count, ncclDataType_t type, ncclRedOp_t,
                        int, ncclComm_t, cudaStream_t) {
  return sent("reduce", count, type);
}

ncclResult_t ncclReduceScatter(const void*, void*, std::size_t count, ncclDataType_t type,
                               ncclRedOp_t, ncclComm_t, cudaStream_t) {
  return sent("reduce_scatter", count, type);
}

ncclResult_t ncclAllGather(const void*, void*, std::size_t count, ncclDataType_t type, ncclComm_t,
                           cudaStream_t) {
  return sent("all_gather", count, type);
}

ncclResult_t ncclBroadcast(const void*, void*, std::size_t count, ncclDataType_t type, int,
                           ncclComm_t, cudaStream_t) {
  return sent("broadcast", count, type);
}

ncclResult_t ncclBcast(void*, std::size_t count, ncclDataType_t type, int, ncclComm_t,
                       cudaStream_t) {
  return sent("broadcast", count, type);
}

}  // extern "C"
