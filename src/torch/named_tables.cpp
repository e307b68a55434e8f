#include "torch/named_tables.h"

#include <algorithm>

#include "ops/host/host.h"
#include "torch/host_op.h"
#include "torch/kernels.h"
#include "torch/recorder.h"

namespace tp::torch_room {
namespace {

bool is_known(NameOf of, const std::string& name) {
  switch (of) {
    case NameOf::kOverloads: {
      const std::vector<std::string>& all = recorded_overloads();
      return std::find(all.begin(), all.end(), name) != all.end();
    }
    case NameOf::kRows:
      return ops::find_row(name) != nullptr;
    case NameOf::kHostOps:
      return is_host_op(name);
    case NameOf::kArguments:
      return is_number_argument(name);
  }
  return false;
}

}  // namespace

std::vector<NamedTable> named_tables() {
  std::vector<std::string_view> shapes, hosts;
  for (const MetaRow& r : meta_rows_own()) shapes.push_back(r.overload);
  for (const ops::Row& r : ops::known_host_rows()) hosts.push_back(r.name);
  return {{"typed.cpp", NameOf::kOverloads, typed_names()},
          {"around.cpp", NameOf::kOverloads, around_names()},
          {"meta_own.cpp", NameOf::kRows, std::move(shapes)},
          {"host_op.cpp", NameOf::kHostOps, exception_names()},
          {"host_check.cpp", NameOf::kHostOps, checked_names()},
          {"ops/host/host.cpp", NameOf::kHostOps, std::move(hosts)},
          {"schema.cpp", NameOf::kArguments, number_names()}};
}

std::vector<std::string> unknown_names(NameOf of, const std::vector<std::string>& names) {
  std::vector<std::string> unknown;
  for (const std::string& name : names)
    if (!is_known(of, name)) unknown.push_back(name);
  return unknown;
}

}  // namespace tp::torch_room
