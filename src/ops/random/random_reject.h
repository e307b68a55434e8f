// Distributions that are drawn by rejection: gamma, Dirichlet, Poisson, binomial. Each element
// draws until its proposal is accepted; the loop ends when all have. Their rows stand in
// random.cpp. Pure functions; any thread.
#pragma once
#include "ops/core/row.h"

namespace tp::ops {

void standard_gamma_type(const Args& a, std::vector<Type>& out);
void standard_gamma_lower(Lowering& l, std::vector<V>& out);
void dirichlet_type(const Args& a, std::vector<Type>& out);
void dirichlet_lower(Lowering& l, std::vector<V>& out);
void poisson_type(const Args& a, std::vector<Type>& out);
void poisson_lower(Lowering& l, std::vector<V>& out);
void binomial_type(const Args& a, std::vector<Type>& out);
void binomial_lower(Lowering& l, std::vector<V>& out);

}  // namespace tp::ops
