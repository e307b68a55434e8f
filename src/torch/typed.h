// Typed kernels: what a boxed row does, without boxing. Generated from at::_ops::<op>::schema by
// one template; a hot overload is one line of the list in typed.cpp. The boxed path and this one
// share Call, so they record the same nodes.
#pragma once
#include <torch/library.h>

#include <array>
#include <tuple>

#include "torch/errors.h"
#include "torch/recorder.h"

namespace tp::torch_room {

inline void put(Call& c, const ArgInfo& a, const at::Tensor& t) { c.tensor(a, t); }
inline void put(Call& c, const ArgInfo& a, const at::Scalar& s) { c.scalar(a, s); }
inline void put(Call& c, const ArgInfo& a, int64_t v) { c.integer(a, v); }
inline void put(Call& c, const ArgInfo& a, double v) { c.real(a, v); }
inline void put(Call& c, const ArgInfo& a, bool v) { c.boolean(a, v); }
inline void put(Call& c, const ArgInfo& a, at::ScalarType t) { c.dtype(a, t); }
inline void put(Call& c, const ArgInfo& a, std::string_view s) { c.text(a, s); }
inline void put(Call& c, const ArgInfo& a, at::IntArrayRef v) { c.ints(a, v); }
inline void put(Call& c, const ArgInfo& a, at::OptionalIntArrayRef v) {
  v ? c.ints(a, *v) : c.none(a);
}
template <size_t N>
void put(Call& c, const ArgInfo& a, const std::array<bool, N>& bits) {
  std::array<int64_t, N> wide;
  std::copy(bits.begin(), bits.end(), wide.begin());
  c.bools(a, wide);
}
template <class T>
void put(Call& c, const ArgInfo& a, const std::optional<T>& v) {
  v ? put(c, a, *v) : c.none(a);
}

// How a schema's return type comes out of a call; the arguments decide in-place and out=.
template <class R>
struct Results;
template <>
struct Results<at::Tensor> {
  static at::Tensor make(const Inferred& t, ir::NodePtr n, c10::Device d) {
    return wrap(t, 0, std::move(n), d);
  }
};
template <class... T>
struct Results<std::tuple<T...>> {
  template <size_t... I>
  static std::tuple<T...> each(const Inferred& t, const ir::NodePtr& n, c10::Device d,
                               std::index_sequence<I...>) {
    return {wrap(t, I, n, d)...};
  }
  static std::tuple<T...> make(const Inferred& t, ir::NodePtr n, c10::Device d) {
    return each(t, n, d, std::index_sequence_for<T...>());
  }
};

template <class Op, class Schema = typename Op::schema>
struct Typed;

template <class Op, class R, class... A>
struct Typed<Op, R(A...)> {
  static inline const OpInfo* op = nullptr;

  static R call(typename c10::remove_symint<A>::type... args) {
    Call c(*op);
    return guarded(
        [&]() -> R {
          size_t i = 0;
          (put(c, op->args[i++], args), ...);
          if constexpr (kForm == FormKind::kInplace) c.writes(std::get<0>(std::tie(args...)));
          const Inferred& types = c.infer(kForm, [&](Stack& s) { (s.emplace_back(args), ...); });
          if constexpr (kForm == FormKind::kInplace) {
            at::Tensor& self = std::get<0>(std::tie(args...));
            check_overlap(self);
            (check_read(self, args), ...);
            write_result(self, {c.node(types), 0});
            return self;
          } else {
            ir::NodePtr n = c.node(types);
            if (!op->writes.empty()) {
              std::array<at::Tensor, sizeof...(A)> tensors{as_tensor(args)...};
              write_side_effects(*op, n, [&](size_t at) { return tensors[at]; });
            }
            return Results<R>::make(types, std::move(n), c.device());
          }
        },
        [&] { return c.describe(); });
  }

  static void add(torch::Library& m, const char* name, const OpInfo* info) {
    op = info;
    m.impl(name, TORCH_FN((&call)));
  }

 private:
  static constexpr FormKind kForm =
      std::is_reference_v<R> ? FormKind::kInplace : FormKind::kFunctional;
  static void check_read(const at::Tensor& written, const at::Tensor& t) {
    check_partial_overlap(written, t);
  }
  template <class T>
  static void check_read(const at::Tensor&, const T&) {}
  static at::Tensor as_tensor(const at::Tensor& t) { return t; }
  static at::Tensor as_tensor(const std::optional<at::Tensor>& t) {
    return t.value_or(at::Tensor());
  }
  template <class T>
  static at::Tensor as_tensor(const T&) {
    return {};
  }
};

}  // namespace tp::torch_room
