#include "pjrt/named_value.h"

namespace tp::pjrt {
namespace {

PJRT_NamedValue named_value(const std::string& name, const OptionValue& value) {
  PJRT_NamedValue v{};
  v.struct_size = sizeof(v);
  v.name = name.data();
  v.name_size = name.size();
  v.value_size = 1;
  if (auto* s = std::get_if<std::string>(&value)) {
    v.type = PJRT_NamedValue_kString;
    v.string_value = s->data();
    v.value_size = s->size();
  } else if (auto* i = std::get_if<int64_t>(&value)) {
    v.type = PJRT_NamedValue_kInt64;
    v.int64_value = *i;
  } else if (auto* b = std::get_if<bool>(&value)) {
    v.type = PJRT_NamedValue_kBool;
    v.bool_value = *b;
  } else {
    v.type = PJRT_NamedValue_kFloat;
    v.float_value = static_cast<float>(std::get<double>(value));
  }
  return v;
}

}  // namespace

std::vector<PJRT_NamedValue> named_values(std::span<const NamedOption> options) {
  std::vector<PJRT_NamedValue> values;
  for (const auto& [name, value] : options) values.push_back(named_value(name, value));
  return values;
}

}  // namespace tp::pjrt
