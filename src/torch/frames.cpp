#include "torch/frames.h"

#include <Python.h>
#include <torch/csrc/autograd/node.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <mutex>
#include <utility>
#include <vector>

#include "base/flags.h"
#include "base/forks.h"
#include "base/hash.h"
#include "base/thread_local.h"
#include "torch/compat.h"

namespace tp::torch_room {
namespace {

using ir::LocationId;

// CPython's _PyInterpreterFrame, which its public headers leave opaque. check_layout() compares it
// with the public API at load; where they disagree (another Python), frames are read the public
// way.
#if PY_VERSION_HEX < 0x030C0000
struct Frame {
  PyObject *func, *globals, *builtins, *locals;
  PyCodeObject* code;
  PyObject* object;
  Frame* previous;
  const char* instruction;
  bool of_python() const { return true; }
};
#else
struct Frame {
  PyCodeObject* code;  // in frames of C: 3.12 a trampoline's, 3.13 None
  Frame* previous;
  PyObject *func, *globals, *builtins, *locals, *object;
  const char* instruction;  // 3.12: the code unit before the next instruction; 3.13: this one
  int stack_top;
  uint16_t return_offset;
  char owner;
  bool of_python() const { return owner != 3; }  // FRAME_OWNED_BY_CSTACK: C calls the interpreter
};
#endif
constexpr bool kKnownLayout = PY_VERSION_HEX >= 0x030B0000 && PY_VERSION_HEX < 0x030E0000;

const Frame* innermost(const PyThreadState* state) {
#if PY_VERSION_HEX < 0x030D0000
  return reinterpret_cast<const Frame*>(state->cframe->current_frame);
#else
  return reinterpret_cast<const Frame*>(state->current_frame);
#endif
}

// From 1 on: it stands on code objects, where 0 is none.
enum class Kind : uint8_t { kOwn = 1, kOthers, kTorch };

struct Known {
  TableMutex mu;
  std::vector<std::string> torch, others;  // folders
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
  uint64_t scope = 0;
  LocationId id = 0;
};
struct Thread {
  std::array<CodeSlot, 512> codes;
  std::array<LineSlot, 1024> lines;
  uint64_t deaths = 0;  // g_deaths when the two were last emptied
  std::string scope;
  uint64_t scope_id = 0;  // a hash of `scope`; 0 for none
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

// The kind of a code object stands on the object itself, so that nothing here keeps it alive. One
// that dies is counted: then its address may come to mean another one, and caches are emptied.
std::atomic<uint64_t> g_deaths{0};
void count_death(void*) { g_deaths.fetch_add(1, std::memory_order_relaxed); }

#if PY_VERSION_HEX >= 0x030C0000
Py_ssize_t extra_index() {
  static const Py_ssize_t index = PyUnstable_Eval_RequestCodeExtraIndex(&count_death);
  return index;
}
#define TP_GET_EXTRA PyUnstable_Code_GetExtra
#define TP_SET_EXTRA PyUnstable_Code_SetExtra
#else
Py_ssize_t extra_index() {
  static const Py_ssize_t index = _PyEval_RequestCodeExtraIndex(&count_death);
  return index;
}
#define TP_GET_EXTRA _PyCode_GetExtra
#define TP_SET_EXTRA _PyCode_SetExtra
#endif

// Under the GIL. Null where it was not set.
void* get_extra(PyCodeObject* code) {
  void* extra = nullptr;
  if (TP_GET_EXTRA(reinterpret_cast<PyObject*>(code), extra_index(), &extra) != 0) PyErr_Clear();
  return extra;
}
void set_extra(PyCodeObject* code, void* extra) {
  if (TP_SET_EXTRA(reinterpret_cast<PyObject*>(code), extra_index(), extra) == 0) return;
  PyErr_Clear();
  Py_INCREF(code);  // no room for it: then it may not die, since nobody would be told
}

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
  if (void* extra = get_extra(code)) return static_cast<Kind>(reinterpret_cast<uintptr_t>(extra));
  std::string file = utf8(code->co_filename);
  Kind kind = Kind::kOwn;
  {
    std::lock_guard lock(known().mu);
    kind = kind_of_file(file);
  }
  set_extra(code, reinterpret_cast<void*>(static_cast<uintptr_t>(kind)));
  return kind;
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
    if (f->of_python() && kind_of(t, f->code) == Kind::kOwn) return line_of(t, *f);
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

[[gnu::noinline]] void forget_dead(Thread& t, uint64_t deaths) {
  t.deaths = deaths;
  t.codes.fill({});
  t.lines.fill({});
}

// `both`: the user's own line too.
ir::Site walk(Thread& t, bool both) {
  uint64_t deaths = g_deaths.load(std::memory_order_relaxed);
  if (deaths != t.deaths) [[unlikely]]
    forget_dead(t, deaths);
  PyThreadState* state = PyGILState_GetThisThreadState();
  if (!state) return {};
  if (!g_layout.load(std::memory_order_relaxed)) return walk_objects(t);
  for (const Frame* f = innermost(state); f; f = f->previous) {
    if (!f->of_python()) continue;
    Kind kind = kind_of(t, f->code);
    if (kind == Kind::kTorch) continue;
    ir::Site found{line_of(t, *f), 0};
    if (both && kind == Kind::kOthers) found.own = own_line(t, f->previous);
    return found;
  }
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
  uint64_t next = compat::next_sequence();
  if (next == t.sequence) return;
  t.sequence = next;
  Forward& f = g_forward[(next - 1) % g_forward.size()];
  f.sequence.store(next - 1, std::memory_order_relaxed);
  f.at.store(id, std::memory_order_relaxed);
}

LocationId look() {
  if (!Py_IsInitialized()) return 0;
  Thread& t = address_once(t_thread);
  LocationId id = walk(t, false).at;
  if (!id) return from_autograd(t);
  remember(t, id);
  return id;
}

// Whether `f` is the frame that `object` stands for.
bool same_frame(const Frame* f, PyFrameObject* object) {
  PyCodeObject* code = PyFrame_GetCode(object);
  bool same = f && f->code == code &&
              f->instruction - code->co_code_adaptive == PyFrame_GetLasti(object) &&
              f->object == reinterpret_cast<PyObject*>(object);
  Py_DECREF(code);
  return same;
}

const Frame* of_python(const Frame* f) {
  while (f && !f->of_python()) f = f->previous;
  return f;
}

// Whether Frame is how this interpreter lays its frames out: each of the calling thread's, from the
// innermost to the last, is compared with what the public API says of it before it is followed.
bool check_layout() {
  if constexpr (!kKnownLayout) return false;
  PyThreadState* state = PyThreadState_Get();
  PyFrameObject* object = PyThreadState_GetFrame(state);
  if (!object) return false;
  const Frame* f = of_python(innermost(state));
  bool same = true;
  while (object && same) {
    same = same_frame(f, object);
    PyFrameObject* back = PyFrame_GetBack(object);
    Py_DECREF(object);
    object = back;
    if (same) f = of_python(f->previous);
  }
  Py_XDECREF(object);
  return same && !f;
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
    if (classify(code) != Kind::kTorch) return false;
    files.push_back(utf8(code->co_filename));
    return true;
  });
  return files;
}

bool frames_on() { return g_on; }
void set_frames_on(bool on) { g_on = on; }
bool frames_direct() { return g_layout; }
void set_frames_direct(bool on) { g_layout = on && check_layout(); }

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
  Thread& t = t_thread;
  std::string before = std::exchange(t.scope, std::move(scope));
  t.scope_id = t.scope.empty() ? 0 : hash_text(t.scope).lo;
  return before;
}

}  // namespace tp::torch_room
