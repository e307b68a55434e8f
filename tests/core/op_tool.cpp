// op_tool: one-op graphs over a pipe, for opcheck.py and for people. Requests are lines on stdin:
//   row NAME                          -> what the row declares (or "missing")
//   op NAME                           starts a call; then its arguments:
//   tensor NAME TYPE NBYTES           followed by the bytes;  tensors NAME COUNT, then COUNT times
//   TYPE NBYTES number NAME bool|int|float|complex VALUE [VALUE] wrapped|plain none NAME | int NAME
//   V | float NAME V | bool NAME V | ints NAME V.. | bools.. | floats.. | dtype NAME f32 text NAME
//   TEXT types TYPE..                      the recorded result types infer | lower | run ends the
//   call
//   plugin                            the plugin of TORCH_PJRT_TEST_PLUGIN, started anew
//   option NAME bool|int|text VALUE   before its first program: a compile option of it
//   mistake NAME                      likewise: what its compiler does wrong (`none`: nothing)
//   module NBYTES                     followed by StableHLO; then tensors, types, run
// Replies: "ok N" or "error N" and N bytes (run: N outputs, each "TYPE NBYTES" and its bytes).
#include <cstdio>
#include <iostream>
#include <optional>
#include <sstream>

#include "base/error.h"
#include "base/text.h"
#include "harness.h"

namespace tp::test {
namespace {

void reply(std::string_view word, std::string_view payload) {
  std::cout << word << ' ' << payload.size() << '\n' << payload << std::flush;
}

std::string read_bytes(size_t n) {
  std::string s(n, '\0');
  std::cin.read(s.data(), static_cast<std::streamsize>(n));
  return s;
}

Tensor read_tensor(std::istream& in) {
  std::string type;
  size_t n = 0;
  in >> type >> n;
  Tensor t{parse_type(type), {}};
  t.bytes = read_bytes(n);
  return t;
}

template <class T>
std::vector<T> rest(std::istream& in) {
  std::vector<T> v;
  for (std::string s; in >> s;)
    v.push_back(static_cast<T>(std::is_integral_v<T> ? std::stoll(s) : std::stod(s)));
  return v;
}

double real(std::istream& in) {
  std::string s;
  in >> s;
  return std::stod(s);  // reads inf and nan, which >> does not
}

void number(OpCall& call, const std::string& name, std::istream& in) {
  std::string kind, mark;
  in >> kind;
  ir::Scalar s;
  if (kind == "bool" || kind == "int") {
    in >> s.integer;
    s.kind = kind == "bool" ? ir::Scalar::Kind::kBool : ir::Scalar::Kind::kInt;
  } else {
    s.re = real(in);
    s.kind = ir::Scalar::Kind::kFloat;
    if (kind == "complex") s.im = real(in), s.kind = ir::Scalar::Kind::kComplex;
  }
  in >> mark;
  call.number(name, s, mark == "wrapped");
}

void argument(OpCall& call, const std::string& word, std::istream& in) {
  std::string name;
  in >> name;
  if (word == "tensor") call.tensor(name, read_tensor(in));
  if (word == "number") number(call, name, in);
  if (word == "none") call.none(name);
  if (word == "int") call.integer(name, rest<int64_t>(in).at(0));
  if (word == "float") call.real(name, real(in));
  if (word == "bool") call.boolean(name, rest<int64_t>(in).at(0) != 0);
  if (word == "ints") call.ints(name, rest<int64_t>(in));
  if (word == "bools") call.bools(name, rest<int64_t>(in));
  if (word == "floats") call.floats(name, rest<double>(in));
  if (word == "dtype") {
    std::string t;
    in >> t;
    call.dtype(name, parse_type(t + "[]").dtype());
  }
  if (word == "text") {
    std::string t;
    in >> t;
    call.text(name, t);
  }
  if (word == "tensors") {
    size_t n = 0;
    in >> n;
    std::vector<Tensor> list;
    for (std::string line; list.size() < n && std::getline(std::cin, line);) {
      std::istringstream one(line);
      list.push_back(line == "-" ? Tensor{} : read_tensor(one));
    }
    call.tensors(name, std::move(list));
  }
}

void describe(const std::string& name) {
  const ops::Row* r = ops::find_row(name);
  if (!r) return reply("error", "missing");
  reply("ok",
        cat(r->type ? "rule" : "meta", "\nbaked ", r->baked, "\nnumbers ", r->numbers, "\nwrites ",
            r->writes, "\nspecial ", r->special == ops::Special::kRandom ? "random" : "none"));
}

void give(const std::vector<Tensor>& out) {
  std::cout << "ok " << out.size() << '\n';
  for (const Tensor& t : out)
    std::cout << t.type.text() << ' ' << t.bytes.size() << '\n' << t.bytes;
  std::cout << std::flush;
}

void finish(OpCall& call, const std::string& word) {
  if (word == "lower") return reply("ok", call.lower().text);
  if (word == "infer") {
    std::string s;
    for (ir::Type t : call.inferred()) s += cat(s.empty() ? "" : " ", t ? t.text() : "-");
    return reply("ok", s);
  }
  give(call.run());
}

// What the next program's plugin is started with.
struct Plugin {
  client::PluginSpec spec = tried_plugin();
  std::vector<std::string> mistakes;
  bool tried = false;

