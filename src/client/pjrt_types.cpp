#include "client/pjrt_types.h"

#include "base/text.h"

namespace tp::client {
namespace {

constexpr PJRT_Buffer_Type kTypes[] = {
    PJRT_Buffer_Type_PRED,   PJRT_Buffer_Type_U8,  PJRT_Buffer_Type_S8,   PJRT_Buffer_Type_S16,
    PJRT_Buffer_Type_S32,    PJRT_Buffer_Type_S64, PJRT_Buffer_Type_U16,  PJRT_Buffer_Type_U32,
    PJRT_Buffer_Type_U64,    PJRT_Buffer_Type_F16, PJRT_Buffer_Type_BF16, PJRT_Buffer_Type_F32,
    PJRT_Buffer_Type_F64,    PJRT_Buffer_Type_C64, PJRT_Buffer_Type_C128, PJRT_Buffer_Type_F8E4M3FN,
    PJRT_Buffer_Type_F8E5M2,
};
static_assert(std::size(kTypes) == static_cast<size_t>(ir::DType::kCount));

}  // namespace

PJRT_Buffer_Type to_pjrt(ir::DType t) { return kTypes[static_cast<size_t>(t)]; }

ir::DType from_pjrt(PJRT_Buffer_Type t) {
  for (size_t i = 0; i < std::size(kTypes); ++i)
    if (kTypes[i] == t) return static_cast<ir::DType>(i);
  fail(Code::kNotImplemented,
       cat("PJRT element type ", static_cast<int>(t), " has no PyTorch type"));
}

}  // namespace tp::client
