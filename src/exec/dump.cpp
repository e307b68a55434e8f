#include "exec/dump.h"

#include <atomic>
#include <filesystem>
#include <fstream>
#include <mutex>

#include "base/flags.h"
#include "base/lock_order.h"
#include "base/text.h"
#include "probe/probe.h"

namespace tp::exec {
namespace {

RankedMutex<LockRank::kDumps> g_mu;

std::string& directory() {
  static auto* d = new std::string(flag_text(Flag::kDumpTo));
  return *d;
}

void trouble(std::string_view path) {
  static std::atomic<bool> reported{false};
  if (!reported.exchange(true))
    probe::say(0, cat("cannot write ", path, ": graphs are not dumped"));
}

void write(const std::filesystem::path& path, std::string_view bytes, bool append = false) {
  std::ofstream file(path, append ? std::ios::app : std::ios::trunc);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  if (!file) trouble(path.string());
}

// "train.py:41 in step" -> "train.py_41"
std::string file_part(std::string_view where) {
  std::string s;
  for (char c : where.substr(0, where.find(' ')))
    s += std::isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '-' ? c : '_';
  return s.empty() ? "nowhere" : s;
}

}  // namespace

bool saves_tensors() {
  static const bool on = !flag_text(Flag::kSaveTensorsFile).empty();
  return on;
}
bool saves_modules() {
  static const bool on = saves_tensors() && flag_text(Flag::kSaveTensorsFormat) == "hlo";
  return on;
}

void save_tensors(const ir::Graph& g, std::string_view module, std::string_view where) {
  static int number = 0;
  bool dot = flag_text(Flag::kSaveTensorsFormat) == "dot";
  std::string body = saves_modules() ? std::string(module)
                     : dot           ? ir::dump_dot(g)
                                     : ir::dump_text(g, ir::Lines::kYes);
  std::lock_guard lock(g_mu);
  write(flag_text(Flag::kSaveTensorsFile),
        cat(dot || saves_modules() ? "// " : "# ", "graph ", ++number, ", ", g.num_nodes(),
            " ops, synced at ", where, "\n", body, "\n"),
        true);
}

void set_dump_directory(std::string d) {
  std::lock_guard lock(g_mu);
  directory() = std::move(d);
}

void dump_compiled(const Dumped& d) {
  static int number = 0;
  std::lock_guard lock(g_mu);
  if (directory().empty()) return;
  std::error_code error;
  std::filesystem::create_directories(directory(), error);
  std::string n = cat(++number);
  n.insert(0, n.size() < 4 ? 4 - n.size() : 0, '0');
  std::string stem =
      cat(directory(), "/", n, "-", file_part(d.where), "-", d.nodes, "ops-", d.key.substr(0, 8));
  write(stem + ".txt", d.text);
  write(stem + ".dot", d.dot);
  write(stem + ".mlir", d.module);
}

}  // namespace tp::exec
