#include "program.h"

#include <cstdlib>

namespace fake {
namespace {

struct Named {
  const char* name;
  PJRT_Buffer_Type type;
  size_t size;
};
constexpr Named kTypes[] = {{"i1", PJRT_Buffer_Type_PRED, 1},
                            {"ui8", PJRT_Buffer_Type_U8, 1},
                            {"i8", PJRT_Buffer_Type_S8, 1},
                            {"i16", PJRT_Buffer_Type_S16, 2},
                            {"i32", PJRT_Buffer_Type_S32, 4},
                            {"i64", PJRT_Buffer_Type_S64, 8},
                            {"ui16", PJRT_Buffer_Type_U16, 2},
                            {"ui32", PJRT_Buffer_Type_U32, 4},
                            {"ui64", PJRT_Buffer_Type_U64, 8},
                            {"f16", PJRT_Buffer_Type_F16, 2},
                            {"bf16", PJRT_Buffer_Type_BF16, 2},
                            {"f32", PJRT_Buffer_Type_F32, 4},
                            {"f64", PJRT_Buffer_Type_F64, 8},
                            {"complex<f32>", PJRT_Buffer_Type_C64, 8},
                            {"complex<f64>", PJRT_Buffer_Type_C128, 16},
                            {"f8E4M3FN", PJRT_Buffer_Type_F8E4M3FN, 1},
                            {"f8E5M2", PJRT_Buffer_Type_F8E5M2, 1}};

// `tensor<4x8xf32>` at the start of `text`.
bool parse_tensor(std::string_view text, TensorType& out) {
  constexpr std::string_view kOpen = "tensor<";
  size_t at = text.find(kOpen);
  if (at == text.npos) return false;
  text.remove_prefix(at + kOpen.size());
  while (!text.empty() && text[0] >= '0' && text[0] <= '9') {
    char* end = nullptr;
    out.dims.push_back(std::strtoll(text.data(), &end, 10));
    text.remove_prefix(static_cast<size_t>(end - text.data()) + 1);  // and the x
  }
  for (const Named& t : kTypes)
    if (text.starts_with(t.name) && text.substr(std::string_view(t.name).size()).starts_with(">")) {
      out.type = t.type;
      return true;
    }
  return false;
}

// The pieces between commas that stand outside of brackets and quotes; stops at the bracket that
// closes `text`'s own list. `end` gets its position.
std::vector<std::string_view> split(std::string_view text, size_t& end) {
  std::vector<std::string_view> out;
  int depth = 0;
  bool quoted = false;
  size_t start = 0, i = 0;
  for (; i < text.size(); ++i) {
    char c = text[i];
    if (c == '"') quoted = !quoted;
    if (quoted) continue;
    bool arrow = c == '>' && i > 0 && text[i - 1] == '-';
    if (c == '(' || c == '{' || c == '[' || c == '<') ++depth;
    if (c == ')' && depth == 0) break;
    if (c == ')' || c == '}' || c == ']' || (c == '>' && !arrow)) --depth;
    if (c == ',' && depth == 0) {
      out.push_back(text.substr(start, i - start));
      start = i + 1;
    }
  }
  end = i;
  auto last = text.substr(start, i - start);
  if (last.find_first_not_of(" \n\t") != last.npos) out.push_back(last);
  return out;
}

// The words between quotes: the axes of `{"x", "y"}`.
std::vector<std::string> quoted_words(std::string_view s) {
  std::vector<std::string> out;
  for (size_t at = s.find('"'); at != s.npos; at = s.find('"', at)) {
    size_t end = std::min(s.find('"', at + 1), s.size());
    out.emplace_back(s.substr(at + 1, end - at - 1));
    at = std::min(end + 1, s.size());
  }
  return out;
}

// Cuts `t` as the Shardy attribute behind it says: `sdy.sharding = #sdy.sharding<@mesh, [{"x"}]>`,
// where the module has `sdy.mesh @mesh = <["x"=2]>`.
void cut(std::string_view module, std::string_view piece, TensorType& t) {
  size_t at = piece.find("#sdy.sharding<@");
  if (at == piece.npos) return;
  piece.remove_prefix(at + 15);
  std::string mesh = "sdy.mesh @" + std::string(piece.substr(0, piece.find(','))) + " = <[";
  std::string_view axes = module.substr(module.find(mesh) + mesh.size());
  axes = axes.substr(0, axes.find(']'));
  piece.remove_prefix(piece.find('['));
  for (int64_t& d : t.dims) {
    size_t open = piece.find('{'), close = piece.find('}');
    if (open == piece.npos || close == piece.npos) return;
    for (const std::string& name : quoted_words(piece.substr(open, close - open)))
      d /= std::strtoll(axes.data() + axes.find('"' + name + '"') + name.size() + 3, nullptr, 10);
    piece.remove_prefix(close + 1);
  }
}

// The protobuf wire: gives the value of the first field `number`: its bytes, or its varint as text
// position.
struct Wire {
  std::string_view bytes;
  bool next(unsigned& field, uint64_t& number, std::string_view& content) {
    uint64_t tag;
    if (!varint(tag)) return false;
    field = static_cast<unsigned>(tag >> 3);
    switch (tag & 7) {
      case 0:
        return varint(number);
      case 1:
        content = bytes.substr(0, 8);
        bytes.remove_prefix(std::min<size_t>(8, bytes.size()));
        return true;
      case 2:
        if (!varint(number) || number > bytes.size()) return false;
        content = bytes.substr(0, number);
        bytes.remove_prefix(number);
        return true;
      default:
        return false;
    }
  }
  bool varint(uint64_t& v) {
    v = 0;
    for (int shift = 0; !bytes.empty() && shift < 64; shift += 7) {
      auto b = static_cast<unsigned char>(bytes[0]);
      bytes.remove_prefix(1);
      v |= static_cast<uint64_t>(b & 0x7f) << shift;
      if (b < 0x80) return true;
    }
    return false;
  }
};

std::vector<std::string_view> fields(std::string_view message, unsigned wanted) {
  std::vector<std::string_view> out;
  Wire wire{message};
  unsigned field;
  uint64_t number;
  std::string_view content;
  while (wire.next(field, number, content))
    if (field == wanted) out.push_back(content);
  return out;
}

}  // namespace

size_t element_size(PJRT_Buffer_Type type) {
  for (const Named& t : kTypes)
    if (t.type == type) return t.size;
  return 0;
}

size_t TensorType::bytes() const {
  size_t n = element_size(type);
  for (int64_t d : dims) n *= static_cast<size_t>(d);
  return n;
}

std::string parse_module(std::string_view text, Program& out) {
  constexpr std::string_view kMain = "@main(";
  size_t at = text.find(kMain);
  if (at == text.npos) return "conversion requires module with main function";
  out.text = text;
  std::string_view rest = text.substr(at + kMain.size());
  size_t end = 0;
  for (std::string_view piece : split(rest, end)) {
    if (!parse_tensor(piece, out.parameters.emplace_back())) return "unreadable parameter";
    cut(text, piece, out.parameters.back());
    out.donatable.push_back(piece.find("tf.aliasing_output") != piece.npos ||
                            piece.find("jax.buffer_donor") != piece.npos);
  }
  rest.remove_prefix(std::min(end + 1, rest.size()));
  size_t first = rest.find_first_not_of(" \n\t");
  if (first == rest.npos || !rest.substr(first).starts_with("->")) return {};  // no results
  rest.remove_prefix(rest.find("->") + 2);
  rest.remove_prefix(std::min(rest.find_first_not_of(' '), rest.size()));
  if (!rest.starts_with("("))
    return parse_tensor(rest, out.results.emplace_back()) ? "" : "unreadable result";
  rest.remove_prefix(1);
  for (std::string_view piece : split(rest, end)) {
    if (!parse_tensor(piece, out.results.emplace_back())) return "unreadable result";
    cut(text, piece, out.results.back());
  }
  return {};
}

std::vector<int64_t> parse_device_ids(std::string_view options) {
  std::vector<std::vector<int64_t>> by_partition;
  for (auto build : fields(options, 3))
    for (auto assignment : fields(build, 9))
      for (auto partition : fields(assignment, 3)) {
        auto& ids = by_partition.emplace_back();
        for (auto packed : fields(partition, 1))
          for (Wire wire{packed}; !wire.bytes.empty();) {
            uint64_t id = 0;
            if (!wire.varint(id)) break;
            ids.push_back(static_cast<int64_t>(id));
          }
      }
  std::vector<int64_t> out;
  for (size_t r = 0; !by_partition.empty() && r < by_partition[0].size(); ++r)
    for (const auto& ids : by_partition) out.push_back(ids.at(r));
  return out.empty() ? std::vector<int64_t>{0} : out;
}

}  // namespace fake
