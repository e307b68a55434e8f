#include "exec/key.h"

namespace tp::exec {

std::string_view ingredient_name(Ingredient i) {
  static constexpr std::string_view kNames[] = {
      "force data",          "environment", "torch revision",
      "torch_pjrt revision", "roots",       "parameter sequence",
      "donated parameters",  "device",      "sharding"};
  static_assert(std::size(kNames) == static_cast<size_t>(Ingredient::kCount));
  return kNames[static_cast<size_t>(i)];
}

}  // namespace tp::exec
