// Part 1 of the generated table: see meta_rows.h.
#include "torch/meta_rows.h"

#define META_PART 1
#define META_HEADERS
#include "gen/meta_rows.inc"
#undef META_HEADERS

namespace tp::torch_room {

std::span<const MetaRow> meta_rows_1() {
  static const MetaRow kRows[] = {
#include "gen/meta_rows.inc"
      {"", nullptr, Structured::kNo}};
  return {kRows, std::size(kRows) - 1};
}

}  // namespace tp::torch_room
