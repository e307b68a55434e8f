#include "shard/boxes.h"

#include <algorithm>
#include <cstring>

namespace tp::shard {
namespace {

// Calls run(offset in the whole, offset in the part, bytes) for each run of bytes of the box.
template <class F>
void for_each_run(std::span<const int64_t> dims, const Box& box, int64_t element, F&& run) {
  size_t rank = dims.size();
  for (int64_t n : box.size)
    if (n == 0) return;
  // Dimensions from `inner` on are whole: one run holds them, and what the one before has.
  size_t inner = rank;
  int64_t bytes = element;
  while (inner > 0 && box.size[inner - 1] == dims[inner - 1]) bytes *= dims[--inner];
  if (inner > 0) bytes *= box.size[inner - 1];
  Dims stride;
  stride.resize(rank);
  for (size_t d = rank; d-- > 0;) stride[d] = d + 1 == rank ? element : stride[d + 1] * dims[d + 1];
  size_t outer = inner > 0 ? inner - 1 : 0;
  Dims at;
  at.resize(outer);
  for (int64_t part = 0;; part += bytes) {
    int64_t offset = inner > 0 ? box.start[outer] * stride[outer] : 0;
    for (size_t d = 0; d < outer; ++d) offset += (box.start[d] + at[d]) * stride[d];
    run(offset, part, bytes);
    size_t d = outer;
    while (d > 0 && ++at[d - 1] == box.size[d - 1]) at[--d] = 0;
    if (d == 0) return;
  }
}

}  // namespace

Box box_of(const Sharding& s, std::span<const int64_t> dims, size_t partition) {
  Box box;
  box.size = shard_dims(s, dims);
  box.start.resize(dims.size());
  if (s.replicated()) return box;
  const auto& order = s.tiles.order;
  auto at = std::find(order.begin(), order.end(), static_cast<int>(partition)) - order.begin();
  auto tile = static_cast<int64_t>(static_cast<size_t>(at) / s.tiles.replicas);
  for (size_t d = dims.size(); d-- > 0;) {
    box.start[d] = tile % s.tiles.counts[d] * box.size[d];
    tile /= s.tiles.counts[d];
  }
  return box;
}

std::vector<int> first_holders(const Tiles& tiles) {
  std::vector<int> out;
  for (size_t i = 0; i < tiles.order.size(); i += tiles.replicas) out.push_back(tiles.order[i]);
  return out;
}

int64_t run_offset(std::span<const int64_t> dims, const Box& box, int64_t element) {
  int64_t offset = 0, stride = element;
  bool whole = true;  // are the dimensions from here on?
  for (size_t d = dims.size(); d-- > 0;) {
    if (!whole && box.size[d] != 1) return -1;
    whole = whole && box.size[d] == dims[d];
    offset += box.start[d] * stride;
    stride *= dims[d];
  }
  return offset;
}

void take_box(const void* whole, std::span<const int64_t> dims, const Box& box, int64_t element,
              void* part) {
  for_each_run(dims, box, element, [&](int64_t from, int64_t to, int64_t bytes) {
    std::memcpy(static_cast<char*>(part) + to, static_cast<const char*>(whole) + from,
                static_cast<size_t>(bytes));
  });
}

void put_box(void* whole, std::span<const int64_t> dims, const Box& box, int64_t element,
             const void* part) {
  for_each_run(dims, box, element, [&](int64_t to, int64_t from, int64_t bytes) {
    std::memcpy(static_cast<char*>(whole) + to, static_cast<const char*>(part) + from,
                static_cast<size_t>(bytes));
  });
}

}  // namespace tp::shard
