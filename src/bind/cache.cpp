#include "bind/cache.h"

#include <pybind11/stl.h>

#include "base/cache_place.h"
#include "base/error.h"
#include "exec/cache_file.h"
#include "exec/cache_folder.h"

namespace py = pybind11;

namespace tp::bind {
namespace {

py::tuple to_python(const exec::Removed& r) { return py::make_tuple(r.files, r.bytes); }

// name, bytes, used_ns, nodes, compile_ms, where, outputs; the last four are of a readable file.
py::list cache_list(const std::string& folder) {
  py::list out;
  for (const exec::FolderFile& f : exec::list_folder(folder).programs) {
    exec::CacheFile head;
    try {
      if (auto bytes = read_cache_file(folder, f.name, Touch::kNo, trust_of(cache_place())))
        head = exec::decode(*bytes);
    } catch (const Error&) {
      head.where = "(broken: see cache verify)";
    }
    out.append(py::make_tuple(f.name, f.bytes, f.used_ns, head.nodes, head.compile_ms, head.where,
                              head.outputs));
  }
  return out;
}

py::tuple cache_size(const std::string& folder) {
  exec::FolderList l = exec::list_folder(folder);
  return py::make_tuple(l.programs.size(), l.program_bytes());
}

py::list cache_verify(const std::string& folder) {
  py::list out;
  for (const exec::Complaint& c : exec::verify_folder(folder, trust_of(cache_place())))
    out.append(py::make_tuple(c.name, c.what));
  return out;
}

}  // namespace

void add_cache(py::module_& m) {
  m.def("cache_place", [] {
    CachePlace p = cache_place();
    return py::make_tuple(p.folder, p.read_only, p.limit_bytes);
  });
  m.def("set_cache_place",
        [](std::string folder, bool read_only, int64_t limit_bytes, bool shared) {
          set_cache_place({std::move(folder), read_only || shared, limit_bytes, shared});
        });
  m.def("cache_list", &cache_list);
  m.def("cache_size", &cache_size);
  m.def("cache_verify", &cache_verify);
  m.def("cache_evict", [](const std::string& folder, int64_t limit_bytes) {
    return to_python(exec::evict(folder, limit_bytes, 0));
  });
  m.def("cache_clear",
        [](const std::string& folder) { return to_python(exec::clear_folder(folder)); });
}

}  // namespace tp::bind
