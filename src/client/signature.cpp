#include "client/signature.h"

#include <charconv>

#include "base/error.h"
#include "base/text.h"

namespace tp::client {
namespace {

// A cursor over MLIR text; knows just enough of it to walk one function's signature.
class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}

  bool take(std::string_view word) {
    skip_space();
    if (!text_.substr(at_).starts_with(word)) return false;
    at_ += word.size();
    return true;
  }
  void expect(std::string_view word) {
    if (!take(word)) complain(cat("expected '", word, "'"));
  }
  std::string_view until(std::string_view stops) {
    skip_space();
    size_t end = text_.find_first_of(stops, at_);
    if (end == std::string_view::npos) complain("unexpected end");
    std::string_view s = text_.substr(at_, end - at_);
    at_ = end;
    return s;
  }
  // `(..)` or `{..}` with everything inside, nested brackets and quoted text included; empty where
  // the next character is not `open`.
  std::string_view bracketed(char open) {
    skip_space();
    if (at_ >= text_.size() || text_[at_] != open) return {};
    size_t start = at_;
    int depth = 0;
    bool quoted = false;
    for (; at_ < text_.size(); ++at_) {
      char c = text_[at_];
      if (quoted) {
        if (c == '\\') ++at_;
        if (c == '"') quoted = false;
      } else if (c == '"') {
        quoted = true;
      } else if (c == '(' || c == '{' || c == '[') {
        ++depth;
      } else if ((c == ')' || c == '}' || c == ']') && --depth == 0) {
        ++at_;
        return text_.substr(start, at_ - start);
      }
    }
    complain("a bracket is not closed");
  }
  [[noreturn]] void complain(std::string_view why) const {
    fail(Code::kInternal, cat("module signature: ", why, " at '", text_.substr(at_, 40), "'"));
  }

 private:
  void skip_space() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t'))
      ++at_;
  }
  std::string_view text_;
  size_t at_ = 0;
};

bool parse_dtype(std::string_view name, ir::DType& out) {
  for (int i = 0; i < static_cast<int>(ir::DType::kCount); ++i)
    if (dtype_mlir(static_cast<ir::DType>(i)) == name) {
      out = static_cast<ir::DType>(i);
      return true;
    }
  return false;
}

// tensor<4x8xf32>, tensor<f32>, tensor<2xcomplex<f32>>
ir::Type read_type(Reader& r) {
  r.expect("tensor<");
  std::string_view body = r.until(">");
  r.expect(">");
  bool complex = body.find("complex<") != std::string_view::npos;
  if (complex) r.expect(">");
  Dims dims;
  while (!body.empty() && body[0] >= '0' && body[0] <= '9') {
    int64_t d = 0;
    auto end = std::from_chars(body.data(), body.data() + body.size(), d).ptr;
    if (end == body.data() + body.size() || *end != 'x')
      r.complain(cat("bad dimensions '", body, "' before"));
    dims.push_back(d);
    body.remove_prefix(static_cast<size_t>(end - body.data()) + 1);
  }
  ir::DType dtype;
  if (!parse_dtype(complex ? cat(body, ">") : std::string(body), dtype))
    r.complain(
        cat("element type '", body, "' is not a known one, or a dimension is not fixed, before"));
  return ir::make_type(dtype, dims);
}

void read_parameters(Reader& r, Signature& s) {
  r.expect("(");
  while (!r.take(")")) {
    r.expect("%");
    r.until(":");
    r.expect(":");
    s.parameters.push_back(read_type(r));
    std::string_view attrs = r.bracketed('{');
    if (attrs.find("tf.aliasing_output") != attrs.npos ||
        attrs.find("jax.buffer_donor") != attrs.npos)
      s.donatable.push_back(static_cast<int64_t>(s.parameters.size()) - 1);
    if (r.take("loc")) r.bracketed('(');
    r.take(",");
  }
}

void read_results(Reader& r, Signature& s) {
  if (!r.take("->")) return;
  if (!r.take("(")) {
    s.results.push_back(read_type(r));
    return;
  }
  while (!r.take(")")) {
    s.results.push_back(read_type(r));
    r.bracketed('{');
    r.take(",");
  }
}

}  // namespace

Signature parse_signature(std::string_view module) {
  constexpr std::string_view kFunction = "func.func";
  for (size_t at = module.find(kFunction); at != module.npos; at = module.find(kFunction, at + 1)) {
    Reader r(module.substr(at + kFunction.size()));
    r.take("public");
    if (!r.take("@main")) continue;
    Signature s;
    read_parameters(r, s);
    read_results(r, s);
    return s;
  }
  fail(Code::kInternal, "module signature: no `func.func public @main(...)` in the module");
}

std::string to_text(const Signature& s) {
  std::string text = "func.func public @main(";
  size_t next = 0;
  for (size_t i = 0; i < s.parameters.size(); ++i) {
    bool donor = next < s.donatable.size() && s.donatable[next] == static_cast<int64_t>(i);
    next += donor;
    append(text, cat(i ? ", " : "", "%", i, ": ", s.parameters[i].mlir(),
                     donor ? " {jax.buffer_donor = true}" : ""));
  }
  append(text, ") -> (");
  for (size_t i = 0; i < s.results.size(); ++i)
    append(text, cat(i ? ", " : "", s.results[i].mlir()));
  return text + ")";
}

}  // namespace tp::client
