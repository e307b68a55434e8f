// What devices of a mesh tell each other inside a manual region (ir/region.h: manual_kind): there a
// value is one device's part, and collectives are said by the user. Any thread.
#pragma once
#include "ops/core/row.h"

namespace tp::ops {

// torch_pjrt::manual_collective(self, kind, parameters, groups, group_size, shape):
//   all_reduce, reduce_scatter   [how: 0 sum, 1 product, 2 least, 3 greatest; dimension]
//   all_gather                   [dimension]
//   all_to_all                   [split dimension, dimension where parts are joined]
//   permute                      groups are pairs: from, to
//   index                        groups are a table: by partition, the place along an axis
void manual_collective_type(const Args& a, std::vector<Type>& out);
void manual_collective_lower(Lowering& l, std::vector<V>& out);

}  // namespace tp::ops
