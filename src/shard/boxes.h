// Boxes: the part of a tensor that a device holds, as places in the whole one, and copies between
// the two. Pure functions over dense row-major bytes; any thread.
#pragma once
#include <cstddef>

#include "shard/sharding.h"

namespace tp::shard {

struct Box {
  Dims start, size;
};
Box box_of(const Sharding& s, std::span<const int64_t> dims, size_t partition);
// The partition that reads of a tile go to, by tile: its first holder.
std::vector<int> first_holders(const Tiles& tiles);

// Where the box is one run of bytes of the whole, its offset; else -1.
int64_t run_offset(std::span<const int64_t> dims, const Box& box, int64_t element);
// `part` has the box's elements, densely.
void take_box(const void* whole, std::span<const int64_t> dims, const Box& box, int64_t element,
              void* part);
void put_box(void* whole, std::span<const int64_t> dims, const Box& box, int64_t element,
             const void* part);

}  // namespace tp::shard
