#include "torch/frames.h"

#include <ATen/SequenceNumber.h>
#include <Python.h>
#include <torch/csrc/autograd/node.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "base/flags.h"

namespace tp::torch_room {
namespace {

using ir::LocationId;

// CPython 3.11's _PyInterpreterFrame, which its public headers leave opaque. check_layout()
// compares it with the public API once; where they disagree (another Python), frames are read the
// public way.
struct Frame {
  PyObject *func, *globals, *builtins, *locals;
  PyCodeObject* code;
  PyObject* object;
  Frame* previous;
  const char* instruction;
};
constexpr bool kKnownLayout = PY_VERSION_HEX >= 0x030B0000 && PY_VERSION_HEX < 0x030C0000;

enum class Kind : uint8_t { kOwn, kOthers, kTorch };

// What the process knows of code objects and lines. It owns a reference to every code object in it,
// so that no address means two things.
struct Known {
  std::mutex mu;
  std::vector<std::string> torch, others;  // folders
  std::unordered_map<PyCodeObject*, Kind> kinds;
};
Known& known() {
  static auto* k = new Known;
  return *k;
}

// The forward lines of the last autograd nodes, by sequence number.
struct Forward {
  std::atomic<uint64_t> sequence{0};
  std::atomic<LocationId> at{0};
};
std::array<Forward, 1u << 14> g_forward;

struct CodeSlot {
  PyCodeObject* code = nullptr;
  Kind kind = Kind::kOwn;
};
struct LineSlot {
  const char* instruction = nullptr;
  uint32_t scope = 0;
  LocationId id = 0;
};
struct Thread {
  std::array<CodeSlot, 512> codes;
  std::array<LineSlot, 1024> lines;
  std::string scope;
  uint32_t scope_id = 0;  // counts changes of `scope` to a new text
  uint64_t sequence = 0;
  LocationId last = 0;
};
thread_local Thread t_thread;

std::atomic<bool> g_on{true};
std::atomic<bool> g_layout{false};

size_t slot_of(const void* p, size_t size) {
  auto x = reinterpret_cast<uintptr_t>(p);
  return (x >> 4 ^ x >> 13) & (size - 1);
}

class Gil {
 public:
  Gil() : state_(PyGILState_Ensure()) {}
  ~Gil() { PyGILState_Release(state_); }
  Gil(const Gil&) = delete;

