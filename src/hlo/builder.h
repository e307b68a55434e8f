// Builder: writes one StableHLO function as text, in generic form (the form that every StableHLO
// version parses). SSA: each method appends one statement and gives its result. Not thread-safe:
// one a lowering.
//
// Conveniences keep lowerings short and never change meaning:
// reshape/convert/broadcast/transpose/slice of a value that already has the wanted form give the
// value itself. Binary methods want operands of one type; use `broadcast_to` and `convert` first.
#pragma once
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/capabilities.h"
#include "hlo/lineage.h"
#include "ir/type.h"

namespace tp::hlo {

using ir::DType;
using ir::Type;

// One SSA value. Invalid (id < 0) stands for an output nobody asked for.
struct V {
  int id = -1;
  Type type;
  int source = -1;    // another value, whose same elements this one has in another shape or order
  bool kept = false;  // the plugin updates it as it is: an input, or what was updated before
  explicit operator bool() const { return id >= 0; }
  int origin() const { return source < 0 ? id : source; }
  DType dtype() const { return type.dtype(); }
  std::span<const int64_t> dims() const { return type.dims(); }
  int64_t dim(size_t i) const { return type.dim(i); }
  int rank() const { return type.rank(); }
};

using Ints = std::span<const int64_t>;
using IntList = std::vector<int64_t>;

enum class Cmp { kEq, kNe, kLt, kLe, kGt, kGe };
// kTotal orders floats with NaN above everything (sort, argmax); kPartial is IEEE.
enum class Order { kPartial, kTotal };

// Body of a region: gets its block arguments, gives what the region returns.
using Region = std::function<std::vector<V>(class Builder&, std::span<const V>)>;

struct ConvConfig {
  IntList stride, pad_low, pad_high, lhs_dilation, rhs_dilation;
  // dimension numbers, each as [batch/out-feature, feature/in-feature, spatial...] positions
  IntList lhs, rhs, out;
  int64_t feature_groups = 1, batch_groups = 1;
  std::vector<bool> reversal;  // rhs reversal per spatial dim; empty: none
};

struct GatherConfig {
  IntList offset_dims, collapsed, start_index_map, slice_sizes;
  int64_t index_vector_dim = 0;
  bool sorted = false;
};

struct ScatterConfig {
  IntList update_window_dims, inserted_window_dims, scatter_dims_to_operand;
  int64_t index_vector_dim = 0;
  bool sorted = false, unique = false;
};

class Builder {
 public:
  Builder() = default;

  // What the program is for, where a lowering can choose between forms of one meaning.
  void set_target(Capabilities c) { target_ = c; }
  const Capabilities& target() const { return target_; }

  // How exact float32 products (dot, convolution) have to be; accelerators would else round their
  // operands to bf16. StableHLO's three words.
  enum class Precision : unsigned char { kDefault, kHigh, kHighest };
  void set_precision(Precision p) { precision_ = p; }

  // --- any op
  // ---------------------------------------------------------------------------------------------
  // `attrs` is what stands between the braces, e.g. "dimension = 0 : i64"; empty: no braces.
  V op(std::string_view name, std::span<const V> in, Type out, std::string_view attrs = {});
  V op(std::string_view name, std::initializer_list<V> in, Type out, std::string_view attrs = {}) {
    return op(name, std::span<const V>(in.begin(), in.size()), out, attrs);
  }
  std::vector<V> ops(std::string_view name, std::span<const V> in, std::span<const Type> out,
                     std::string_view attrs = {});
  // An op with regions; `region_args` gives the block argument types of each.
  std::vector<V> region_op(std::string_view name, std::span<const V> in, std::span<const Type> out,
                           std::string_view attrs, std::span<const std::vector<Type>> region_args,
                           std::span<const Region> regions);