  void set(const std::string& word, std::istream& in) {
    std::string name, kind, value;
    in >> std::ws;
    if (word == "mistake") {
      std::getline(in, name);
      if (name != "none") mistakes.push_back(name);
      tried = true;
      return;
    }
    in >> name >> kind >> std::ws;
    std::getline(in, value);
    client::OptionValue v = value;
    if (kind == "bool") v = value == "1";
    if (kind == "int") v = int64_t{std::stoll(value)};
    spec.compile_options.emplace_back(name, v);
  }
  void start() {
    if (tried) spec.mistakes = mistakes;
    use_plugin(spec);
  }
};

// A program in StableHLO with its arguments.
struct Program {
  std::string text;
  std::vector<Tensor> in;
  std::vector<ir::Type> out;

  // True where the line was for it.
  bool take(const std::string& word, std::istream& line) {
    if (word == "tensor") {
      std::string name;
      line >> name;
      in.push_back(read_tensor(line));
    } else if (word == "types") {
      for (std::string t; line >> t;) out.push_back(parse_type(t));
    } else {
      return false;
    }
    return true;
  }
};

void serve() {
  std::unique_ptr<OpCall> call;
  std::optional<Program> program;
  std::optional<Plugin> plugin;
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream in(line);
    std::string word, name;
    in >> word;
    try {
      if (word == "plugin") {
        plugin.emplace(), plugin->spec.compile_options.clear();
      } else if (word == "option" || word == "mistake") {
        plugin->set(word, in);
      } else if (word == "module") {
        size_t n = 0;
        in >> n;
        program = Program{read_bytes(n), {}, {}};
      } else if (program && program->take(word, in)) {
        continue;
      } else if (word == "row" || word == "op") {
        in >> name;
        if (word == "op") program.reset();
        if (word == "row") describe(name);
        if (word == "op") call = std::make_unique<OpCall>(name);
      } else if (word == "types") {
        std::vector<std::string> t;
        for (std::string s; in >> s;) t.push_back(s);
        call->types(t);
      } else if (word == "lower" || word == "infer" || word == "run") {
        if (plugin && word == "run") plugin->start(), plugin.reset();
        if (program)
          give(run_module(program->text, program->in, program->out));
        else
          finish(*call, word);
      } else if (!word.empty()) {
        argument(*call, word, in);
      }
    } catch (const Error& e) {
      reply("error", cat(static_cast<int>(e.code()), " ", e.what()));
    }
  }
}

}  // namespace
}  // namespace tp::test

int main() {
  std::ios::sync_with_stdio(false);
  tp::test::serve();
}
