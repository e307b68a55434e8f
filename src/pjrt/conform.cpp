#include "pjrt/conform.h"

#include "base/text.h"
#include "pjrt/conform_rows.h"

namespace tp::pjrt::conform {
namespace {

const Row* find(std::string_view name) {
  for (auto rows : {object_calls(), program_calls(), behaviours()})
    for (const Row& r : rows)
      if (r.name == name) return &r;
  return nullptr;
}

// A call that fails is judged in its own row; in others what needs it was not tried.
Answer judge(const Row& row, const Error& e) {
  std::string words = e.message();
  bool call = row.there != nullptr;
  if (call && !words.starts_with(cat(row.name, " ")) && !words.starts_with(cat(row.name, ":")))
    return {Verdict::kNotTried, words};
  bool missing = e.code() == Code::kNotImplemented;
  return {missing ? Verdict::kMissing : Verdict::kWrong, words};
}

}  // namespace

std::span<const Row> calls() {
  static const std::vector<Row> all = [] {
    std::vector<Row> v(object_calls().begin(), object_calls().end());
    v.insert(v.end(), program_calls().begin(), program_calls().end());
    return v;
  }();
  return all;
}

Answer ask(const Setting& setting, std::string_view name) {
  const Row* row = find(name);
  if (!row) return {Verdict::kWrong, cat("no row is called '", name, "'")};
  try {
    Rig rig(setting);
    if (row->there && !row->there(rig.api()))
      return {Verdict::kMissing, "the plugin's table has no such entry"};
    return {Verdict::kWorks, row->probe(rig)};
  } catch (const Unmet& u) {
    return {Verdict::kWrong, u.words};
  } catch (const NotTried& n) {
    return {Verdict::kNotTried, n.words};
  } catch (const Error& e) {
    return judge(*row, e);
  } catch (const std::exception& e) {
    return {Verdict::kWrong, e.what()};
  }
}

}  // namespace tp::pjrt::conform
