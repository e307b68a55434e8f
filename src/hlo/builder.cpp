// Builder's core: statements, regions, constants and the module around them. Text is appended in
// place, so a statement costs little more than its bytes. Shape, region and structured ops:
// builder_ops.cpp.
#include "hlo/builder.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "base/text.h"
#include "hlo/portable.h"

namespace tp::hlo {
namespace {

void append_ids(std::string& s, std::span<const V> v) {
  for (size_t i = 0; i < v.size(); ++i) {
    if (i) s += ", ";
    s += '%';
    append(s, v[i].id);
  }
}

template <class T, class Text>
void append_types(std::string& s, std::span<const T> v, const Text& mlir) {
  s += '(';
  for (size_t i = 0; i < v.size(); ++i) {
    if (i) s += ", ";
    s += mlir(v[i]);
  }
  s += ')';
}
const std::string& mlir_of(const V& v) { return v.type.mlir(); }

// MLIR's string literal escapes are a backslash with two hex digits, \" and \\.
std::string quoted(std::string_view text) {
  static const char* kHex = "0123456789abcdef";
  std::string s = "\"";
  for (char c : text) {
    auto u = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\')
      s += '\\', s += c;
    else if (u < 0x20 || u == 0x7f)
      s += '\\', s += kHex[u >> 4], s += kHex[u & 15];
    else
      s += c;
  }
  return s + '"';
}

struct FloatFormat {
  double largest;  // anything that rounds beyond it is infinite
  const char *inf, *ninf, *nan;
};
// float8_e4m3fn has no infinity: literals saturate, as PyTorch's do.
FloatFormat float_format(DType t) {
  switch (t) {
    case DType::kF16:
      return {65519.999999, "0x7C00", "0xFC00", "0x7E00"};
    case DType::kBF16:
      return {3.3961775292304957e38, "0x7F80", "0xFF80", "0x7FC0"};
    case DType::kF8E4M3FN:
      return {464.0, "0x7F", "0xFF", "0x7F"};
    case DType::kF8E5M2:
      return {61439.999999, "0x7C", "0xFC", "0x7E"};
    case DType::kF32:
    case DType::kC64:
      return {3.4028235677973362e38, "0x7F800000", "0xFF800000", "0x7FC00000"};
    default:
      return {std::numeric_limits<double>::max(), "0x7FF0000000000000", "0xFFF0000000000000",
              "0x7FF8000000000000"};
  }
}

// A literal of dtype t: MLIR wants a dot in every decimal float and bit patterns for what is not
// finite.
void append_float(std::string& s, double v, DType t) {
  if (t == DType::kF8E4M3FN && !std::isnan(v)) v = std::clamp(v, -448.0, 448.0);
  FloatFormat f = float_format(t);
  if (std::isnan(v)) return append(s, f.nan);
  if (std::abs(v) > f.largest) return append(s, v > 0 ? f.inf : f.ninf);
  std::string digits = cat(v);
  size_t e = digits.find('e');
  if (digits.find('.') == std::string::npos)
    digits.insert(e == std::string::npos ? digits.size() : e, ".0");
  s += digits;
}

int64_t int_limit(DType t, bool low) {
  int bits = 8 * ir::dtype_size(t);
  if (ir::is_unsigned(t))
    return low ? 0 : bits == 64 ? -1 : static_cast<int64_t>((uint64_t{1} << bits) - 1);
  int64_t largest = static_cast<int64_t>((uint64_t{1} << (bits - 1)) - 1);
  return low ? -largest - 1 : largest;
}

// Out of range saturates; the unsigned 64-bit value travels as its bits.
int64_t double_to_int(double v, DType t) {
  if (t == DType::kU64)
    return v >= 0x1p64 ? -1
           : v < 0     ? static_cast<int64_t>(v)
                       : static_cast<int64_t>(static_cast<uint64_t>(v));
  if (v >= 0x1p63) return int_limit(t, false);
  if (v < -0x1p63) return int_limit(t, true);
  auto i = static_cast<int64_t>(v);
  return ir::is_unsigned(t) ? i : std::clamp(i, int_limit(t, true), int_limit(t, false));
}

void append_int(std::string& s, int64_t v, DType t) {
  if (!ir::is_unsigned(t)) return append(s, v);
  int bits = 8 * ir::dtype_size(t);
  auto u = static_cast<uint64_t>(v);
  append(s, bits == 64 ? u : u & ((uint64_t{1} << bits) - 1));
}

void append_literal(std::string& s, double v, DType t) {
  if (t == DType::kPred) return append(s, v != 0);
  if (ir::is_float(t)) return append_float(s, v, t);
  if (ir::is_complex(t)) {
    s += '(';
    append_float(s, v, t);
    s += ", 0.0)";
    return;
  }
  append_int(s, double_to_int(v, t), t);
}

}  // namespace

std::string i64_array(Ints v) {
  return v.empty() ? "array<i64>" : cat("array<i64: ", join(v, ", "), ">");
}

std::string_view cmp_name(Cmp c) {
  static constexpr std::string_view kNames[] = {"EQ", "NE", "LT", "LE", "GT", "GE"};
  return kNames[static_cast<int>(c)];
}

// --- statements ----------------------------------------------------------------------------------

// A region may use any value above it: what its statements are made from, its results are.
void Builder::note_lineage(std::span<const V> out, std::string_view name, std::span<const V> in,
                           std::string_view attrs, int first_inner) {
  if (out.empty()) return;
  std::vector<int>& operands = scratch_;
  operands.clear();
  for (const V& v : in) operands.push_back(v.id);
  if (first_inner >= 0)
    for (int id = first_inner; id < out[0].id; ++id) operands.push_back(id);
  Hash128 statement = mix(hash_text(name), hash_text(attrs));
  for (const V& v : out) lineage_.add(v.id, statement = mix(statement, v.type.hash()), operands);
}

void Builder::emit(std::span<const V> out, std::string_view name, std::span<const V> in,
                   std::string_view attrs, std::string_view regions, int first_inner) {
  note_lineage(out, name, in, attrs, first_inner);
  std::string& s = body_;
  s.append(static_cast<size_t>(4 + 2 * depth_), ' ');
  append_ids(s, out);
  if (!out.empty()) s += " = ";
  s += '"';
  s += name;
  s += "\"(";
  append_ids(s, in);
  s += ')';
  s += regions;
  if (!attrs.empty()) {
    s += " {";
    s += attrs;
    s += '}';
  }
  s += " : ";
  append_types(s, in, mlir_of);
  s += " -> ";
  if (out.size() == 1)
    s += out[0].type.mlir();
  else
    append_types(s, out, mlir_of);
  if (!location_.empty()) {
    s += " loc(";
    s += location_;
    s += ')';
  }
  s += '\n';
  ++statements_;
}

void Builder::set_location(std::string_view name, std::string_view file, int line) {
  location_ = name.empty() ? std::string() : quoted(name);
  if (!file.empty()) location_ += cat("(", quoted(file), ":", line, ":0)");
}

V Builder::op(std::string_view name, std::span<const V> in, Type out, std::string_view attrs) {
  if (PortableText::on() && name.starts_with("chlo."))
    return in_stablehlo(*this, name, in, {&out, 1})[0];
  V v = fresh(out);
  emit({&v, 1}, name, in, attrs, {});
  return v;
}

std::vector<V> Builder::ops(std::string_view name, std::span<const V> in, std::span<const Type> out,
                            std::string_view attrs) {
  if (PortableText::on() && name.starts_with("chlo.")) return in_stablehlo(*this, name, in, out);
  std::vector<V> v;
  for (Type t : out) v.push_back(fresh(t));
  emit(v, name, in, attrs, {});
  return v;
}

std::string Builder::region_text(const std::vector<Type>& args, const Region& body) {
  std::vector<V> in;
  for (Type t : args) in.push_back(kept(fresh(t)));
  std::string outer = std::move(body_);
  body_.clear();
  ++depth_;
  std::vector<V> out = body(*this, in);
  emit({}, "stablehlo.return", out, {}, {});
  --depth_;
  std::string inner = std::move(body_);
  body_ = std::move(outer);
  std::string s = "{\n";
  s.append(static_cast<size_t>(4 + 2 * depth_), ' ');
  s += "^bb0";
  if (!in.empty()) {
    s += '(';
    for (size_t i = 0; i < in.size(); ++i)
      s += cat(i ? ", %" : "%", in[i].id, ": ", in[i].type.mlir());
    s += ')';
  }
  s += ":\n";
  s += inner;
  s.append(static_cast<size_t>(4 + 2 * depth_), ' ');
  return s + '}';
}

std::vector<V> Builder::region_op(std::string_view name, std::span<const V> in,
                                  std::span<const Type> out, std::string_view attrs,
                                  std::span<const std::vector<Type>> region_args,
                                  std::span<const Region> regions) {
  std::string text = " (";
  int first_inner = next_id_;
  for (size_t i = 0; i < regions.size(); ++i) {
    if (i) text += ", ";
    text += region_text(region_args[i], regions[i]);
  }
  text += ')';
  constexpr std::string_view kReturn = "stablehlo.return";  // of other dialects: their own
  if (name.starts_with("sdy."))
    if (size_t at = text.rfind(kReturn); at != std::string::npos)
      text.replace(at, kReturn.size(), "sdy.return");
  std::vector<V> v;
  for (Type t : out) v.push_back(fresh(t));
  emit(v, name, in, attrs, text, first_inner);
  return v;
}

// --- leaves --------------------------------------------------------------------------------------

V Builder::parameter(Type t) {
  params_.push_back(kept(fresh(t)));
  return params_.back();
}

V Builder::constant(double v, Type t) {
  std::string attrs = "value = dense<";
  if (t.numel() != 0) append_literal(attrs, v, t.dtype());
  return op("stablehlo.constant", {}, t, cat(attrs, "> : ", t.mlir()));
}

V Builder::constant_int(int64_t v, Type t) {
  DType d = t.dtype();
  if (t.numel() == 0 || d == DType::kPred || !ir::is_int(d))
    return constant(static_cast<double>(v), t);
  std::string attrs = "value = dense<";
  append_int(attrs, v, d);
  return op("stablehlo.constant", {}, t, cat(attrs, "> : ", t.mlir()));
}

V Builder::constant_list(Ints v, DType t) {
  int64_t n = static_cast<int64_t>(v.size());
  Type type = ir::make_type(t, {&n, 1});
  std::string items;
  for (size_t i = 0; i < v.size(); ++i) {
    if (i) items += ", ";
    if (ir::is_int(t))
      append_int(items, v[i], t);
    else
      append_literal(items, static_cast<double>(v[i]), t);
  }
  std::string list = v.empty() ? std::string() : cat("[", items, "]");
  return op("stablehlo.constant", {}, type, cat("value = dense<", list, "> : ", type.mlir()));
}

V Builder::constant_table(std::span<const double> v, Type t) {
  check(static_cast<int64_t>(v.size()) == t.numel() && t.rank() > 0, "a table fills its type");
  std::string items = "[";
  auto rows = [&](auto& self, int dim, size_t at, size_t count) -> void {
    auto n = static_cast<size_t>(t.dim(static_cast<size_t>(dim)));
    for (size_t i = 0; i < n; ++i) {
      if (i) items += ", ";
      size_t start = at + i * (count / n);
      if (dim + 1 == t.rank()) {
        append_literal(items, v[start], t.dtype());
        continue;
      }
      items += '[';
      self(self, dim + 1, start, count / n);
      items += ']';
    }
  };
  rows(rows, 0, 0, v.size());
  return op("stablehlo.constant", {}, t, cat("value = dense<", items, "]> : ", t.mlir()));
}

V Builder::min_value(Type t) {
  DType d = t.dtype();
  if (d == DType::kF8E4M3FN) return constant(-448.0, t);
  if (ir::is_float(d)) return constant(-std::numeric_limits<double>::infinity(), t);
  return constant_int(d == DType::kPred ? 0 : int_limit(d, true), t);
}

V Builder::max_value(Type t) {
  DType d = t.dtype();
  if (d == DType::kF8E4M3FN) return constant(448.0, t);
  if (ir::is_float(d)) return constant(std::numeric_limits<double>::infinity(), t);
  return constant_int(d == DType::kPred ? 1 : int_limit(d, false), t);
}

V Builder::iota(Type t, int64_t dim) {
  return op("stablehlo.iota", {}, t, cat("iota_dimension = ", dim, " : i64"));
}

// --- finish --------------------------------------------------------------------------------------

std::string Builder::finish(std::string_view module_name, std::span<const V> results,
                            std::span<const std::string> param_attrs,
                            std::span<const std::string> result_attrs, std::string_view top) {
  std::string s = cat("module @", quoted(module_name), " {\n", top, "  func.func public @main(");
  s.reserve(s.size() + body_.size() + 64 * (params_.size() + results.size() + 4));
  for (size_t i = 0; i < params_.size(); ++i) {
    s += cat(i ? ", %" : "%", params_[i].id, ": ", params_[i].type.mlir());
    if (i < param_attrs.size() && !param_attrs[i].empty()) s += cat(" {", param_attrs[i], "}");
  }
  s += ") -> (";
  for (size_t i = 0; i < results.size(); ++i) {
    s += cat(i ? ", " : "", results[i].type.mlir());
    if (i < result_attrs.size() && !result_attrs[i].empty()) s += cat(" {", result_attrs[i], "}");
  }
  s += ") {\n";
  s += body_;
  s += "    \"func.return\"(";
  append_ids(s, results);
  s += ") : ";
  append_types(s, results, mlir_of);
  s += " -> ()\n  }\n}\n";
  return s;
}

}  // namespace tp::hlo
