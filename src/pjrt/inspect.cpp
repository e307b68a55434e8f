#include "pjrt/inspect.h"

namespace tp::pjrt {
namespace {

std::optional<CompiledMemory> memory_of(const PJRT_Api* api, PJRT_Executable* executable) {
  PJRT_Executable_GetCompiledMemoryStats_Args a{};
  a.executable = executable;
  if (try_call<&PJRT_Api::PJRT_Executable_GetCompiledMemoryStats>(api, a)) return std::nullopt;
  return CompiledMemory{a.argument_size_in_bytes,       a.output_size_in_bytes,
                        a.temp_size_in_bytes,           a.alias_size_in_bytes,
                        a.generated_code_size_in_bytes, a.peak_memory_in_bytes};
}

std::vector<std::pair<std::string, double>> costs_of(const PJRT_Api* api,
                                                     PJRT_Executable* executable) {
  std::vector<std::pair<std::string, double>> out;
  PJRT_Executable_GetCostAnalysis_Args a{};
  a.executable = executable;
  if (try_call<&PJRT_Api::PJRT_Executable_GetCostAnalysis>(api, a)) return out;
  for (size_t i = 0; i < a.num_properties; ++i) {
    const PJRT_NamedValue& v = a.properties[i];
    std::string name(v.name, v.name_size);
    if (v.type == PJRT_NamedValue_kFloat) out.emplace_back(std::move(name), v.float_value);
    if (v.type == PJRT_NamedValue_kInt64)
      out.emplace_back(std::move(name), static_cast<double>(v.int64_value));
  }
  return out;
}

// Asked twice, as the API wants it: for the size, then for the bytes.
void optimized_of(const PJRT_Api* api, PJRT_Executable* executable, Inspection& out) {
  PJRT_Program program{};
  program.struct_size = sizeof(program);
  PJRT_Executable_OptimizedProgram_Args a{};
  a.executable = executable;
  a.program = &program;
  if (try_call<&PJRT_Api::PJRT_Executable_OptimizedProgram>(api, a)) return;
  std::string bytes(program.code_size, '\0');
  program.code = bytes.data();
  if (try_call<&PJRT_Api::PJRT_Executable_OptimizedProgram>(api, a)) return;
  out.optimized = std::move(bytes);
  out.optimized_format.assign(program.format, program.format_size);
}

}  // namespace

Inspection inspect(const PJRT_Api* api, PJRT_Executable* executable, bool optimized) {
  Inspection out{memory_of(api, executable), costs_of(api, executable), {}, {}};
  if (optimized) optimized_of(api, executable, out);
  return out;
}

}  // namespace tp::pjrt
