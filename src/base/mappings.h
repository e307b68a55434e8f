// How many memory mappings this process has, and how many the system allows it. A compiled program
// takes three for each of its kernels on XLA's CPU, hundreds for a training step; where the limit
// is reached compiles fail, and the exception that says so may end the process, as the unwinder
// trips over kernels that were half loaded.
#pragma once
#include <cstddef>

namespace tp {

struct Mappings {
  size_t used = 0;
  size_t limit = 0;  // 0: none that we know of
};
Mappings count_mappings();  // milliseconds where there are many; any thread

}  // namespace tp
