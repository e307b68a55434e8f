// Shardings: which part of a tensor each device of a mesh holds. A mesh names the axes of a grid of
// devices, a spec says which axes cut each dimension, and tiles are what follows: how many parts a
// dimension has and which devices hold each. Tiles are canonical: two spellings of one placement
// have equal tiles and one text, whatever their meshes are called, so that texts can stand in keys.
//
// Devices are indices into the client's devices. Within a program they are *partitions*: 0..n-1, in
// ascending order of device. Pure functions and immutable objects; any thread.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/small_vector.h"

namespace tp::shard {

struct Axis {
  std::string name;
  int64_t size;
  friend bool operator==(const Axis&, const Axis&) = default;
};

struct Mesh {
  std::vector<int> devices;  // row-major over the axes
  std::vector<Axis> axes;
  friend bool operator==(const Mesh&, const Mesh&) = default;
};
// Throws kValue where sizes and devices do not fit together or a name or device comes twice.
void check_mesh(const Mesh& mesh);

// By dimension: the axes that cut it, the major one first; none: the dimension is whole.
using Spec = std::vector<std::vector<std::string>>;

struct Tiles {
  std::vector<int64_t> counts;  // parts by dimension; empty: replicated
  std::vector<int> order;       // partitions by tile (row-major), the holders of one tile ascending
  size_t replicas = 1;          // partitions that hold one tile
  friend bool operator==(const Tiles&, const Tiles&) = default;
};

struct Sharding {
  Mesh mesh;
  Spec spec;
  std::vector<int> devices;  // of partition 0, 1, ...: ascending
  Tiles tiles;
  std::string gspmd;  // "{devices=[4,1,2]<=[2,4]T(1,0) last_tile_dim_replicate}", "{replicated}"
  std::string text;   // that and the devices, where it does not follow that they are 0..n-1
  // Of constraints only: axes that the spec does not name may cut as propagation likes, save those
  // that make the tiles of `whole`.
  bool open = false;
  Tiles whole = {};
  bool replicated() const { return tiles.counts.empty(); }
};
using Ref = std::shared_ptr<const Sharding>;

// Throws kValue where the spec names an axis that the mesh has not, or one twice.
Ref make_sharding(const Mesh& mesh, const Spec& spec);
// A constraint that says nothing of axes other than the spec's, which cut as it says, and `whole`,
// which cut nothing.
Ref make_open(const Mesh& mesh, const Spec& spec, const std::vector<std::string>& whole);
Ref replicated_over(std::vector<int> devices);
// What a plugin says that a program's result is: over a mesh that is known where one has these
// tiles, else over one that is made up (axes _0, _1).
Ref from_tiles(std::vector<int> devices, Tiles tiles);
// Holders of one tile ascending, no tiles of one part only: the form that Tiles promises.
Tiles canonical(Tiles tiles);

// What was made before, by text; null where nothing was.
Ref find(std::string_view text);
// Was any sharding ever made in this process? Until then nothing needs to look for one.
bool any();
// Meshes over exactly these devices, in the order in which they came up.
std::vector<Mesh> known_meshes(std::span<const int> devices);

// Do two place every element alike?
inline bool same(const Sharding& a, const Sharding& b) {
  return a.devices == b.devices && a.tiles == b.tiles;
}
// The spec over `mesh` that gives these tiles; false where there is none.
bool express(const Tiles& tiles, const Mesh& mesh, size_t rank, Spec& out);

// Throws kValue, in the user's words, where a tensor of these sizes cannot be cut so: `what` is the
// function's name.
void check_fits(const Sharding& s, std::span<const int64_t> dims, std::string_view what);
// The sizes of each part.
Dims shard_dims(const Sharding& s, std::span<const int64_t> dims);
// Of what is put together from parts of these sizes.
Dims whole_dims(const Sharding& s, std::span<const int64_t> part);

}  // namespace tp::shard
