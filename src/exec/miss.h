// Why a graph that some process has compiled and stored had to be compiled again: another plugin,
// another flag, another torch. Reads the headers of the newest stored programs, once a process.
// Never throws; any thread.
#pragma once
#include <vector>

#include "exec/disk_cache.h"
#include "exec/sketch.h"

namespace tp::exec {

// Empty where the disk holds nothing of this structure, or nothing is kept on disk.
std::vector<Reason> why_missed(const StoredProgram& p);
// Forgets the headers read, for tests.
void forget_stored_headers();

}  // namespace tp::exec
