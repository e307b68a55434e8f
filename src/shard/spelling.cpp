#include "shard/spelling.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"

namespace tp::shard {
namespace {

bool expresses(const Mesh& mesh, const Ref& s) {
  Spec spec;
  return express(s->tiles, mesh, s->tiles.counts.size(), spec) &&
         (!s->open || express(s->whole, mesh, 1, spec));
}

// Nothing to say but "whole on every device"?
bool plain(const Sharding* s) { return !s || (s->replicated() && !s->open); }

std::string name_of(size_t mesh) { return mesh ? cat("mesh_", mesh) : std::string("mesh"); }

// <["x"=2, "y"=4], device_ids=[...]>, where the devices are not in order.
std::string mesh_text(const Mesh& mesh, const std::vector<int>& devices) {
  std::string s = "<[";
  for (size_t i = 0; i < mesh.axes.size(); ++i)
    append(s, cat(i ? ", \"" : "\"", mesh.axes[i].name, "\"=", mesh.axes[i].size));
  std::vector<size_t> ids;
  for (int d : mesh.devices)
    ids.push_back(
        static_cast<size_t>(std::lower_bound(devices.begin(), devices.end(), d) - devices.begin()));
  if (!std::is_sorted(ids.begin(), ids.end())) append(s, cat("], device_ids=[", join(ids, ", ")));
  return s + "]>";
}

// "x", "y"
std::string names_text(const std::vector<std::string>& names) {
  return names.empty() ? "" : cat("\"", join(names, "\", \""), "\"");
}

// [{"x", "y"}, {}]; where further axes may cut, [{"x", "y", ?}, {?}]
std::string spec_text(const Spec& spec, bool open) {
  std::string s = "[";
  for (size_t d = 0; d < spec.size(); ++d)
    append(s, cat(d ? ", {" : "{", names_text(spec[d]),
                  !open             ? ""
                  : spec[d].empty() ? "?"
                                    : ", ?",
                  "}"));
  return s + "]";
}

}  // namespace

Spelling::Spelling(Form form, std::vector<int> devices, std::span<const Ref> all)
    : form_(form), devices_(std::move(devices)) {
  if (form_ == Form::kGspmd) return;
  std::vector<Mesh> candidates;
  for (const Ref& s : all)
    if (!plain(s.get())) candidates.push_back(s->mesh);
  for (Mesh& m : known_meshes(devices_)) candidates.push_back(std::move(m));
  for (const Ref& s : all) {
    if (plain(s.get()) || mesh_of_.contains(s->text)) continue;
    auto serves = [&](const Mesh& m) {
      return std::all_of(all.begin(), all.end(), [&](const Ref& r) { return expresses(m, r); });
    };
    auto it = std::find_if(candidates.begin(), candidates.end(), serves);
    const Mesh& mesh = it == candidates.end() ? s->mesh : *it;
    auto at = std::find(meshes_.begin(), meshes_.end(), mesh);
    mesh_of_[s->text] = static_cast<size_t>(at - meshes_.begin());
    if (at == meshes_.end()) meshes_.push_back(mesh);
  }
  if (meshes_.empty()) meshes_.push_back(replicated_over(devices_)->mesh);
}

std::string Spelling::top() const {
  std::string s;
  if (form_ == Form::kShardy)
    for (size_t i = 0; i < meshes_.size(); ++i)
      append(s, cat("  sdy.mesh @", name_of(i), " = ", mesh_text(meshes_[i], devices_), "\n"));
  return s;
}

std::string Spelling::value(const Sharding* s, size_t rank) const {
  bool whole = plain(s);
  if (form_ == Form::kGspmd) return cat("\"", whole ? "{replicated}" : s->gspmd, "\"");
  Spec spec(rank);
  size_t mesh = 0;
  if (!whole) {
    auto it = mesh_of_.find(s->text);
    check(it != mesh_of_.end(), "a module's shardings are known before it is written");
    mesh = it->second;
    check(express(s->tiles, meshes_[mesh], rank, spec), "a sharding stands on its mesh");
  }
  std::string text =
      cat("#sdy.sharding<@", name_of(mesh), ", ", spec_text(spec, !whole && s->open));
  Spec axes;
  if (!whole && s->open && express(s->whole, meshes_[mesh], 1, axes) && !axes[0].empty())
    append(text, cat(", replicated={", names_text(axes[0]), "}"));
  return text + ">";
}

std::string Spelling::unspecified(const Sharding& s, size_t rank) {
  std::vector<size_t> dims;
  for (size_t d = 0; s.open && d < rank; ++d)
    if (s.replicated() || s.tiles.counts[d] == 1) dims.push_back(d);
  return dims.empty() ? "" : cat("unspecified_dims=[", join(dims, ","), "]");
}

std::string Spelling::attribute(const Sharding* s, size_t rank) const {
  return cat(form_ == Form::kGspmd ? "mhlo.sharding = " : "sdy.sharding = ", value(s, rank));
}

}  // namespace tp::shard
