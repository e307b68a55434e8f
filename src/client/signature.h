// The signature of a module's `@main`, read from its text: what execute() checks arguments against.
// Pure functions; any thread.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ir/type.h"

namespace tp::client {

struct Signature {
  std::vector<ir::Type> parameters, results;
  // Numbers of the parameters that the module lets the plugin consume (tf.aliasing_output,
  // jax.buffer_donor).
  std::vector<int64_t> donatable;
  friend bool operator==(const Signature&, const Signature&) = default;
};

// `module` holds one `func.func [public] @main(%a: tensor<..> {..}, ..) -> (tensor<..>, ..)`.
// Throws kInternal where it does not, or where a type is not a tensor of fixed size.
Signature parse_signature(std::string_view module);
// A `func.func` line that parse_signature reads back.
std::string to_text(const Signature& signature);

}  // namespace tp::client
