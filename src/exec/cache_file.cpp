#include "exec/cache_file.h"

#include <charconv>

#include "base/error.h"
#include "base/text.h"

namespace tp::exec {
namespace {

constexpr std::string_view kMagic = "torch_pjrt stored program 1\n";

[[noreturn]] void broken(std::string what) { fail(Code::kRuntime, cat("stored program: ", what)); }

std::string_view take_line(std::string_view& text) {
  size_t end = text.find('\n');
  if (end == text.npos) broken("the file is cut off");
  std::string_view line = text.substr(0, end);
  text.remove_prefix(end + 1);
  return line;
}

int64_t to_number(std::string_view text) {
  int64_t v = 0;
  auto r = std::from_chars(text.data(), text.data() + text.size(), v);
  if (r.ec != std::errc{} || r.ptr != text.data() + text.size() || v < 0)
    broken(cat("'", text, "' is not a number"));
  return v;
}

// A digest over head and body that needs no copy of either.
Hash128 digest(std::string_view head, std::string_view body) {
  return mix(hash_text(head), hash_text(body));
}

std::string one_line(std::string_view text) { return std::string(text.substr(0, text.find('\n'))); }

std::string header(const CacheFile& f, size_t size) {
  std::string s =
      cat("key ", f.key.hex(), "\nstructure ", f.structure.hex(), "\noutputs ", f.outputs,
          "\nnodes ", f.nodes, "\ncompile_ms ", f.compile_ms, "\nwhere ", one_line(f.where), "\n");
  for (const auto& [name, value] : f.ingredients)
    s += cat("ingredient ", value.hex(), " ", name, "\n");
  for (const auto& [name, text] : f.words) s += cat("words ", name, "=", one_line(text), "\n");
  return s + cat("program ", size, "\n");
}

void read_line(CacheFile& f, std::string_view name, std::string_view value) {
  if (name == "key") f.key = parse_hash(value);
  if (name == "structure") f.structure = parse_hash(value);
  if (name == "outputs") f.outputs = value;
  if (name == "nodes") f.nodes = to_number(value);
  if (name == "compile_ms") f.compile_ms = to_number(value);
  if (name == "where") f.where = value;
  if (size_t equal = value.find('='); name == "words" && equal != value.npos)
    f.words.emplace_back(value.substr(0, equal), value.substr(equal + 1));
  if (name == "ingredient" && value.size() > 33)
    f.ingredients.emplace_back(value.substr(33), parse_hash(value.substr(0, 32)));
}

}  // namespace

std::vector<std::pair<std::string, Hash128>> ingredients_of(const Key& key) {
  std::vector<std::pair<std::string, Hash128>> out;
  for (size_t i = 0; i < key.digests.size(); ++i)
    out.emplace_back(ingredient_name(static_cast<Ingredient>(i)), key.digests[i]);
  return out;
}

std::string encode_head(const CacheFile& f, std::string_view program) {
  std::string head = header(f, program.size());
  return cat(kMagic, "checksum ", digest(head, program).hex(), "\n", head);
}

namespace {

std::string_view without_magic(std::string_view bytes) {
  if (!bytes.starts_with(kMagic)) broken("this is no such file, or another version's");
  return bytes.substr(kMagic.size());
}

// Reads lines up to "program"; `bytes` moves on to what follows it. Gives the body's size.
size_t read_lines(CacheFile& f, std::string_view& bytes) {
  for (;;) {
    std::string_view line = take_line(bytes);
    size_t space = std::min(line.find(' '), line.size());
    std::string_view name = line.substr(0, space);
    std::string_view value = line.substr(std::min(space + 1, line.size()));
    if (name == "program") return static_cast<size_t>(to_number(value));
    read_line(f, name, value);
  }
}

}  // namespace

CacheFile decode_head(std::string_view bytes) {
  bytes = without_magic(bytes);
  take_line(bytes);
  CacheFile f;
  read_lines(f, bytes);
  return f;
}

CacheFile decode(std::string_view bytes) {
  bytes = without_magic(bytes);
  std::string_view checksum = take_line(bytes), all = bytes;
  CacheFile f;
  if (read_lines(f, bytes) != bytes.size()) broken("the file is cut off");
  std::string_view head = all.substr(0, all.size() - bytes.size());
  if (checksum != cat("checksum ", digest(head, bytes).hex()))
    broken("its checksum does not fit its bytes");
  f.program = bytes;
  return f;
}

std::string difference(const CacheFile& f, const Key& key, Hash128 structure,
                       std::string_view outputs) {
  auto wanted = ingredients_of(key);
  for (size_t i = 0; i < wanted.size(); ++i)
    if (i >= f.ingredients.size() || f.ingredients[i] != wanted[i]) return wanted[i].first;
  if (f.ingredients.size() != wanted.size()) return f.ingredients[wanted.size()].first;
  if (f.key != key.total) return "key";
  if (f.structure != structure) return "structure";
  return f.outputs == outputs ? "" : "outputs";
}

}  // namespace tp::exec
