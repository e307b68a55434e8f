// Who called the libraries' lines. Ops are recorded at the innermost line outside torch; where that
// one is some library's, the user's own innermost line that first reached it is remembered beside
// it (a walk to it at each op would cost more than recording the op). For people, as locations are.
// Thread-safe.
#pragma once
#include <string>

#include "ir/location.h"

namespace tp::ir {

// The first caller stays.
void set_caller(LocationId of, LocationId caller);
// 0 where none is known, or the line is the user's own.
LocationId caller_of(LocationId id);
// ", first reached from train.py:12", or empty.
std::string caller_text(LocationId id);
// "modeling.py:41, first reached from train.py:12"
std::string line_and_caller(LocationId id);

// The two lines of one moment, known exactly; `own` is 0 where `at` is the user's own, or there is
// none.
struct Site {
  LocationId at = 0, own = 0;
  auto operator<=>(const Site&) const = default;
};
// "trainer.py:812 in fit, called from train.py:12 in main"
std::string site_text(const Site& l);

}  // namespace tp::ir
