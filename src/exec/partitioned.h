// Running a partitioned program: one handle an argument becomes one buffer a device, and back. Any
// thread.
#pragma once
#include <span>
#include <vector>

#include "client/computation_client.h"
#include "exec/program_cache.h"

namespace tp::exec {

// `argument` as the program wants parameter `slot`: for a program on a mesh, data of one device is
// put on all of them, cut where the program wants it cut. Throws kValue where it is sharded
// otherwise.
client::DataPtr fit(client::ComputationClient& client, const Program& program, size_t slot,
                    const client::DataPtr& argument);

// Does anybody hold one of the parts by itself? Then the whole must not be given away.
bool shares_parts(const client::Data& data);

// `arguments` fit. `device`: the one that the results' tensors are of.
std::vector<client::DataPtr> run_partitioned(client::ComputationClient& client,
                                             const Program& program,
                                             std::span<const client::DataPtr> arguments,
                                             std::span<const uint8_t> donated, int device);

}  // namespace tp::exec
