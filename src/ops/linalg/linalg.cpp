// Triangular systems. (Decompositions are the host's.) A is conjugated or transposed by the solve
// itself; batch dims are spread first, as StableHLO wants them equal.
#include "base/text.h"
#include "ops/core/families.h"
#include "ops/core/helpers.h"

namespace tp::ops {
namespace {

enum class Form { kPlain, kTransposed, kAdjoint };

struct System {
  bool left, upper, unit;
  Form form = Form::kPlain;
};

V solve(Builder& b, V a, V rhs, const System& s) {
  if (rhs.type.numel() == 0 || a.type.numel() == 0) return b.zeros(rhs.type);
  static constexpr std::string_view kForms[] = {"NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"};
  return b.op("stablehlo.triangular_solve", {a, rhs}, rhs.type,
              cat("left_side = ", s.left, ", lower = ", !s.upper, ", unit_diagonal = ", s.unit,
                  ", transpose_a = #stablehlo<transpose ", kForms[static_cast<int>(s.form)], ">"));
}

// x with the batch dims of `like` and its own last two.
V with_batch(Builder& b, V x, Ints like) {
  IntList dims(like.begin(), like.end() - 2);
  dims.insert(dims.end(), x.dims().end() - 2, x.dims().end());
  return b.broadcast_to(x, dims);
}

void solve_triangular(Lowering& l, std::vector<V>& out) {
  Builder& b = l.builder();
  V rhs = with_batch(b, b.convert(l.in("B"), l.out().dtype()), l.out().dims());
  V a = with_batch(b, l.in("self"), l.out().dims());
  out.push_back(
      solve(b, a, rhs, {l.b_or("left", true), l.b("upper"), l.b_or("unitriangular", false)}));
}

void triangular_solve(Lowering& l, std::vector<V>& out) {
  Builder& b = l.builder();
  V rhs = with_batch(b, l.in("self"), l.out().dims()), a = with_batch(b, l.in("A"), l.out().dims());
  Form form = l.b_or("transpose", false) ? Form::kTransposed : Form::kPlain;
  out.push_back(
      solve(b, a, rhs, {true, l.b_or("upper", true), l.b_or("unitriangular", false), form}));
  out.push_back(b.broadcast_to(l.in("A"), l.out(1).dims()));
}

// A = L L^H or U^H U: two triangular systems.
void cholesky_solve(Lowering& l, std::vector<V>& out) {
  Builder& b = l.builder();
  V a = l.in("A"), x = l.in("self");
  bool upper = l.b("upper");
  System first{true, upper, false, upper ? Form::kAdjoint : Form::kPlain};
  System second{true, upper, false, upper ? Form::kPlain : Form::kAdjoint};
  out.push_back(solve(b, a, solve(b, a, x, first), second));
}

const Row kRows[] = {
    {.name = "aten::linalg_solve_triangular",
     .lower = solve_triangular,
     .kernels = {{"triangular_solve_cpu", takes::kWide | takes::kComplexes}}},
    {.name = "aten::triangular_solve",
     .lower = triangular_solve,
     .kernels = {{"triangular_solve_cpu", takes::kWide | takes::kComplexes}}},
    {.name = "aten::_cholesky_solve_helper",
     .lower = cholesky_solve,
     .kernels = {{"cholesky_solve_cpu", takes::kWide | takes::kComplexes}}},
};

}  // namespace

Family linalg() { return kRows; }

}  // namespace tp::ops
