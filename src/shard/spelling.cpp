#include "shard/spelling.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"

namespace tp::shard {
namespace {

bool expresses(const Mesh& mesh, const Ref& s) {
  Spec spec;
  return express(s->tiles, mesh, s->tiles.counts.size(), spec);
}

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

// [{"x", "y"}, {}]
std::string spec_text(const Spec& spec) {
  std::string s = "[";
  for (size_t d = 0; d < spec.size(); ++d)
    append(s, cat(d ? ", {" : "{", spec[d].empty() ? "" : "\"", join(spec[d], "\", \""),
                  spec[d].empty() ? "}" : "\"}"));
  return s + "]";
}

}  // namespace

Spelling::Spelling(Form form, std::vector<int> devices, std::span<const Ref> all)
    : form_(form), devices_(std::move(devices)) {
  if (form_ == Form::kGspmd) return;
  std::vector<Mesh> candidates;
  for (const Ref& s : all)
    if (!s->replicated()) candidates.push_back(s->mesh);
  for (Mesh& m : known_meshes(devices_)) candidates.push_back(std::move(m));
  for (const Ref& s : all) {
    if (s->replicated() || mesh_of_.contains(s->text)) continue;
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
  bool whole = !s || s->replicated();
  if (form_ == Form::kGspmd) return cat("\"", whole ? "{replicated}" : s->gspmd, "\"");
  Spec spec(rank);
  size_t mesh = 0;
  if (!whole) {
    auto it = mesh_of_.find(s->text);
    check(it != mesh_of_.end(), "a module's shardings are known before it is written");
    mesh = it->second;
    check(express(s->tiles, meshes_[mesh], rank, spec), "a sharding stands on its mesh");
  }
  return cat("#sdy.sharding<@", name_of(mesh), ", ", spec_text(spec), ">");
}

std::string Spelling::attribute(const Sharding* s, size_t rank) const {
  return cat(form_ == Form::kGspmd ? "mhlo.sharding = " : "sdy.sharding = ", value(s, rank));
}

}  // namespace tp::shard
