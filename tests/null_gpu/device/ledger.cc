// The counters behind every call of the null GPU, and the map of its memory.
//
// Python reads the counters through `null_gpu_write`, once per question: a line per event with
// kind, name and count, separated by tabs.

#include "ledger.h"

#include <sys/mman.h>

#include <cstdint>
#include <cstdio>
#include <map>
#include <mutex>
#include <utility>

namespace {

struct Block {
  std::size_t bytes;
  null_gpu::Place place;
};

struct Ledger {
  std::mutex mutex;
  std::map<std::pair<std::string, std::string>, long> counts;
  std::map<std::uintptr_t, Block> blocks;
};

// Never destroyed: libraries still call the device while the process ends.
Ledger& ledger() {
  static Ledger* one = new Ledger;
  return *one;
}

constexpr std::size_t kPage = 4096;

}  // namespace

namespace null_gpu {

void count(const char* kind, const std::string& name) {
  std::lock_guard<std::mutex> guard(ledger().mutex);
  ledger().counts[{kind, name}]++;
}

const char* name_of(Place place) {
  switch (place) {
    case Place::device:
      return "device";
    case Place::pinned:
      return "pinned";
    default:
      return "pageable";
  }
}

void* reserve(std::size_t bytes, Place place) {
  const std::size_t rounded = (bytes + kPage - 1) / kPage * kPage;
  void* start = mmap(nullptr, rounded, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (start == MAP_FAILED) return nullptr;
  std::lock_guard<std::mutex> guard(ledger().mutex);
  ledger().blocks[reinterpret_cast<std::uintptr_t>(start)] = {rounded, place};
  return start;
}

void release(void* start) {
  std::lock_guard<std::mutex> guard(ledger().mutex);
  const auto found = ledger().blocks.find(reinterpret_cast<std::uintptr_t>(start));
  if (found == ledger().blocks.end()) return;
  munmap(start, found->second.bytes);
  ledger().blocks.erase(found);
}

Place place_of(const void* address) {
  const auto wanted = reinterpret_cast<std::uintptr_t>(address);
  std::lock_guard<std::mutex> guard(ledger().mutex);
  auto after = ledger().blocks.upper_bound(wanted);
  if (after == ledger().blocks.begin()) return Place::pageable;
  const auto& [start, block] = *--after;
  return wanted < start + block.bytes ? block.place : Place::pageable;
}

}  // namespace null_gpu

extern "C" {

void null_gpu_count(const char* kind, const char* name) { null_gpu::count(kind, name); }

void null_gpu_reset() {
  std::lock_guard<std::mutex> guard(ledger().mutex);
  ledger().counts.clear();
}

// Returns 0 if the file was written.
int null_gpu_write(const char* path) {
  FILE* file = std::fopen(path, "w");
  if (!file) return 1;
  std::lock_guard<std::mutex> guard(ledger().mutex);
  for (const auto& [event, times] : ledger().counts) {
    std::fprintf(file, "%s\t%s\t%ld\n", event.first.c_str(), event.second.c_str(), times);
  }
  return std::fclose(file);
}

}  // extern "C"