 private:
  PyGILState_STATE state_;
};

std::string utf8(PyObject* text) {
  const char* s = text ? PyUnicode_AsUTF8(text) : nullptr;
  if (!s) PyErr_Clear();
  return s ? s : "";
}

bool below(const std::string& file, const std::vector<std::string>& folders) {
  return std::any_of(folders.begin(), folders.end(),
                     [&](const std::string& folder) { return file.starts_with(folder); });
}

Kind kind_of_file(const std::string& file) {
  if (below(file, known().torch) || file.starts_with("<frozen")) return Kind::kTorch;
  bool package =
      file.find("/site-packages/") != file.npos || file.find("/dist-packages/") != file.npos;
  return package || below(file, known().others) ? Kind::kOthers : Kind::kOwn;
}

[[gnu::noinline]] Kind classify(PyCodeObject* code) {
  Gil gil;  // before the lock: nobody who has it waits for the GIL
  std::lock_guard lock(known().mu);
  auto [it, fresh] = known().kinds.emplace(code, Kind::kOwn);
  if (fresh) {
    Py_INCREF(code);
    it->second = kind_of_file(utf8(code->co_filename));
  }
  return it->second;
}

Kind kind_of(Thread& t, PyCodeObject* code) {
  CodeSlot& slot = t.codes[slot_of(code, t.codes.size())];
  if (slot.code != code) [[unlikely]]
    slot = {code, classify(code)};
  return slot.kind;
}

ir::Location name(PyCodeObject* code, int byte_offset, const std::string& scope) {
  ir::Location l{utf8(code->co_filename), PyCode_Addr2Line(code, byte_offset), utf8(code->co_name),
                 scope};
  if (l.function == "<module>") l.function.clear();
  return l;
}

LocationId own_line(Thread& t, const Frame* f);

[[gnu::noinline]] LocationId name_line(Thread& t, const Frame& f) {
  Gil gil;
  const char* begin = f.code->co_code_adaptive;
  LocationId id = ir::intern(name(f.code, static_cast<int>(f.instruction - begin), t.scope));
  if (kind_of(t, f.code) == Kind::kOthers)
    if (LocationId own = own_line(t, f.previous)) ir::set_caller(id, own);
  return id;
}

LocationId line_of(Thread& t, const Frame& f) {
  LineSlot& slot = t.lines[slot_of(f.instruction, t.lines.size())];
  if (slot.instruction != f.instruction || slot.scope != t.scope_id) [[unlikely]] {
    LocationId id = name_line(t, f);  // may use the slot for another line
    slot = {f.instruction, t.scope_id, id};
  }
  return slot.id;
}

// The innermost of the user's own lines from `f` outwards.
LocationId own_line(Thread& t, const Frame* f) {
  for (; f; f = f->previous)
    if (kind_of(t, f->code) == Kind::kOwn) return line_of(t, *f);
  return 0;
}

// Calls f(code, byte offset) for the calling thread's frames, innermost first, while it gives true.
// The public way: slower, and it takes the GIL.
template <class F>
void each_object(const F& look_at) {
  Gil gil;
  PyFrameObject* f = PyThreadState_GetFrame(PyThreadState_Get());
  while (f) {
    PyCodeObject* code = PyFrame_GetCode(f);
    bool more = look_at(code, PyFrame_GetLasti(f));
    Py_DECREF(code);
    PyFrameObject* back = more ? PyFrame_GetBack(f) : nullptr;
    Py_DECREF(f);
    f = back;
  }
}

// For other Pythons: both lines always.
ir::Site walk_objects(Thread& t) {
  ir::Site found;
  each_object([&](PyCodeObject* code, int offset) {
    Kind kind = kind_of(t, code);
    if (kind == Kind::kTorch || (found.at && kind == Kind::kOthers)) return true;
    (found.at ? found.own : found.at) = ir::intern(name(code, offset, t.scope));
    return kind == Kind::kOthers;
  });
  if (found.own) ir::set_caller(found.at, found.own);
  return found;
}

// `both`: the user's own line too.
ir::Site walk(Thread& t, bool both) {
  PyThreadState* state = PyGILState_GetThisThreadState();
  if (!state) return {};
  if (!g_layout.load(std::memory_order_relaxed)) return walk_objects(t);
#if PY_VERSION_HEX >= 0x030B0000 && PY_VERSION_HEX < 0x030C0000
  auto* f = reinterpret_cast<const Frame*>(state->cframe->current_frame);
  for (; f; f = f->previous) {
    Kind kind = kind_of(t, f->code);
    if (kind == Kind::kTorch) continue;
    ir::Site found{line_of(t, *f), 0};
    if (both && kind == Kind::kOthers) found.own = own_line(t, f->previous);
    return found;
  }
#endif
  return {};
}

LocationId from_autograd(Thread& t) {
  if (auto node = torch::autograd::get_current_node()) {
    uint64_t sequence = node->sequence_nr();
    Forward& f = g_forward[sequence % g_forward.size()];
    LocationId at = f.at.load(std::memory_order_relaxed);
    if (at && f.sequence.load(std::memory_order_relaxed) == sequence) t.last = at | ir::kBackward;
  }
  return t.last;  // a gradient's accumulation has no number: the line before it
}

// Called with each forward op, so that its backward can be asked for it.
void remember(Thread& t, LocationId id) {
  uint64_t next = at::sequence_number::peek();
  if (next == t.sequence) return;
  t.sequence = next;
  Forward& f = g_forward[(next - 1) % g_forward.size()];
  f.sequence.store(next - 1, std::memory_order_relaxed);
  f.at.store(id, std::memory_order_relaxed);
}

LocationId look() {
  if (!Py_IsInitialized()) return 0;
  Thread& t = t_thread;
  LocationId id = walk(t, false).at;
  if (!id) return from_autograd(t);
  remember(t, id);
  return id;
}

// Whether Frame is how this interpreter lays its frames out: compared with what the public API says
// of the calling thread, which has a frame.
bool check_layout() {
  if constexpr (!kKnownLayout) return false;
#if PY_VERSION_HEX >= 0x030B0000 && PY_VERSION_HEX < 0x030C0000
  PyThreadState* state = PyThreadState_Get();
  PyFrameObject* object = PyThreadState_GetFrame(state);
  if (!object) return false;
  PyCodeObject* code = PyFrame_GetCode(object);
  auto* f = reinterpret_cast<const Frame*>(state->cframe->current_frame);
  bool same = f && f->code == code &&
              f->instruction - code->co_code_adaptive == PyFrame_GetLasti(object) &&
              f->object == reinterpret_cast<PyObject*>(object);
  Py_DECREF(code);
  Py_DECREF(object);
  return same;
#endif
}

}  // namespace

LocationId here() { return g_on.load(std::memory_order_relaxed) ? look() : 0; }
LocationId user_line() { return look(); }

ir::Site user_site() {
  if (!Py_IsInitialized()) return {};
  ir::Site found = walk(t_thread, true);
  if (found.at) return found;
  LocationId at = from_autograd(t_thread);
  return {at, ir::caller_of(at)};
}

std::vector<std::string> torch_files() {
  std::vector<std::string> files;
  if (!Py_IsInitialized() || !PyGILState_GetThisThreadState()) return files;
  each_object([&](PyCodeObject* code, int) {
    if (kind_of(t_thread, code) != Kind::kTorch) return false;
    files.push_back(utf8(code->co_filename));
    return true;
  });
  return files;
}

bool frames_on() { return g_on; }
void set_frames_on(bool on) { g_on = on; }

void add_library_directory(std::string directory) {
  static bool once =
      (g_on = flag_bool(Flag::kFrames) || flag_bool(Flag::kIrDebug) || flag_bool(Flag::kHloDebug),
       g_layout = check_layout(), true);
  (void)once;
  std::lock_guard lock(known().mu);
  known().torch.push_back(std::move(directory));
}

void add_others_directory(std::string directory) {
  std::lock_guard lock(known().mu);
  known().others.push_back(std::move(directory));
}

std::string exchange_scope(std::string scope) {
  static std::mutex mu;
  static auto* ids = new std::unordered_map<std::string, uint32_t>{{"", 0}};
  Thread& t = t_thread;
  std::string before = std::exchange(t.scope, std::move(scope));
  std::lock_guard lock(mu);
  t.scope_id = ids->emplace(t.scope, static_cast<uint32_t>(ids->size())).first->second;
  return before;
}

}  // namespace tp::torch_room
