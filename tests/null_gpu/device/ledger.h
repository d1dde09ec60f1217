// What the null GPU was asked to do, and where its memory is. See ../README.md.
#pragma once

#include <cstddef>
#include <string>

namespace null_gpu {

// Count one event. kind: kernel, product, wait, copy, beside, collective, memory or
// unmodelled.
void count(const char* kind, const std::string& name);

enum class Place { pageable, pinned, device };

const char* name_of(Place place);

// Address space for `bytes` on the device or pinned on the host, rounded up to pages. Device memory
// takes none of the machine's until it is written, and nothing but copies from the host writes it.
void* reserve(std::size_t bytes, Place place);

// Give back what `reserve` returned; anything else is ignored.
void release(void* start);

Place place_of(const void* address);

}  // namespace null_gpu
