// differences(): two sketches compared part by part. Each part trims what is equal at both ends and
// pairs up the rest, so all of it is linear.
#include <algorithm>
#include <map>
#include <unordered_set>

#include "base/text.h"
#include "exec/sketch.h"
#include "ir/callers.h"

namespace tp::exec {
namespace {

using ir::LocationId;
using Reasons = std::vector<Reason>;

std::string at(LocationId where, std::string_view before) {
  std::string line = ir::line_and_caller(where);
  return line.empty() ? line : cat(before, line);
}
std::string in_brackets(LocationId where) { return where ? cat(at(where, " ("), ")") : ""; }

// aten::clamp -> aten.clamp
std::string op_name(std::string_view name) {
  size_t colon = name.find("::");
  if (colon == name.npos) return std::string(name);
  return cat(name.substr(0, colon), ".", name.substr(colon + 2));
}

// Collects reasons; a text said before is only counted.
class List {
 public:
  void add(std::string kind, std::string text, LocationId where = 0) {
    auto [it, fresh] = seen_.emplace(text, std::pair(reasons_.size(), 1));
    if (fresh) {
      reasons_.push_back({std::move(kind), std::move(text), where});
    } else {
      ++it->second.second;
    }
  }
  bool empty() const { return reasons_.empty(); }
  void move_into(Reasons& out) {
    for (auto& [text, place] : seen_)
      if (place.second > 1) reasons_[place.first].text += cat(" (", place.second, " times)");
    for (Reason& r : reasons_) out.push_back(std::move(r));
    reasons_.clear();
    seen_.clear();
  }