  // --- leaves
  // ---------------------------------------------------------------------------------------------
  V parameter(Type t);                // in call order
  V constant(double v, Type t);       // splat; also for ints (exact up to 2^53), pred, complex
  V constant_int(int64_t v, Type t);  // splat, exact
  V constant_list(Ints v, DType t);   // rank-1, ints
  V constant_table(std::span<const double> v, Type t);  // row-major, floats
  V zeros(Type t) { return constant_int(0, t); }
  V ones(Type t) { return constant_int(1, t); }
  V scalar(double v, DType t) { return constant(v, ir::scalar_type(t)); }
  V min_value(Type t);  // -inf for floats, lowest for ints, false for pred
  V max_value(Type t);
  V iota(Type t, int64_t dim);

  // --- shape
  // ----------------------------------------------------------------------------------------------
  V convert(V v, DType t);  // as eager's `.to`: pred = (x != 0), float->int truncates,
                            // complex->real drops imag
  V bitcast(V v, Type t);   // stablehlo.bitcast_convert
  V reshape(V v, Ints dims);
  V broadcast(V v, Type t, Ints dim_map);  // stablehlo.broadcast_in_dim
  V broadcast_to(V v, Ints dims);          // PyTorch's rule: aligned at the right, 1s stretch
  V transpose(V v, Ints perm);
  V slice(V v, Ints start, Ints limit, Ints stride);
  V slice_dim(V v, int64_t dim, int64_t start, int64_t limit, int64_t stride = 1);
  V dynamic_slice(V v, std::span<const V> starts, Ints sizes);
  V dynamic_update_slice(V v, V update, std::span<const V> starts);
  V pad(V v, V value, Ints low, Ints high, Ints interior);  // low/high may be negative
  V concat(std::span<const V> v, int64_t dim);
  V reverse(V v, Ints dims);

  // --- elementwise
  // ----------------------------------------------------------------------------------------
  V unary(std::string_view name, V x) { return op(name, {x}, x.type); }
  V binary(std::string_view name, V a, V b) { return op(name, {a, b}, a.type); }
  V add(V a, V b);  // pred: or
  V sub(V a, V b) { return binary("stablehlo.subtract", a, b); }
  V mul(V a, V b);  // pred: and; integers wrap
  V div(V a, V b) { return binary("stablehlo.divide", a, b); }
  V max(V a, V b);  // pred: or
  V min(V a, V b);  // pred: and
  V and_(V a, V b) { return binary("stablehlo.and", a, b); }
  V or_(V a, V b) { return binary("stablehlo.or", a, b); }
  V xor_(V a, V b) { return binary("stablehlo.xor", a, b); }
  V not_(V a) { return unary("stablehlo.not", a); }
  V neg(V a) { return unary("stablehlo.negate", a); }
  V exp(V a) { return unary("stablehlo.exponential", a); }
  V log(V a) { return unary("stablehlo.log", a); }
  V sqrt(V a) { return unary("stablehlo.sqrt", a); }
  V rsqrt(V a) { return unary("stablehlo.rsqrt", a); }
  V tanh(V a) { return unary("stablehlo.tanh", a); }
  V abs(V a);   // complex: the real magnitude; of the least integer: itself
  V atan(V a);  // of reals
  V floor(V a) { return unary("stablehlo.floor", a); }
  V logistic(V a) { return unary("stablehlo.logistic", a); }
  V compare(V a, V b, Cmp c, Order o = Order::kPartial);  // pred of a's dims
  V select(V pred, V on_true, V on_false);
  V is_nan(V a) { return compare(a, a, Cmp::kNe); }
  // Arithmetic with a literal, splat to a's type.
  V add(V a, double c) { return add(a, constant(c, a.type)); }
  V sub(V a, double c) { return sub(a, constant(c, a.type)); }
  V mul(V a, double c) { return mul(a, constant(c, a.type)); }
  V div(V a, double c) { return div(a, constant(c, a.type)); }
  V max(V a, double c) { return max(a, constant(c, a.type)); }
  V min(V a, double c) { return min(a, constant(c, a.type)); }
  V compare(V a, double c, Cmp how) { return compare(a, constant(c, a.type), how); }

