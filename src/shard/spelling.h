// Shardings as a module's text has them. One module has one form, Shardy's or GSPMD's: plugins drop
// the other without a word, or abort. In Shardy's form all shardings stand on one mesh where one
// serves them all: propagation does not cross meshes.
#pragma once
#include <map>

#include "shard/sharding.h"

namespace tp::shard {

enum class Form : unsigned char { kShardy, kGspmd };

class Spelling {
 public:
  // `all` are those that the module needs.
  Spelling(Form form, std::vector<int> devices, std::span<const Ref> all);
  Form form() const { return form_; }
  // What stands in front of the functions; empty in GSPMD's form.
  std::string top() const;
  // The attribute of a parameter or result, and of a constraint. Null: replicated.
  std::string attribute(const Sharding* s, size_t rank) const;
  std::string value(const Sharding* s, size_t rank) const;
  // What a constraint in GSPMD's form says of dimensions that it leaves open; empty: of none.
  static std::string unspecified(const Sharding& s, size_t rank);

 private:
  Form form_;
  std::vector<int> devices_;
  std::vector<Mesh> meshes_;                            // mesh, mesh_1, ...
  std::map<std::string, size_t, std::less<>> mesh_of_;  // by text
};

}  // namespace tp::shard
