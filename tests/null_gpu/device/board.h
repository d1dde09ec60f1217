// The boards that the null GPU can pretend to be: $NULL_GPU_BOARD, H200 by default.
//
// Only what libraries ask before they choose a kernel. The name starts with the words by which
// `pipeline/base/null_device.py` knows a device that computes nothing.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <cstring>

namespace null_gpu {

struct Board {
  const char* key;
  const char* name;
  int major;
  int minor;
  int processors;
  std::size_t memory;        // bytes
  int shared_per_block;      // most bytes a block may ask for
  int shared_per_processor;  // bytes
  int l2_cache;              // bytes
  int bus_bits;
};

constexpr int kDriverVersion = 13000;
constexpr int kThreadsPerBlock = 1024;
constexpr int kThreadsPerProcessor = 2048;
constexpr int kRegisters = 65536;  // per processor and per block
constexpr int kSharedByDefault = 49152;
constexpr int kWarp = 32;

// Data sheets of the SXM boards, and table "Technical Specifications per Compute Capability" of the
// CUDA C++ programming guide.
constexpr Board kBoards[] = {
    {"H200", "Tenfold null GPU H200", 9, 0, 132, 141'000'000'000, 232448, 233472, 62914560, 6144},
    {"H100", "Tenfold null GPU H100", 9, 0, 132, 80'000'000'000, 232448, 233472, 52428800, 5120},
    {"A100", "Tenfold null GPU A100", 8, 0, 108, 80'000'000'000, 166912, 167936, 41943040, 5120},
    {"B200", "Tenfold null GPU B200", 10, 0, 148, 180'000'000'000, 232448, 233472, 132120576,
     8192},
};

inline const Board& board() {
  const char* wanted = std::getenv("NULL_GPU_BOARD");
  for (const Board& one : kBoards) {
    if (wanted && std::strcmp(one.key, wanted) == 0) return one;
  }
  return kBoards[0];
}

}  // namespace null_gpu