  // --- structured
  // -----------------------------------------------------------------------------------------
  enum class Red { kSum, kProd, kMax, kMin, kAnd, kOr };
  V reduce(V v, Ints dims, Red how);  // drops dims; identity element of `how`
  std::vector<V> reduce_many(std::span<const V> v, std::span<const V> init, Ints dims,
                             const Region& body);
  V reduce_window(V v, V init, Ints window, Ints stride, Ints pad_low, Ints pad_high,
                  Ints base_dilation, Ints window_dilation, Red how);
  V dot(V a, V b, Ints a_batch, Ints b_batch, Ints a_contract, Ints b_contract, DType out);
  V conv(V lhs, V rhs, Type out, const ConvConfig& c);
  V gather(V operand, V indices, Type out, const GatherConfig& c);
  V scatter(V operand, V indices, V updates, const ScatterConfig& c, const Region& body);
  std::vector<V> sort(std::span<const V> v, int64_t dim, bool stable, const Region& less);
  std::vector<V> while_loop(std::span<const V> init, const Region& cond, const Region& body);
  // A call of `target` in the process that runs the program (api_version 4); operands and results
  // are row-major. `config` is what stands in backend_config's braces. The plugin may drop or merge
  // equal calls, so it has to be a function of its operands, unless it `has_effects`.
  std::vector<V> custom_call(std::string_view target, std::span<const V> in,
                             std::span<const Type> out, std::string_view config,
                             bool has_effects = false);
  // Threefry: {new state, bits}. `state` is u64[2], key and counter; out is of u32 or u64. Bits are
  // the same in both forms: XLA's op, and the cipher written out over an iota (hlo/threefry.cpp).
  std::vector<V> rng_bits(V state, Type out);

  // --- finish
  // ---------------------------------------------------------------------------------------------
  // Source location of the statements that follow: loc("name"), or loc("name"("file":line:0)) where
  // a file is given; an empty name: none.
  void set_location(std::string_view name, std::string_view file = {}, int line = 0);
  // The whole module with `@main`. `param_attrs[i]`, where given, stands behind parameter i's type
  // in braces, `result_attrs[i]` behind result i's; `top` stands in front of the function.
  std::string finish(std::string_view module_name, std::span<const V> results,
                     std::span<const std::string> param_attrs = {},
                     std::span<const std::string> result_attrs = {}, std::string_view top = {});
  int statements() const { return statements_; }

 private:
  V infinite_where_a_part_is(V a, V size);
  V joined_bits(V low, V high, Type out);
  V chosen_bits(V low, V high, int paired);
  V summed_products(V a, V b, Ints a_batch, Ints b_batch, Ints a_contract, Ints b_contract,
                    const IntList& out);
  struct Text;
  bool sums_in_double(const V& v, Ints dims) const;
  std::string precision_config() const;
  V fresh(Type t) { return {.id = next_id_++, .type = t}; }
  static V kept(V v);
  bool reads_itself(const V& base, std::span<const V> makers) const;
  V selected(V base, V update, const std::function<V(V base, V part)>& put, const Region& combine);
  V reshaped(std::string_view name, V v, Type t, std::string_view attrs = {});
  void emit(std::span<const V> out, std::string_view name, std::span<const V> in,
            std::string_view attrs, std::string_view regions, int first_inner = -1);
  void note_lineage(std::span<const V> out, std::string_view name, std::span<const V> in,
                    std::string_view attrs, int first_inner);
  std::string region_text(const std::vector<Type>& args, const Region& body);

  std::string body_;
  std::string location_;
  Lineage lineage_;
  std::unordered_map<int, V> bits_;  // what was bitcast, to what it was
  std::vector<int> scratch_;
  std::vector<V> params_;
  int next_id_ = 0;
  int statements_ = 0;
  int depth_ = 0;
  Capabilities target_;
  Precision precision_ = Precision::kDefault;
};

// "array<i64: 1, 2>", as MLIR writes it (also for an empty list).
std::string i64_array(Ints v);
std::string_view cmp_name(Cmp c);

}  // namespace tp::hlo
