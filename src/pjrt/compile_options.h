// The bytes of XLA's CompileOptionsProto, written by hand: a pure function, no protobuf. Equal
// options give equal bytes. Field numbers are those of xla/pjrt/proto/compile_options.proto; tests
// compare with a real decoder.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace tp::pjrt {

using OptionValue = std::variant<std::string, int64_t, bool, double>;

struct CompileOptions {
  int64_t num_replicas = 1, num_partitions = 1;
  // Device ids, replica-major: entry r * num_partitions + p runs replica r, partition p. Empty: XLA
  // chooses.
  std::vector<int64_t> device_ids;
  bool use_spmd_partitioning = false;
  bool use_auto_spmd_partitioning = false;
  bool use_shardy_partitioner = false;
  // The program's many parameters travel as one tuple.
  bool tuple_parameters = false;
  // xla::ExecutionOptions::EffortLevel (level_number); 0: the plugin's own choice.
  int optimization_level = 0;
  // May sharding propagation choose the shardings of parameters / outputs? One flag for all, or one
  // each.
  std::vector<bool> propagate_to_parameters, propagate_to_output;
  // XLA debug options by name, each with a value of the option's own type. Order does not matter.
  std::vector<std::pair<std::string, OptionValue>> overrides;
};

// "O0" to "O3" as XLA numbers them; empty: 0.
int level_number(std::string_view level);

std::string encode_compile_options(const CompileOptions& options);

}  // namespace tp::pjrt
