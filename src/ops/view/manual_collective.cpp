#include "ops/view/manual_collective.h"

#include "base/error.h"
#include "base/text.h"

namespace tp::ops {
namespace {

// dense<[[0, 1], [2, 3]]> : tensor<2x2xi64>
std::string rows_text(const IntList& flat, int64_t width) {
  int64_t count = static_cast<int64_t>(flat.size()) / width;
  std::string s = "dense<[";
  for (int64_t r = 0; r < count; ++r) {
    append(s, r ? ", [" : "[");
    for (int64_t c = 0; c < width; ++c)
      append(s, cat(c ? ", " : "", flat[static_cast<size_t>(r * width + c)]));
    append(s, "]");
  }
  return cat(s, "]> : tensor<", count, "x", width, "xi64>");
}

class Manual {
 public:
  explicit Manual(Lowering& l) : l_(l), b_(l.builder()), groups_(l.ints("groups")) {}

  V lower() {
    std::string_view kind = l_.text_or("kind", "");
    IntList p = l_.ints("parameters");
    if (kind == "all_reduce") return reduced("stablehlo.all_reduce", p[0], grouped());
    if (kind == "reduce_scatter")
      return reduced("stablehlo.reduce_scatter", p[0],
                     cat("scatter_dimension = ", p[1], " : i64, ", grouped()));
    if (kind == "all_gather")
      return b_.op("stablehlo.all_gather", {self()}, l_.out(),
                   cat("all_gather_dim = ", p[0], " : i64, ", grouped()));
    if (kind == "all_to_all")
      return b_.op("stablehlo.all_to_all", {self()}, l_.out(),
                   cat("split_dimension = ", p[0], " : i64, concat_dimension = ", p[1],
                       " : i64, split_count = ", size(), " : i64, ", replica_groups(), between()));
    if (kind == "permute")
      return b_.op("stablehlo.collective_permute", {self()}, l_.out(),
                   cat("source_target_pairs = ", rows_text(groups_, 2), between()));
    check(kind == "index", "a manual collective is of a known kind");
    return index();
  }

 private:
  V self() { return l_.in("self"); }
  int64_t size() { return l_.i("group_size"); }
  std::string replica_groups() { return cat("replica_groups = ", rows_text(groups_, size())); }
  // Each collective of a module has a channel of its own.
  std::string channel() {
    return cat("channel_handle = #stablehlo.channel_handle<handle = ", b_.statements() + 1,
               ", type = 1>");
  }
  // Partitions tell each other things by way of a channel, replicas without one.
  bool of_replicas() { return l_.b_or("replicas", false); }
  std::string between() { return of_replicas() ? "" : cat(", ", channel()); }
  std::string grouped() {
    return of_replicas() ? replica_groups()
                         : cat(replica_groups(), ", ", channel(), ", use_global_device_ids");
  }

  V reduced(std::string_view name, int64_t how, const std::string& attrs) {
    static constexpr std::string_view kOps[] = {"stablehlo.add", "stablehlo.multiply",
                                                "stablehlo.minimum", "stablehlo.maximum"};
    Type one = ir::scalar_type(l_.out().dtype());
    std::vector<Type> args[] = {{one, one}};
    hlo::Region body[] = {[&](Builder& b, std::span<const V> in) {
      return std::vector<V>{b.binary(kOps[how], in[0], in[1])};
    }};
    Type out = l_.out();
    V in = self();
    return b_.region_op(name, {&in, 1}, {&out, 1}, attrs, args, body)[0];
  }

  V index() {
    V id = b_.op(of_replicas() ? "stablehlo.replica_id" : "stablehlo.partition_id", {},
                 ir::scalar_type(DType::kU32));
    V at = b_.convert(id, DType::kS64);
    V one =
        b_.dynamic_slice(b_.constant_list(groups_, DType::kS64), std::vector<V>{at}, IntList{1});
    return b_.reshape(one, {});
  }

  Lowering& l_;
  Builder& b_;
  IntList groups_;
};

}  // namespace

void manual_collective_type(const Args& a, std::vector<Type>& out) {
  Type t = a.type("self");
  bool index = a.text_or("kind", "") == "index";
  out.push_back(ir::make_type(index ? DType::kS64 : t.dtype(), a.ints("shape")));
}

void manual_collective_lower(Lowering& l, std::vector<V>& out) { out.push_back(Manual(l).lower()); }

}  // namespace tp::ops
