#include "lower/manual.h"

#include "base/error.h"
#include "base/text.h"
#include "ir/region.h"
#include "lower/control.h"

namespace tp::lower {
namespace {

using hlo::V;
using ir::Type;

struct Placed {
  shard::Ref sharding;  // null: whole on each device
  Type type;
};

// #sdy.sharding_per_value<[<@mesh, [{"x"}, {}]>, <@mesh, []>]>
std::string shardings_text(const std::vector<Placed>& values, const shard::Spelling& spelling) {
  std::string s = "#sdy.sharding_per_value<[";
  constexpr size_t kPrefix = sizeof "#sdy.sharding" - 1;
  for (size_t i = 0; i < values.size(); ++i)
    append(s,
           cat(i ? ", " : "",
               spelling.value(values[i].sharding.get(), static_cast<size_t>(values[i].type.rank()))
                   .substr(kPrefix)));
  return s + "]>";
}

// The names of a mesh's axes, as the module has them: {"x", "y"}.
std::string axes_text(const shard::Spelling& spelling, std::string_view mesh) {
  std::string top = spelling.top(), s = "{";
  size_t at = top.find(cat("sdy.mesh ", mesh, " = <["));
  check(at != std::string::npos, "a sharding's mesh stands in the module");
  size_t end = top.find(']', at);
  for (size_t quote = top.find('"', at); quote < end; quote = top.find('"', quote + 1)) {
    size_t close = top.find('"', quote + 1);
    append(s, cat(s.size() > 1 ? ", " : "", top.substr(quote, close + 1 - quote)));
    quote = close;
  }
  return s + "}";
}

std::vector<Placed> placed(const std::vector<std::string>& texts, std::span<const Type> types) {
  std::vector<Placed> out;
  for (size_t i = 0; i < types.size(); ++i)
    out.push_back({i < texts.size() ? shard::find(texts[i]) : nullptr, types[i]});
  return out;
}

// All stand on the module's first mesh, whose axes the region takes over.
void check_one_mesh(std::string_view text) {
  if (text.find("@mesh_") != std::string_view::npos)
    fail(Code::kValue, "spmd.manual: one program has several meshes that have no axes in common",
         "use one mesh, or call torch_pjrt.sync() in front of the region");
}

}  // namespace

std::vector<V> lower_manual(hlo::Builder& b, const ir::Node& n, std::span<const V> in,
                            const shard::Spelling& spelling) {
  if (spelling.form() != shard::Form::kShardy)
    fail(Code::kNotImplemented, "spmd.manual: GSPMD's form has no manual regions",
         "TORCH_PJRT_SHARDY=1, or manual.region(..., replicas=True)");
  ir::ManualShape shape = ir::manual_shape(n);
  const ir::Region& region = *ir::regions_of(n)[0];
  std::vector<Type> types;
  for (const V& v : in) types.push_back(v.type);
  std::string from = shardings_text(placed(shape.in, types), spelling);
  std::string to = shardings_text(placed(shape.out, n.types()), spelling);
  check_one_mesh(from);
  check_one_mesh(to);
  const ir::Location& where = ir::location_of(n.location());
  b.set_location(n.kind().name, where.file, where.line);
  std::vector<Type> args[] = {region.parameter_types};
  hlo::Region bodies[] = {[&](hlo::Builder&, std::span<const V> parameters) {
    std::vector<V> out = run_region(b, region, parameters);
    b.set_location(n.kind().name, where.file, where.line);
    return out;
  }};
  auto out = b.region_op("sdy.manual_computation", in, n.types(),
                         cat("in_shardings = ", from, ", out_shardings = ", to,
                             ", manual_axes = #sdy<manual_axes", axes_text(spelling, "@mesh"), ">"),
                         args, bodies);
  b.set_location({});
  return out;
}

}  // namespace tp::lower
