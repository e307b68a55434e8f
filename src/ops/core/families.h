// Every family of the op table. Functions, so that there is no static-initialisation order; each
// gives a span over a constant array of its own file. Any thread.
#pragma once
#include "ops/core/row.h"

namespace tp::ops {

Family elementwise_unary();
Family elementwise_binary();
Family elementwise_ternary();
Family activation();
Family compare();
Family reduction();
Family reduction_index();
Family softmax();
Family matmul();
Family grouped_mm();
Family loss();
Family distance();
Family linalg();

Family conv();
Family pool();
Family norm();
Family upsample();
Family embedding();
Family ctc();
Family fft();
Family special_bessel();
Family special_erf();
Family special_gamma();
Family special_polynomial();

Family view();
Family shape();
Family index();
Family sort();
Family scan();
Family creation();
Family random();
Family amp();
Family optim();

}  // namespace tp::ops
