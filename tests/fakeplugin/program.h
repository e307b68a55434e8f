// What the fake plugin knows of a program: the types in the text of `@main` and the devices in the
// compile options. Pure functions.
#pragma once
#include <pjrt_c_api.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace fake {

struct TensorType {
  PJRT_Buffer_Type type;
  std::vector<int64_t> dims;
  size_t bytes() const;
};
size_t element_size(PJRT_Buffer_Type type);

struct Program {
  std::string text;
  std::vector<TensorType> parameters, results;
  std::vector<bool> donatable;      // by parameter
  std::vector<int64_t> device_ids;  // one a launch slot; replica-major
};

// Gives the reason where the text has no readable `@main`; empty where all is well.
std::string parse_module(std::string_view text, Program& out);
// Reads the device assignment out of CompileOptionsProto bytes; [0] where there is none.
std::vector<int64_t> parse_device_ids(std::string_view options);

}  // namespace fake
