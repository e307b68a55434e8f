// Builder's conveniences: shape changes, compares and the structured ops. Each gives the value
// itself where nothing would change. Not thread-safe: one Builder a lowering.
#include <algorithm>
#include <array>
#include <numeric>

#include "base/error.h"
#include "base/text.h"
#include "hlo/builder.h"
#include "hlo/workarounds.h"

namespace tp::hlo {
namespace {

std::vector<V> second_of_two(Builder&, std::span<const V> x) { return {x[1]}; }

IntList iota_list(size_t n) {
  IntList v(n);
  for (size_t i = 0; i < n; ++i) v[i] = static_cast<int64_t>(i);
  return v;
}

bool same(Ints a, Ints b) { return std::equal(a.begin(), a.end(), b.begin(), b.end()); }

// dense<[[l, h], ...]> : tensor<Nx2xi64>
std::string pad_pairs(Ints low, Ints high) {
  std::string s = "dense<";
  for (size_t i = 0; i < low.size(); ++i) s += cat(i ? ", [" : "[[", low[i], ", ", high[i], "]");
  return cat(s, low.empty() ? "" : "]", "> : tensor<", low.size(), "x2xi64>");
}

std::string list(Ints v) { return cat("[", join(v, ", "), "]"); }

std::string_view red_name(Builder::Red how, bool pred) {
  using Red = Builder::Red;
  switch (how) {
    case Red::kSum:
      return pred ? "stablehlo.or" : "stablehlo.add";
    case Red::kProd:
      return pred ? "stablehlo.and" : "stablehlo.multiply";
    case Red::kMax:
      return pred ? "stablehlo.or" : "stablehlo.maximum";
    case Red::kMin:
      return pred ? "stablehlo.and" : "stablehlo.minimum";
    case Red::kAnd:
      return "stablehlo.and";
    case Red::kOr:
      return "stablehlo.or";
  }
  return {};
}

Region red_region(Builder::Red how) {
  return [how](Builder& b, std::span<const V> x) -> std::vector<V> {
    return {b.binary(red_name(how, x[0].dtype() == DType::kPred), x[0], x[1])};
  };
}

V red_init(Builder& b, Builder::Red how, DType t) {
  using Red = Builder::Red;
  Type s = ir::scalar_type(t);
  switch (how) {
    case Red::kSum:
    case Red::kOr:
      return b.zeros(s);
    case Red::kProd:
      return b.ones(s);
    case Red::kAnd:
      return b.constant_int(t == DType::kPred ? 1 : -1, s);
    case Red::kMax:
      return b.min_value(s);
    case Red::kMin:
      return b.max_value(s);
  }
  return {};
}

IntList without(Ints dims, Ints drop) {
  IntList out;
  for (size_t i = 0; i < dims.size(); ++i)
    if (std::find(drop.begin(), drop.end(), static_cast<int64_t>(i)) == drop.end())
      out.push_back(dims[i]);
  return out;
}

std::string conv_dims(const IntList& d, char first, char second) {
  std::vector<std::string> at(d.size());
  for (size_t i = 0; i < d.size(); ++i)
    at[static_cast<size_t>(d[i])] = i == 0   ? std::string(1, first)
                                    : i == 1 ? std::string(1, second)
                                             : cat(static_cast<int64_t>(i) - 2);
  return cat("[", join(at, ", "), "]");
}

}  // namespace

// --- shape ---------------------------------------------------------------------------------------

// Narrow ints take floats through a wider int, so that values out of range wrap as in eager.
V Builder::convert(V v, DType t) {
  DType from = v.dtype();
  if (from == t) return v;
  if (t == DType::kPred) return compare(v, zeros(v.type), Cmp::kNe);
  if (ir::is_complex(from) && !ir::is_complex(t))
    return convert(op("stablehlo.real", {v}, v.type.with(ir::real_dtype(from))), t);
  if (ir::is_float(from) && ir::is_int(t) && (ir::dtype_size(t) < 4 || t == DType::kU32))
    v = convert(v, t == DType::kU32 ? DType::kS64 : DType::kS32);
  if (from == DType::kPred && !ir::is_int(t) && makes_bools_through_bytes(target_))
    v = convert(v, DType::kU8);
  // PyTorch's float8_e4m3fn saturates where XLA gives NaN.
  if (t == DType::kF8E4M3FN && ir::is_float(from)) v = min(max(v, -448.0), 448.0);
  return op("stablehlo.convert", {v}, v.type.with(t));
}

V Builder::reshaped(std::string_view name, V v, Type t, std::string_view attrs) {
  V out = op(name, {v}, t, attrs);
  out.source = v.origin();
  return out;
}

V Builder::reshape(V v, Ints dims) {
  if (same(v.dims(), dims)) return v;
  V out = reshaped("stablehlo.reshape", v, v.type.with(dims));
  if (auto start = bits_.find(v.id); start != bits_.end()) bits_.emplace(out.id, start->second);
  return out;
}

V Builder::broadcast(V v, Type t, Ints dim_map) {
  if (v.type == t && same(dim_map, iota_list(dim_map.size()))) return v;
  std::string attrs = cat("broadcast_dimensions = ", i64_array(dim_map));
  return t.numel() == v.type.numel() ? reshaped("stablehlo.broadcast_in_dim", v, t, attrs)
                                     : op("stablehlo.broadcast_in_dim", {v}, t, attrs);
}

V Builder::broadcast_to(V v, Ints dims) {
  if (same(v.dims(), dims)) return v;
  check(v.dims().size() <= dims.size(), "a broadcast keeps or raises the rank");
  IntList map = iota_list(v.dims().size());
  for (int64_t& d : map) d += static_cast<int64_t>(dims.size() - v.dims().size());
  return broadcast(v, v.type.with(dims), map);
}

V Builder::transpose(V v, Ints perm) {
  if (same(perm, iota_list(perm.size()))) return v;
  IntList dims;
  for (int64_t p : perm) dims.push_back(v.dim(static_cast<size_t>(p)));
  return reshaped("stablehlo.transpose", v, v.type.with(dims),
                  cat("permutation = ", i64_array(perm)));
}

V Builder::slice(V v, Ints start, Ints limit, Ints stride) {
  IntList dims;
  bool whole = true;
  for (size_t i = 0; i < start.size(); ++i) {
    dims.push_back((limit[i] - start[i] + stride[i] - 1) / stride[i]);
    whole &= start[i] == 0 && limit[i] == v.dim(i) && (stride[i] == 1 || v.dim(i) <= 1);
  }
  if (whole) return v;
  return op("stablehlo.slice", {v}, v.type.with(dims),
            cat("start_indices = ", i64_array(start), ", limit_indices = ", i64_array(limit),
                ", strides = ", i64_array(stride)));
}

V Builder::slice_dim(V v, int64_t dim, int64_t start, int64_t limit, int64_t stride) {
  IntList starts(v.dims().size(), 0), limits(v.dims().begin(), v.dims().end()),
      strides(v.dims().size(), 1);
  auto d = static_cast<size_t>(dim);
  starts[d] = start, limits[d] = limit, strides[d] = stride;
  return slice(v, starts, limits, strides);
}

V Builder::dynamic_slice(V v, std::span<const V> starts, Ints sizes) {
  std::vector<V> in{v};
  in.insert(in.end(), starts.begin(), starts.end());
  return op("stablehlo.dynamic_slice", in, v.type.with(sizes),
            cat("slice_sizes = ", i64_array(sizes)));
}

V Builder::dynamic_update_slice(V v, V update, std::span<const V> starts) {
  std::vector<V> in{v, update};
  in.insert(in.end(), starts.begin(), starts.end());
  auto updated = [&](V base, V part) {
    in[0] = base, in[1] = part;
    return op("stablehlo.dynamic_update_slice", in, base.type);
  };
  if (reads_itself(v, {in.begin() + 1, in.end()}))
    return selected(v, update, updated, second_of_two);
  return kept(updated(v, update));
}

V Builder::pad(V v, V value, Ints low, Ints high, Ints interior) {
  IntList dims;
  for (size_t i = 0; i < low.size(); ++i) {
    int64_t n = v.dim(i);
    dims.push_back(low[i] + high[i] + n + std::max<int64_t>(n - 1, 0) * interior[i]);
  }
  if (same(dims, v.dims()) && std::all_of(low.begin(), low.end(), [](int64_t l) { return l == 0; }))
    return v;
  return op("stablehlo.pad", {v, value}, v.type.with(dims),
            cat("edge_padding_low = ", i64_array(low), ", edge_padding_high = ", i64_array(high),
                ", interior_padding = ", i64_array(interior)));
}

V Builder::concat(std::span<const V> v, int64_t dim) {
  if (v.size() == 1) return v[0];
  IntList dims(v[0].dims().begin(), v[0].dims().end());
  auto d = static_cast<size_t>(dim);
  dims[d] = 0;
  for (const V& x : v) dims[d] += x.dim(d);
  return op("stablehlo.concatenate", v, v[0].type.with(dims), cat("dimension = ", dim, " : i64"));
}

V Builder::reverse(V v, Ints dims) {
  if (dims.empty()) return v;
  return op("stablehlo.reverse", {v}, v.type, cat("dimensions = ", i64_array(dims)));
}

// --- elementwise ---------------------------------------------------------------------------------

V Builder::max(V a, V b) { return binary(red_name(Red::kMax, a.dtype() == DType::kPred), a, b); }
V Builder::min(V a, V b) { return binary(red_name(Red::kMin, a.dtype() == DType::kPred), a, b); }

V Builder::compare(V a, V b, Cmp c, Order o) {
  std::string attrs =
      cat("comparison_direction = #stablehlo<comparison_direction ", cmp_name(c), ">");
  // Always said: without it StableHLO's own folder compares integer constants as unsigned (1.13).
  std::string_view type = ir::is_unsigned(a.dtype())                      ? "UNSIGNED"
                          : ir::is_int(a.dtype())                         ? "SIGNED"
                          : o == Order::kTotal && ir::is_float(a.dtype()) ? "TOTALORDER"
                                                                          : "FLOAT";
  attrs += cat(", compare_type = #stablehlo<comparison_type ", type, ">");
  return op("stablehlo.compare", {a, b}, a.type.with(DType::kPred), attrs);
}

V Builder::select(V pred, V on_true, V on_false) {
  return op("stablehlo.select", {pred, on_true, on_false}, on_true.type);
}

// --- structured ----------------------------------------------------------------------------------

// Where float32 sums add up one after the other (XLA's CPU backend): past 2^24 equal terms the sum
// stands still, and a batch norm's mean of 32k values is a hundred times further off than eager's
// cascade. So long ones add up in float64, which costs a conversion inside the loop. Accelerators
// add in trees, and often have no fast float64.
bool Builder::sums_in_double(const V& v, Ints dims) const {
  constexpr int64_t kLongest = 255;
  if (!target_.has(Fact::kSerialSums) || ir::real_dtype(v.dtype()) != DType::kF32) return false;
  int64_t n = 1;
  for (int64_t d : dims) n *= v.dim(static_cast<size_t>(d));
  return n > kLongest;
}

V Builder::reduce(V v, Ints dims, Red how) {
  if (dims.empty()) return v;
  if (how == Red::kSum && sums_in_double(v, dims)) {
    DType wide = ir::is_complex(v.dtype()) ? DType::kC128 : DType::kF64;
    return convert(reduce(convert(v, wide), dims, how), v.dtype());
  }
  V init = red_init(*this, how, v.dtype());
  return reduce_many({&v, 1}, {&init, 1}, dims, red_region(how))[0];
}

std::vector<V> Builder::reduce_many(std::span<const V> v, std::span<const V> init, Ints dims,
                                    const Region& body) {
  std::vector<V> in(v.begin(), v.end());
  in.insert(in.end(), init.begin(), init.end());
  std::vector<Type> out, args;
  IntList left = without(v[0].dims(), dims);
  for (const V& x : v) out.push_back(x.type.with(left));
  for (int pass = 0; pass < 2; ++pass)
    for (const V& x : v) args.push_back(ir::scalar_type(x.dtype()));
  return region_op("stablehlo.reduce", in, out, cat("dimensions = ", i64_array(dims)), {&args, 1},
                   {&body, 1});
}

V Builder::reduce_window(V v, V init, Ints window, Ints stride, Ints pad_low, Ints pad_high,
                         Ints base_dilation, Ints window_dilation, Red how) {
  IntList dims;
  for (size_t i = 0; i < window.size(); ++i) {
    int64_t n = v.dim(i) == 0 ? 0 : (v.dim(i) - 1) * base_dilation[i] + 1;
    int64_t room = n + pad_low[i] + pad_high[i], need = (window[i] - 1) * window_dilation[i] + 1;
    dims.push_back(room < need ? 0 : (room - need) / stride[i] + 1);
  }
  std::vector<Type> args(2, ir::scalar_type(v.dtype()));
  Type out = v.type.with(dims);
  Region body = red_region(how);
  std::array<V, 2> in{v, init};
  return region_op(
      "stablehlo.reduce_window", in, {&out, 1},
      cat("window_dimensions = ", i64_array(window), ", window_strides = ", i64_array(stride),
          ", base_dilations = ", i64_array(base_dilation), ", window_dilations = ",
          i64_array(window_dilation), ", padding = ", pad_pairs(pad_low, pad_high)),
      {&args, 1}, {&body, 1})[0];
}

std::string Builder::precision_config() const {
  if (precision_ == Precision::kDefault) return {};
  std::string_view p = precision_ == Precision::kHigh ? "HIGH" : "HIGHEST";
  return cat(", precision_config = [#stablehlo<precision ", p, ">, #stablehlo<precision ", p, ">]");
}

namespace {

// The dims that `v` has in a product's [batch, free of a, free of b, contracted].
V laid_out(Builder& b, V v, Ints batch, Ints contract, const IntList& to, size_t free_at) {
  IntList used(batch.begin(), batch.end()), perm = used, dims;
  used.insert(used.end(), contract.begin(), contract.end());
  IntList all(static_cast<size_t>(v.rank()), 0);
  std::iota(all.begin(), all.end(), 0);
  IntList free = without(all, used);
  perm.insert(perm.end(), free.begin(), free.end());
  perm.insert(perm.end(), contract.begin(), contract.end());
  for (size_t i = 0; i < batch.size(); ++i) dims.push_back(static_cast<int64_t>(i));
  for (size_t i = 0; i < free.size(); ++i) dims.push_back(static_cast<int64_t>(free_at + i));
  for (size_t i = 0; i < contract.size(); ++i)
    dims.push_back(static_cast<int64_t>(to.size() - contract.size() + i));
  return b.broadcast(b.transpose(v, perm), v.type.with(to), dims);
}

}  // namespace

// Products, all at once, and their sums.
V Builder::summed_products(V a, V b, Ints a_batch, Ints b_batch, Ints a_contract, Ints b_contract,
                           const IntList& out) {
  IntList all = out;
  for (int64_t d : a_contract) all.push_back(a.dim(static_cast<size_t>(d)));
  size_t a_free = static_cast<size_t>(a.rank()) - a_batch.size() - a_contract.size();
  V x = laid_out(*this, a, a_batch, a_contract, all, a_batch.size());
  V y = laid_out(*this, b, b_batch, b_contract, all, a_batch.size() + a_free);
  IntList summed;
  for (size_t i = out.size(); i < all.size(); ++i) summed.push_back(static_cast<int64_t>(i));
  return reduce(mul(x, y), summed, Red::kSum);
}

V Builder::dot(V a, V b, Ints a_batch, Ints b_batch, Ints a_contract, Ints b_contract, DType out) {
  IntList dims, a_used(a_batch.begin(), a_batch.end()), b_used(b_batch.begin(), b_batch.end());
  for (int64_t d : a_batch) dims.push_back(a.dim(static_cast<size_t>(d)));
  a_used.insert(a_used.end(), a_contract.begin(), a_contract.end());
  b_used.insert(b_used.end(), b_contract.begin(), b_contract.end());
  for (int64_t d : without(a.dims(), a_used)) dims.push_back(d);
  for (int64_t d : without(b.dims(), b_used)) dims.push_back(d);
  if (ir::is_wide_int(a.dtype()) && out == a.dtype() && !target_.has(Fact::kWideProducts))
    return summed_products(a, b, a_batch, b_batch, a_contract, b_contract, dims);
  return op("stablehlo.dot_general", {a, b}, ir::make_type(out, dims),
            cat("dot_dimension_numbers = #stablehlo.dot<lhs_batching_dimensions = ", list(a_batch),
                ", rhs_batching_dimensions = ", list(b_batch),
                ", lhs_contracting_dimensions = ", list(a_contract),
                ", rhs_contracting_dimensions = ", list(b_contract), ">", precision_config()));
}

V Builder::conv(V lhs, V rhs, Type out, const ConvConfig& c) {
  std::string reversal;
  if (!c.reversal.empty()) {
    reversal = ", window_reversal = array<i1: ";
    for (size_t i = 0; i < c.reversal.size(); ++i)
      reversal += cat(i ? ", " : "", bool(c.reversal[i]));
    reversal += '>';
  }
  return op("stablehlo.convolution", {lhs, rhs}, out,
            cat("dimension_numbers = #stablehlo.conv<", conv_dims(c.lhs, 'b', 'f'), "x",
                conv_dims(c.rhs, 'o', 'i'), "->", conv_dims(c.out, 'b', 'f'),
                ">, window_strides = ", i64_array(c.stride), ", padding = ",
                pad_pairs(c.pad_low, c.pad_high), ", lhs_dilation = ", i64_array(c.lhs_dilation),
                ", rhs_dilation = ", i64_array(c.rhs_dilation), reversal,
                ", feature_group_count = ", c.feature_groups,
                " : i64, batch_group_count = ", c.batch_groups, " : i64", precision_config()));
}

V Builder::gather(V operand, V indices, Type out, const GatherConfig& c) {
  return op(
      "stablehlo.gather", {operand, indices}, out,
      cat("dimension_numbers = #stablehlo.gather<offset_dims = ", list(c.offset_dims),
          ", collapsed_slice_dims = ", list(c.collapsed), ", start_index_map = ",
          list(c.start_index_map), ", index_vector_dim = ", c.index_vector_dim,
          ">, slice_sizes = ", i64_array(c.slice_sizes), ", indices_are_sorted = ", c.sorted));
}

V Builder::scatter(V operand, V indices, V updates, const ScatterConfig& c, const Region& body) {
  std::string attrs =
      cat("scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = ",
          list(c.update_window_dims), ", inserted_window_dims = ", list(c.inserted_window_dims),
          ", scatter_dims_to_operand_dims = ", list(c.scatter_dims_to_operand),
          ", index_vector_dim = ", c.index_vector_dim, ">, indices_are_sorted = ", c.sorted,
          ", unique_indices = ", c.unique);
  auto scattered = [&](V base, V parts, const Region& how) {
    std::vector<Type> args(2, ir::scalar_type(base.dtype()));
    std::array<V, 3> in{base, indices, parts};
    return region_op("stablehlo.scatter", in, {&base.type, 1}, attrs, {&args, 1}, {&how, 1})[0];
  };
  auto axis = static_cast<size_t>(c.index_vector_dim);
  bool one = indices.type.numel() == (axis < indices.dims().size() ? indices.dim(axis) : 1);
  std::array<V, 2> makers{indices, updates};
  if (!one || !reads_itself(operand, makers)) return scattered(operand, updates, body);
  auto put = [&](V base, V part) { return scattered(base, part, second_of_two); };
  return selected(operand, updates, put, body);
}

std::vector<V> Builder::sort(std::span<const V> v, int64_t dim, bool stable, const Region& less) {
  std::vector<Type> out, args;
  for (const V& x : v) {
    out.push_back(x.type);
    args.insert(args.end(), 2, ir::scalar_type(x.dtype()));
  }
  return region_op("stablehlo.sort", v, out,
                   cat("dimension = ", dim, " : i64, is_stable = ", stable), {&args, 1},
                   {&less, 1});
}

std::vector<V> Builder::while_loop(std::span<const V> init, const Region& cond,
                                   const Region& body) {
  std::vector<Type> types;
  for (const V& x : init) types.push_back(x.type);
  std::array<std::vector<Type>, 2> args{types, types};
  std::array<Region, 2> regions{cond, body};
  return region_op("stablehlo.while", init, types, {}, args, regions);
}

namespace {

// Row-major layouts, as stablehlo.custom_call's operand_layouts wants them: minor dims first.
std::string row_major_layouts(std::span<const Type> types) {
  std::vector<std::string> each;
  for (Type t : types) {
    IntList order;
    for (int d = t.rank() - 1; d >= 0; --d) order.push_back(d);
    std::string list = order.empty() ? std::string() : cat("[", join(order, ", "), "]");
    each.push_back(cat("dense<", list, "> : tensor<", t.rank(), "xindex>"));
  }
  return cat("[", join(each, ", "), "]");
}

}  // namespace

std::vector<V> Builder::custom_call(std::string_view target, std::span<const V> in,
                                    std::span<const Type> out, std::string_view config,
                                    bool has_effects) {
  std::vector<Type> operands;
  for (const V& v : in) operands.push_back(v.type);
  return ops("stablehlo.custom_call", in, out,
             cat("api_version = 4 : i32, call_target_name = \"", target, "\", backend_config = {",
                 config, "}, ", has_effects ? "has_side_effect = true, " : "", "operand_layouts = ",
                 row_major_layouts(operands), ", result_layouts = ", row_major_layouts(out)));
}

}  // namespace tp::hlo
