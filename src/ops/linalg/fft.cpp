// Fourier transforms: PyTorch's three primitives, over any set of dims. StableHLO's fft takes up to
// three innermost dims, so transformed dims are moved behind the others and taken in groups.
#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "ops/core/families.h"
#include "ops/core/helpers.h"

namespace tp::ops {
namespace {

constexpr size_t kMostDims = 3;

IntList wrapped(Ints dims, int rank) {
  IntList v(dims.begin(), dims.end());
  for (int64_t& d : v) d += d < 0 ? rank : 0;
  return v;
}

// A permutation that brings `last`, in this order, behind the other dims.
IntList to_the_end(int rank, Ints last) {
  IntList perm;
  for (int64_t d = 0; d < rank; ++d)
    if (std::find(last.begin(), last.end(), d) == last.end()) perm.push_back(d);
  perm.insert(perm.end(), last.begin(), last.end());
  return perm;
}

enum class Kind { kForward, kInverse, kFromReal, kToReal };

// One group of at most three dims. `length` is the signal's length in the last of them, which a
// half spectrum does not tell.
V transform(Builder& b, V x, Kind kind, Ints dims, int64_t length) {
  static constexpr std::string_view kNames[] = {"FFT", "IFFT", "RFFT", "IRFFT"};
  IntList perm = to_the_end(x.rank(), dims);
  x = b.transpose(x, perm);
  IntList lengths, out(x.dims().begin(), x.dims().end());
  for (int64_t d : dims) lengths.push_back(d == dims.back() ? length : 0);
  for (size_t i = 0; i + 1 < lengths.size(); ++i) lengths[i] = out[out.size() - dims.size() + i];
  if (kind == Kind::kFromReal) out.back() = length / 2 + 1;
  if (kind == Kind::kToReal) out.back() = length;
  bool real = kind == Kind::kToReal;
  DType wide = ir::complex_dtype(ir::real_dtype(x.dtype()));
  Type t = ir::make_type(real ? ir::real_dtype(x.dtype()) : wide, out);
  V y = b.op("stablehlo.fft", {x}, t,
             cat("fft_type = #stablehlo<fft_type ", kNames[static_cast<int>(kind)],
                 ">, fft_length = ", hlo::i64_array(lengths)));
  return b.transpose(y, inverse_permutation(perm));
}

V transform_all(Builder& b, V x, Kind kind, IntList dims) {
  while (!dims.empty()) {
    size_t n = std::min(dims.size(), kMostDims);
    IntList group(dims.end() - static_cast<int64_t>(n), dims.end());
    dims.resize(dims.size() - n);
    x = transform(b, x, kind, group, x.dim(static_cast<size_t>(group.back())));
  }
  return x;
}

// PyTorch's normalization: 0 none, 1 by the root of the number of points, 2 by that number. XLA's
// inverse transforms have divided by that number already.
V scaled(Builder& b, V x, int64_t normalization, double points, Kind kind) {
  double c = normalization == 0 ? 1 : normalization == 1 ? 1 / std::sqrt(points) : 1 / points;
  if (kind == Kind::kInverse || kind == Kind::kToReal)
    c = normalization == 0 ? points : normalization == 1 ? std::sqrt(points) : 1;
  if (c == 1) return x;
  if (!ir::is_complex(x.dtype())) return b.mul(x, c);
  return make_complex(b, b.mul(real_part(b, x), c), b.mul(imag_part(b, x), c));
}

double points_of(Type t, Ints dims) {
  double n = 1;
  for (int64_t d : dims) n *= static_cast<double>(t.dim(static_cast<size_t>(d)));
  return n;
}

void c2c(Lowering& l, std::vector<V>& out) {
  V x = l.in("self");
  IntList dims = wrapped(l.ints("dim"), x.rank());
  if (l.out().numel() == 0) return out.push_back(x);
  Kind kind = l.b("forward") ? Kind::kForward : Kind::kInverse;
  V y = transform_all(l.builder(), x, kind, dims);
  out.push_back(scaled(l.builder(), y, l.i("normalization"), points_of(x.type, dims), kind));
}

void r2c(Lowering& l, std::vector<V>& out) {
  Builder& b = l.builder();
  V x = l.in("self");
  IntList dims = wrapped(l.ints("dim"), x.rank());
  if (l.out().numel() == 0) return out.push_back(b.zeros(l.out()));
  V y;
  if (l.b("onesided")) {
    int64_t last = dims.back(), n = x.dim(static_cast<size_t>(last));
    y = transform(b, x, Kind::kFromReal, {&last, 1}, n);
    y = transform_all(b, y, Kind::kForward, IntList(dims.begin(), dims.end() - 1));
  } else {
    y = transform_all(b, b.convert(x, l.out().dtype()), Kind::kForward, dims);
  }
  out.push_back(scaled(b, y, l.i("normalization"), points_of(x.type, dims), Kind::kForward));
}

void c2r(Lowering& l, std::vector<V>& out) {
  Builder& b = l.builder();
  V x = l.in("self");
  IntList dims = wrapped(l.ints("dim"), x.rank());
  if (l.out().numel() == 0) return out.push_back(b.zeros(l.out()));
  int64_t last = dims.back(), n = l.i("last_dim_size");
  x = transform_all(b, x, Kind::kInverse, IntList(dims.begin(), dims.end() - 1));
  x = b.slice_dim(x, last, 0, n / 2 + 1);
  V y = transform(b, x, Kind::kToReal, {&last, 1}, n);
  out.push_back(scaled(b, y, l.i("normalization"), points_of(l.out(), dims), Kind::kToReal));
}

const Row kRows[] = {
    {.name = "aten::_fft_c2c",
     .lower = c2c,
     .out = {.row_major = true},
     .for_doubles = Fact::kDoubleFft},
    {.name = "aten::_fft_r2c",
     .lower = r2c,
     .out = {.row_major = true},
     .for_doubles = Fact::kDoubleFft},
    {.name = "aten::_fft_c2r",
     .lower = c2r,
     .out = {.row_major = true},
     .for_doubles = Fact::kDoubleFft},
};

}  // namespace

Family fft() { return kRows; }

}  // namespace tp::ops
