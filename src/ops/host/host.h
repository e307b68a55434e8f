// Host ops: ops that no row lowers. Their program calls back into this process where it runs
// (stablehlo.custom_call), and the process calls PyTorch's CPU kernel (src/torch/host_call.cpp).
// Which ops may be one is torch's business (src/torch/host_op.cpp); here a row is made for a name.
// Thread-safe.
#pragma once
#include "ops/core/row.h"

namespace tp::ops {

// The custom call's target, and the names in its backend_config.
inline constexpr std::string_view kHostTarget = "torch_pjrt_host_op";
inline constexpr std::string_view kHostOp = "op";        // "aten::_linalg_svd"
inline constexpr std::string_view kHostWords = "words";  // the node's attributes (ir/attrs.h)
// Words that are inputs of the program: the call's last operands, s64 or f64, hold their bits.
inline constexpr std::string_view kHostInputs = "inputs";
inline constexpr std::string_view kHostPython = "python";  // operands that are Python numbers
inline constexpr std::string_view kHostNode = "node";      // its place in the program's order

// What a host op's type rule throws where it cannot say: the call runs on the CPU, at once.
struct NoType {};

// The row of a host op; made at the first call for a name, lives for the process. Most have no type
// rule: the recorder asks PyTorch.
const Row& host_row(std::string_view name);
// Those of which something is known beforehand: what their rows start as.
Family known_host_rows();

// Appends the node's results, as a call of the overload `op`, whose schema has the node's
// attributes and operands. Numbers that are inputs of the program (Row::general) are its operands.
void host_call(Lowering& l, std::vector<V>& out, std::string_view op);

// For table.cpp: null where the row or kind is no host op's.
const ir::OpKind* host_kind_of(const Row& row);
const Row* host_row_of(const ir::OpKind& kind);

}  // namespace tp::ops
