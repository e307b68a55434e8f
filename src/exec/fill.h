// Fill leaves as bytes: a tensor of one value, made on the host and handed to the device without a
// copy.
#pragma once
#include "client/computation_client.h"

namespace tp::exec {

// `n` is a fill node. Values are cast as eager's `fill_` casts them. Any thread.
client::DataPtr upload_fill(const ir::Node& n, int device);

}  // namespace tp::exec