 private:
  Reasons reasons_;
  std::map<std::string, std::pair<size_t, int>> seen_;
};

// What is left of two lists once equal beginnings and ends are off: [begin, ends).
struct Middle {
  size_t begin, known_end, now_end;
  bool same_length() const { return known_end == now_end; }
};
template <class T, class Same>
Middle trim(const std::vector<T>& known, const std::vector<T>& now, const Same& same) {
  Middle m{0, known.size(), now.size()};
  while (m.begin < m.known_end && m.begin < m.now_end && same(known[m.begin], now[m.begin]))
    ++m.begin;
  while (m.known_end > m.begin && m.now_end > m.begin &&
         same(known[m.known_end - 1], now[m.now_end - 1])) {
    --m.known_end;
    --m.now_end;
  }
  return m;
}

// Takes out of both lists what `label` calls equal, in order; `pair` gets each pair.
template <class T, class Label, class Pair>
void match(std::vector<const T*>& known, std::vector<const T*>& now, const Label& label,
           const Pair& pair) {
  std::map<decltype(label(*known[0])), std::vector<const T*>> waiting;  // the first one last
  for (size_t i = known.size(); i-- > 0;) waiting[label(*known[i])].push_back(known[i]);
  std::erase_if(now, [&](const T* x) {
    auto it = waiting.find(label(*x));
    if (it == waiting.end() || it->second.empty()) return false;
    pair(*it->second.back(), *x);
    it->second.pop_back();
    return true;
  });
  std::unordered_set<const T*> left;
  for (const auto& [k, list] : waiting) left.insert(list.begin(), list.end());
  std::erase_if(known, [&](const T* x) { return !left.contains(x); });
}

template <class T>
std::vector<const T*> pointers(const std::vector<T>& all, size_t begin, size_t end) {
  std::vector<const T*> out;
  for (size_t i = begin; i < end; ++i) out.push_back(&all[i]);
  return out;
}

constexpr auto kDrop = [](const auto&, const auto&) {};

// --- ingredients
// ----------------------------------------------------------------------------------------------

void say_changed(List& out, std::string kind, std::string_view what, const std::string& before,
                 const std::string& after) {
  bool both = !before.empty() && !after.empty() && before != after;
  out.add(std::move(kind),
          both ? cat(what, " went ", before, " -> ", after) : cat(what, " changed"));
}

// How often each sharding stands among the arguments.
std::map<std::string, int> shardings_of(const Sketch& s) {
  std::map<std::string, int> count;
  for (const Sketch::Leaf& l : s.leaves)
    if (l.sharding) ++count[*l.sharding];
  return count;
}

void compare_ingredients(const Sketch& known, const Sketch& now, List& out) {
  auto differs = [&](Ingredient i) {
    return known.key.digests[static_cast<size_t>(i)] != now.key.digests[static_cast<size_t>(i)];
  };
  if (differs(Ingredient::kEnvironment))
    say_changed(out, "environment", "the plugin, its options or flags:", known.environment,
                now.environment);
  if (differs(Ingredient::kTorchRevision))
    say_changed(out, "torch revision", "torch", known.torch, now.torch);
  if (differs(Ingredient::kRevision))
    say_changed(out, "torch_pjrt revision", "torch_pjrt", known.ours, now.ours);
  if (differs(Ingredient::kDevice)) out.add("device", "it runs on another device");
  // An argument that moved says so itself.
  if (differs(Ingredient::kSharding) && shardings_of(known) == shardings_of(now))
    out.add("sharding", "the sharding mode changed");
}

// --- leaves
// ---------------------------------------------------------------------------------------------------

std::string leaf_name(const Sketch::Leaf& l) {
  if (l.feed == ir::Feed::kBuffer) return cat("arg ", l.index);
  return l.fill ? "constant" : "number";
}

std::string leaf_type(const Sketch::Leaf& l) {
  if (l.feed == ir::Feed::kBuffer || l.fill) return l.type.text();
  static constexpr const char* kKinds[] = {"bool", "int", "float", "complex"};
  return kKinds[static_cast<size_t>(l.number)];
}

void leaf_changed(const Sketch::Leaf& known, const Sketch::Leaf& now, List& out) {
  std::string where = in_brackets(now.where);
  if (leaf_type(known) != leaf_type(now)) {
    out.add("argument", cat(leaf_name(now), " ", leaf_type(known), " -> ", leaf_type(now), where),
            now.where);
  } else if (known.feed != now.feed || known.fill != now.fill) {
    out.add("argument",
            cat(leaf_name(known), " ", leaf_type(known), " became ",
                now.feed == ir::Feed::kBuffer ? "an argument" : "a constant", where),
            now.where);
  } else {
    out.add("sharding",
            cat("sharding of ", leaf_name(now), " ", leaf_type(now),
                " moved: ", known.sharding ? *known.sharding : "none", " -> ",
                now.sharding ? *now.sharding : "none", where),
            now.where);
  }
}

int category(const Sketch::Leaf& l) { return l.feed == ir::Feed::kBuffer ? 0 : l.fill ? 1 : 2; }

// The order of leaves follows hashes, so a new shape may move them: equal ones are paired first,
// then those of one line, then the rest where as many came as went.
void compare_leaves(const Sketch& known, const Sketch& now, List& out) {
  auto same = [](const Sketch::Leaf& a, const Sketch::Leaf& b) { return a.same(b); };
  Middle m = trim(known.leaves, now.leaves, same);
  auto before = pointers(known.leaves, m.begin, m.known_end);
  auto after = pointers(now.leaves, m.begin, m.now_end);
  auto text = [](const Sketch::Leaf& l) {
    return cat(category(l), leaf_type(l), l.sharding ? *l.sharding : "");
  };
  auto changed = [&](const Sketch::Leaf& a, const Sketch::Leaf& b) { leaf_changed(a, b, out); };
  match(before, after, [&](const Sketch::Leaf& l) { return std::pair(text(l), l.where); }, kDrop);
  match(before, after, text, kDrop);
  match(
      before, after, [](const Sketch::Leaf& l) { return std::pair(category(l), l.where); },
      changed);
  for (int c = 0; c < 3; ++c) {
    auto of = [c](const Sketch::Leaf* l) { return category(*l) == c; };
    auto went = std::count_if(before.begin(), before.end(), of);
    auto came = std::count_if(after.begin(), after.end(), of);
    // A number more or less belongs to an op more or less, which is told by itself.
    if (went != came && c < 2) continue;
    if (went == came) {
      std::vector<const Sketch::Leaf*> a, b;
      std::copy_if(before.begin(), before.end(), std::back_inserter(a), of);
      std::copy_if(after.begin(), after.end(), std::back_inserter(b), of);
      for (size_t i = 0; i < a.size(); ++i) leaf_changed(*a[i], *b[i], out);
    }
    std::erase_if(before, of);
    std::erase_if(after, of);
  }
  for (const Sketch::Leaf* l : after)
    out.add("argument",
            cat("new ", l->fill ? "constant " : "argument ", leaf_type(*l), in_brackets(l->where)),
            l->where);
  for (const Sketch::Leaf* l : before)
    out.add("argument",
            cat(l->fill ? "constant " : "argument ", leaf_type(*l), " is no longer there",
                in_brackets(l->where)),
            l->where);
}

// --- roots
// ----------------------------------------------------------------------------------------------------

void compare_roots(const Sketch& known, const Sketch& now, List& out) {
  auto before = pointers(known.roots, 0, known.roots.size());
  auto after = pointers(now.roots, 0, now.roots.size());
  match(before, after, [](const Sketch::Root& r) { return std::pair(r.name, r.where); }, kDrop);
  match(before, after, [](const Sketch::Root& r) { return r.name; }, kDrop);  // from another line
  auto text = [](const Sketch::Root& r, std::string_view how) {
    return cat("tensor ", r.type.text(), how, at(r.where, " (made at "), r.where ? ")" : "");
  };
  for (const Sketch::Root* r : after) out.add("alive", text(*r, " newly alive"), r->where);
  for (const Sketch::Root* r : before) out.add("dead", text(*r, " no longer alive"), r->where);
}

// --- ops
// ------------------------------------------------------------------------------------------------------

struct Changed {
  const Sketch::Op *known, *now;
};
// Ops that have no equal on the other side, and pairs of one op and line with other attributes.
struct Unmatched {
  std::vector<const Sketch::Op*> gone, fresh;
  std::vector<Changed> changed;
};

Unmatched unmatched(const Sketch& known, const Sketch& now) {
  Middle m = trim(known.ops, now.ops,
                  [](const Sketch::Op& a, const Sketch::Op& b) { return a.label == b.label; });
  Unmatched u{pointers(known.ops, m.begin, m.known_end), pointers(now.ops, m.begin, m.now_end), {}};
  match(u.gone, u.fresh, [](const Sketch::Op& o) { return std::pair(o.label, o.where); }, kDrop);
  match(
      u.gone, u.fresh, [](const Sketch::Op& o) { return std::pair(o.name, o.where); },
      [&](const Sketch::Op& a, const Sketch::Op& b) { u.changed.push_back({&a, &b}); });
  match(u.gone, u.fresh, [](const Sketch::Op& o) { return o.label; }, kDrop);  // from another line
  return u;
}

ir::AttrsView attrs_of(const Sketch& s, const Sketch::Op& op) {
  return ir::AttrsView({s.words.data() + op.words_at, op.num_words});
}

std::string value_text(const ir::Attr& a) {
  std::string text = ir::AttrsView({a.payload - 1, a.payload_words() + 1}).text();
  return text.substr(text.find('=') + 1);
}

bool same_value(const ir::Attr& a, const ir::Attr& b) {
  return a.kind == b.kind && a.count == b.count &&
         std::equal(a.payload, a.payload + a.payload_words(), b.payload);
}

bool is_number(const ir::Attr& a) {
  return a.kind == ir::AttrKind::kInt || a.kind == ir::AttrKind::kFloat ||
         a.kind == ir::AttrKind::kBool;
}

// One pair of ops that differ in their attributes: the numbers, or the lists of sizes.
void attrs_changed(const Sketch& known, const Sketch& now, const Changed& c, List& numbers,
                   List& sizes) {
  ir::AttrsView before = attrs_of(known, *c.known);
  for (ir::Attr a : attrs_of(now, *c.now)) {
    ir::Attr old{};
    bool had = before.find(a.name, &old);
    if (had && same_value(old, a)) continue;
    std::string name = cat(ir::symbol_name(a.name), " of ", op_name(c.now->name));
    std::string was = had ? value_text(old) : "none";
    bool view = std::string_view(c.now->name).starts_with("torch_pjrt::view");
    if (is_number(a) && !view)
      numbers.add("number",
                  cat("number ", value_text(a), at(c.now->where, " at "), " was baked (", name,
                      ", ", was, " before)"),
                  c.now->where);
    else
      sizes.add("size", cat(name, " ", was, " -> ", value_text(a), in_brackets(c.now->where)),
                c.now->where);
  }
}

void compare_ops(const Sketch& known, const Sketch& now, List& out, List& sizes) {
  Unmatched u = unmatched(known, now);
  for (const Sketch::Op* op : u.fresh)
    out.add("new op", cat("new op ", op_name(op->name), at(op->where, " at ")), op->where);
  for (const Sketch::Op* op : u.gone)
    out.add("gone op", cat("op ", op_name(op->name), at(op->where, " at "), " is no longer there"),
            op->where);
  for (const Changed& c : u.changed) attrs_changed(known, now, c, out, sizes);
}

// The leaves are equal, one by one.
void compare_donors(const Sketch& known, const Sketch& now, List& out) {
  for (size_t i = 0; i < now.leaves.size() && i < known.leaves.size(); ++i) {
    const Sketch::Leaf& l = now.leaves[i];
    if (l.donated == known.leaves[i].donated) continue;
    std::string name = cat(leaf_name(l), " ", leaf_type(l), in_brackets(l.where));
    out.add("donation",
            l.donated ? cat(name, " is overwritten in place: nothing else holds its old value now")
                      : cat(name, " is not overwritten in place: something holds its old value"),
            l.where);
  }
  if (out.empty()) out.add("donation", "other arguments are overwritten in place");
}

// Everything is equal and still the key differs.
void compare_rest(const Sketch& known, const Sketch& now, List& out) {
  auto differs = [&](Ingredient i) {
    return known.key.digests[static_cast<size_t>(i)] != now.key.digests[static_cast<size_t>(i)];
  };
  if (known.key.total == now.key.total)
    out.add("evicted",
            "the program was there, but left the cache (XLA_COMPILATION_CACHE_SIZE, or cleared)");
  else if (differs(Ingredient::kParameterSequence) || differs(Ingredient::kRoots))
    out.add("wiring",
            "the same ops and arguments, wired otherwise (which argument feeds which op)");
  else if (differs(Ingredient::kDonated))
    compare_donors(known, now, out);
  else if (differs(Ingredient::kForceData))
    out.add("read", "compiled for a read where before it was for a sync, or the other way round");
}

}  // namespace

std::vector<Reason> differences(const Sketch& known, const Sketch& now) {
  Reasons out;
  List list, sizes;
  compare_ingredients(known, now, list);
  list.move_into(out);
  compare_leaves(known, now, list);
  bool shapes = !list.empty();
  list.move_into(out);
  compare_roots(known, now, list);
  list.move_into(out);
  compare_ops(known, now, list, sizes);
  list.move_into(out);
  // Sizes follow from the arguments' shapes; alone they are the reason.
  if (!shapes || out.empty()) sizes.move_into(out);
  if (out.empty()) {
    compare_rest(known, now, list);
    list.move_into(out);
  }
  return out;
}

}  // namespace tp::exec
