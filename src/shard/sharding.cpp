#include "shard/sharding.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "base/text.h"
#include "shard/registry.h"

namespace tp::shard {
namespace {

int64_t product(std::span<const int64_t> v) {
  return std::accumulate(v.begin(), v.end(), int64_t{1}, std::multiplies<>());
}

std::vector<int64_t> strides_of(const Mesh& mesh) {
  std::vector<int64_t> strides(mesh.axes.size(), 1);
  for (size_t i = mesh.axes.size(); i-- > 1;) strides[i - 1] = strides[i] * mesh.axes[i].size;
  return strides;
}

std::vector<int> ascending(std::vector<int> devices) {
  std::sort(devices.begin(), devices.end());
  return devices;
}

size_t axis_of(const Mesh& mesh, const std::string& name) {
  for (size_t i = 0; i < mesh.axes.size(); ++i)
    if (mesh.axes[i].name == name) return i;
  std::vector<std::string> names;
  for (const Axis& a : mesh.axes) names.push_back(cat("'", a.name, "'"));
  fail(Code::kValue, cat("partition spec: the mesh has no axis '", name, "'"),
       cat("its axes are ", join(names, ", ")));
}

// Axes of the spec in order, then the others: their product counts tiles, and then replicas.
std::vector<size_t> axis_order(const Mesh& mesh, const Spec& spec) {
  std::vector<size_t> order;
  std::vector<bool> used(mesh.axes.size());
  for (const auto& names : spec)
    for (const std::string& name : names) {
      size_t at = axis_of(mesh, name);
      if (used[at])
        fail(Code::kValue, cat("partition spec: axis '", name, "' comes twice"),
             "an axis cuts one dimension only");
      used[at] = true;
      order.push_back(at);
    }
  for (size_t i = 0; i < used.size(); ++i)
    if (!used[i]) order.push_back(i);
  return order;
}

Tiles tiles_of(const Mesh& mesh, const Spec& spec, std::span<const int> devices) {
  std::vector<size_t> axes = axis_order(mesh, spec);
  std::vector<int64_t> strides = strides_of(mesh);
  Tiles t;
  for (const auto& names : spec) {
    int64_t count = 1;
    for (const std::string& name : names) count *= mesh.axes[axis_of(mesh, name)].size;
    t.counts.push_back(count);
  }
  t.replicas = mesh.devices.size() / static_cast<size_t>(product(t.counts));
  for (size_t i = 0; i < mesh.devices.size(); ++i) {
    int64_t rest = static_cast<int64_t>(i), at = 0;
    for (size_t k = axes.size(); k-- > 0;) {  // the last axis runs fastest
      at += rest % mesh.axes[axes[k]].size * strides[axes[k]];
      rest /= mesh.axes[axes[k]].size;
    }
    auto it =
        std::lower_bound(devices.begin(), devices.end(), mesh.devices[static_cast<size_t>(at)]);
    t.order.push_back(static_cast<int>(it - devices.begin()));
  }
  return canonical(std::move(t));
}

// The order as "<=[2,4]T(1,0)": numbers 0..n-1 in a grid whose axes are walked in another order.
// Empty where it is not of that form.
std::string iota_text(const std::vector<int>& order) {
  struct Walk {
    int64_t size, stride;
  };
  std::vector<Walk> axes;  // the fastest first
  for (size_t block = 1; block < order.size();) {
    int64_t stride = order[block] - order[0], size = 1;
    while (block * static_cast<size_t>(size) < order.size() &&
           order[block * static_cast<size_t>(size)] - order[0] == stride * size)
      ++size;
    axes.push_back({size, stride});
    block *= static_cast<size_t>(size);
    if (block > order.size() || order.size() % block) return {};
  }
  for (size_t i = 0; i < order.size(); ++i) {
    int64_t rest = static_cast<int64_t>(i), at = order.empty() ? 0 : order[0];
    for (const Walk& w : axes) at += rest % w.size * w.stride, rest /= w.size;
    if (at != order[i]) return {};
  }
  std::reverse(axes.begin(), axes.end());
  std::vector<size_t> by_stride(axes.size());
  std::iota(by_stride.begin(), by_stride.end(), size_t{0});
  std::stable_sort(by_stride.begin(), by_stride.end(),
                   [&](size_t a, size_t b) { return axes[a].stride > axes[b].stride; });
  std::vector<int64_t> sizes, place(axes.size());
  int64_t inner = static_cast<int64_t>(order.size());
  for (size_t k = 0; k < by_stride.size(); ++k) {
    const Walk& w = axes[by_stride[k]];
    inner /= w.size;
    if (w.stride != inner) return {};
    sizes.push_back(w.size);
    place[by_stride[k]] = static_cast<int64_t>(k);
  }
  if (order.empty() || order[0] != 0) return {};
  if (std::is_sorted(place.begin(), place.end())) return cat("<=[", order.size(), "]");
  return cat("<=[", join(sizes, ","), "]T(", join(place, ","), ")");
}

std::string gspmd_text(const Tiles& t) {
  if (t.counts.empty()) return "{replicated}";
  std::vector<int64_t> dims = t.counts;
  if (t.replicas > 1) dims.push_back(static_cast<int64_t>(t.replicas));
  std::string order = iota_text(t.order);
  return cat("{devices=[", join(dims, ","), "]", order.empty() ? join(t.order, ",") : order,
             t.replicas > 1 ? " last_tile_dim_replicate}" : "}");
}

Ref finish(Sharding made) {
  auto s = std::make_shared<Sharding>(std::move(made));
  s->gspmd = s->text = gspmd_text(s->tiles);
  bool first = s->devices.back() + 1 == static_cast<int>(s->devices.size());
  if (s->replicated() || !first) append(s->text, cat(" on ", join(s->devices, ",")));
  if (s->open) append(s->text, cat(" open, whole over ", gspmd_text(s->whole)));
  return enter(std::move(s));
}
Ref finish(Mesh mesh, Spec spec, std::vector<int> devices, Tiles tiles) {
  return finish(Sharding{.mesh = std::move(mesh),
                         .spec = std::move(spec),
                         .devices = std::move(devices),
                         .tiles = std::move(tiles)});
}

// A grid of its own for tiles that no mesh has.
Mesh mesh_of(const Tiles& t, std::span<const int> devices, Spec& spec) {
  Mesh mesh;
  for (int p : t.order) mesh.devices.push_back(devices[static_cast<size_t>(p)]);
  for (int64_t count : t.counts) {
    auto& names = spec.emplace_back();
    if (count == 1) continue;
    names.push_back(cat("_", mesh.axes.size()));
    mesh.axes.push_back({names[0], count});
  }
  if (t.replicas > 1)
    mesh.axes.push_back({cat("_", mesh.axes.size()), static_cast<int64_t>(t.replicas)});
  return mesh;
}

}  // namespace

void check_mesh(const Mesh& mesh) {
  int64_t size = 1;
  std::vector<std::string> names;
  for (const Axis& a : mesh.axes) {
    if (a.size < 1)
      fail(Code::kValue,
           cat("mesh: axis '", a.name, "' has size ", a.size, ", expected 1 or more"));
    if (std::find(names.begin(), names.end(), a.name) != names.end())
      fail(Code::kValue, cat("mesh: the axis name '", a.name, "' comes twice"));
    names.push_back(a.name);
    size *= a.size;
  }
  std::vector<int64_t> sizes;
  for (const Axis& a : mesh.axes) sizes.push_back(a.size);
  if (size != static_cast<int64_t>(mesh.devices.size()) || mesh.devices.empty())
    fail(Code::kValue, cat("mesh: ", mesh.devices.size(), " devices do not fill a mesh of shape [",
                           join(sizes, ","), "], which takes ", size));
  std::vector<int> sorted = ascending(mesh.devices);
  auto twice = std::adjacent_find(sorted.begin(), sorted.end());
  if (twice != sorted.end()) fail(Code::kValue, cat("mesh: device ", *twice, " comes twice"));
}

Tiles canonical(Tiles t) {
  if (std::all_of(t.counts.begin(), t.counts.end(), [](int64_t c) { return c == 1; })) {
    std::sort(t.order.begin(), t.order.end());
    return {{}, t.order, t.order.size()};
  }
  for (size_t i = 0; i < t.order.size(); i += t.replicas)
    std::sort(t.order.begin() + static_cast<std::ptrdiff_t>(i),
              t.order.begin() + static_cast<std::ptrdiff_t>(i + t.replicas));
  return t;
}

Ref make_sharding(const Mesh& mesh, const Spec& spec) {
  check_mesh(mesh);
  std::vector<int> devices = ascending(mesh.devices);
  Tiles tiles = tiles_of(mesh, spec, devices);
  return finish(mesh, spec, std::move(devices), std::move(tiles));
}

Ref make_open(const Mesh& mesh, const Spec& spec, const std::vector<std::string>& whole) {
  check_mesh(mesh);
  std::vector<int> devices = ascending(mesh.devices);
  Sharding s{.mesh = mesh, .spec = spec, .devices = devices, .open = true};
  s.tiles = tiles_of(mesh, spec, devices);
  s.whole = tiles_of(mesh, {whole}, devices);
  return finish(std::move(s));
}

Ref replicated_over(std::vector<int> devices) {
  Mesh mesh{devices, {{"_0", static_cast<int64_t>(devices.size())}}};
  return make_sharding(mesh, {});
}

Ref from_tiles(std::vector<int> devices, Tiles tiles) {
  tiles = canonical(std::move(tiles));
  for (const Mesh& mesh : known_meshes(devices)) {
    Spec spec;
    if (express(tiles, mesh, tiles.counts.size(), spec))
      return finish(mesh, std::move(spec), std::move(devices), std::move(tiles));
  }
  Spec spec;
  Mesh mesh = mesh_of(tiles, devices, spec);
  return finish(std::move(mesh), std::move(spec), std::move(devices), std::move(tiles));
}

bool express(const Tiles& tiles, const Mesh& mesh, size_t rank, Spec& out) {
  out.assign(rank, {});
  if (tiles.counts.empty()) return true;
  std::vector<int> devices = ascending(mesh.devices);
  std::vector<int64_t> strides = strides_of(mesh), coordinate(devices.size());
  for (size_t i = 0; i < tiles.order.size(); ++i)
    coordinate[static_cast<size_t>(tiles.order[i])] = static_cast<int64_t>(i / tiles.replicas);
  // The tile, by place in the mesh.
  auto tile = [&](size_t at) {
    auto it = std::lower_bound(devices.begin(), devices.end(), mesh.devices[at]);
    return coordinate[static_cast<size_t>(it - devices.begin())];
  };
  // Axes that move the tile, by how far: the farthest is the major one.
  std::vector<std::pair<int64_t, size_t>> moves;
  for (size_t a = 0; a < mesh.axes.size(); ++a)
    if (mesh.axes[a].size > 1)
      if (int64_t far = tile(static_cast<size_t>(strides[a])) - tile(0); far > 0)
        moves.emplace_back(far, a);
  std::stable_sort(moves.begin(), moves.end(), [](auto& x, auto& y) { return x.first > y.first; });
  size_t next = 0;
  for (size_t d = 0; d < rank; ++d)
    for (int64_t count = 1; count < tiles.counts[d] && next < moves.size(); ++next) {
      out[d].push_back(mesh.axes[moves[next].second].name);
      count *= mesh.axes[moves[next].second].size;
    }
  return tiles_of(mesh, out, devices) == tiles;
}

void check_fits(const Sharding& s, std::span<const int64_t> dims, std::string_view what) {
  if (s.replicated()) return;
  if (s.spec.size() != dims.size())
    fail(Code::kValue,
         cat(what, ": the spec has ", s.spec.size(), s.spec.size() == 1 ? " entry" : " entries",
             ", the tensor ", dims.size(), dims.size() == 1 ? " dim" : " dims"));
  for (size_t d = 0; d < dims.size(); ++d) {
    int64_t count = s.tiles.counts[d];
    if (dims[d] % count == 0) continue;
    bool one = s.spec[d].size() == 1;
    fail(Code::kValue,
         cat(what, ": dim ", d, " (", dims[d], ") is not divisible by ", one ? "axis '" : "axes '",
             join(s.spec[d], "', '"), "' (", count, ")"),
         cat("pad it to ", (dims[d] + count - 1) / count * count, ", or None for this dim"));
  }
}

Dims shard_dims(const Sharding& s, std::span<const int64_t> dims) {
  Dims out(dims);
  for (size_t d = 0; d < s.tiles.counts.size(); ++d)
    out[d] = (dims[d] + s.tiles.counts[d] - 1) / s.tiles.counts[d];
  return out;
}

Dims whole_dims(const Sharding& s, std::span<const int64_t> part) {
  Dims out(part);
  for (size_t d = 0; d < out.size() && d < s.tiles.counts.size(); ++d) out[d] *= s.tiles.counts[d];
  return out;
}

}  // namespace tp::shard
