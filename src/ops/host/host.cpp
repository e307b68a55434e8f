#include "ops/host/host.h"

#include <string>
#include <unordered_map>

#include "base/error.h"
#include "base/forks.h"
#include "base/text.h"
#include "ops/core/eager_text.h"
#include "ops/core/numbers.h"

namespace tp::ops {
namespace {

// Everything that the call needs besides its operands stands in the module's text, so that a stored
// program runs in another process: attribute words hold no address (ir/attrs.h).
std::string call_text(const ir::Node& n, std::string_view op, const IntList& inputs) {
  IntList words, python;
  for (uint64_t w : n.attrs().words()) words.push_back(static_cast<int64_t>(w));
  for (size_t i = 0; i < n.operands().size(); ++i)
    if (&n.operands()[i].node->kind() == &ir::number_kind(true))
      python.push_back(static_cast<int64_t>(i));
  std::string s = cat(kHostOp, " = \"", op, "\", ", kHostNode, " = ", n.slot, " : i64");
  if (!words.empty()) s += cat(", ", kHostWords, " = ", hlo::i64_array(words));
  if (!inputs.empty()) s += cat(", ", kHostInputs, " = ", hlo::i64_array(inputs));
  if (!python.empty()) s += cat(", ", kHostPython, " = ", hlo::i64_array(python));
  return s;
}

// Appends the numbers that are inputs to the operands; gives the words that they stand for.
IntList add_inputs(const Lowering& l, std::vector<V>& in) {
  IntList words;
  if (l.inputs().empty()) return words;
  std::vector<size_t> all = number_words(*row_of(l.node().kind()), l.node().attrs());
  check(all.size() == l.inputs().size(), "a host call's numbers are those of its attributes");
  for (size_t i = 0; i < all.size(); ++i) {
    if (!l.inputs()[i]) continue;
    in.push_back(l.inputs()[i]);
    words.push_back(static_cast<int64_t>(all[i]));
  }
  return words;
}

void host_row_call(Lowering& l, std::vector<V>& out) { host_call(l, out, l.node().kind().name); }

// --- types that PyTorch cannot tell from made-up values ------------------------------------------

// lengths [..., n] or offsets [..., n + 1] stand for n segments of data's dim `axis`.
void segment_reduce_type(const Args& a, std::vector<Type>& out) {
  Type data = a.type("data");
  if (!ir::is_float(data.dtype()))
    fail(Code::kNotImplemented, not_implemented_for("_segment_reduce_cpu", data.dtype()));
  bool lengths = a.operand("lengths") >= 0;
  if (!lengths && a.operand("offsets") < 0) throw NoType();
  Type segments = a.type(lengths ? "lengths" : "offsets");
  int64_t axis = a.dim("axis", data.rank());
  if (segments.rank() != axis + 1 || data.rank() <= axis) throw NoType();
  IntList dims(segments.dims().begin(), segments.dims().end());
  if (!lengths && --dims.back() < 0) throw NoType();
  dims.insert(dims.end(), data.dims().begin() + axis + 1, data.dims().end());
  out.push_back(data.with(dims));
}

// The result, and the token that orders collectives (src/torch/collective.h).
void collective_type(const Args& a, std::vector<Type>& out) {
  out.push_back(a.type("input").with(a.ints("shape")));
  out.push_back(a.type("token"));
}

// Of most host ops nothing is known but the name. Any of their numbers may be an input: they are
// computed when the program runs, and results have the shapes that were recorded.
constexpr Row kKnown[] = {
    {.name = "aten::segment_reduce", .type = segment_reduce_type, .general = kAllNumbers},
    {.name = "aten::cholesky", .general = kAllNumbers, .out = {.row_major = true}},
    {.name = "torch_pjrt::collective", .type = collective_type, .effects = true},
};

Row row_for(std::string_view name) {
  for (const Row& r : kKnown)
    if (r.name == name) return r;
  return {.name = "", .general = kAllNumbers};
}

struct HostRow {
  std::string name;
  Row row;
  ir::OpKind kind;
};

struct HostRows {
  TableMutex mu;
  std::unordered_map<std::string_view, std::unique_ptr<HostRow>> by_name;
  std::unordered_map<const void*, HostRow*> by_address;  // of its row, and of its kind
};
HostRows& rows() {
  static HostRows* r = new HostRows;  // never destroyed: nodes point at its kinds
  return *r;
}

HostRow* find(const void* address) {
  HostRows& all = rows();
  std::lock_guard lock(all.mu);
  auto it = all.by_address.find(address);
  return it == all.by_address.end() ? nullptr : it->second;
}

}  // namespace

const Row& host_row(std::string_view name) {
  HostRows& all = rows();
  std::lock_guard lock(all.mu);
  auto it = all.by_name.find(name);
  if (it != all.by_name.end()) return it->second->row;
  auto made = std::make_unique<HostRow>();
  HostRow& r = *made;
  r.name = name;
  r.row = row_for(name);
  r.row.name = r.name.c_str();
  r.row.lower = host_row_call;
  r.kind = ir::make_kind(r.name.c_str());
  r.kind.host = true;
  all.by_address[&r.row] = all.by_address[&r.kind] = &r;
  all.by_name.emplace(r.name, std::move(made));
  return r.row;
}

void host_call(Lowering& l, std::vector<V>& out, std::string_view op) {
  const ir::Node& n = l.node();
  std::vector<V> in;
  for (size_t i = 0; i < n.operands().size(); ++i) in.push_back(l.in(i));
  IntList inputs = add_inputs(l, in);
  std::vector<Type> types;
  for (Type t : n.types())
    if (t) types.push_back(t);
  const Row* row = host_row_of(n.kind());
  std::vector<V> made = l.builder().custom_call(kHostTarget, in, types, call_text(n, op, inputs),
                                                row && row->effects);
  size_t next = 0;
  for (Type t : n.types()) out.push_back(t ? made[next++] : V{});
}

Family known_host_rows() { return kKnown; }

const ir::OpKind* host_kind_of(const Row& row) {
  HostRow* r = find(&row);
  return r ? &r->kind : nullptr;
}

const Row* host_row_of(const ir::OpKind& kind) {
  HostRow* r = find(&kind);
  return r ? &r->row : nullptr;
}

}  // namespace tp::ops
