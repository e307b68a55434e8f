// The order in which a thread may take the core's locks, checked in debug builds and under the
// sanitizers (TP_CHECK_LOCKS): taking one that comes before, or equals, one that the thread holds
// throws, whether or not another thread is there to wait for it. docs/threads.md says what each
// guards. In other builds a RankedMutex is a std::mutex and no more.
//
// Locks without a rank are leaves: what is done under them takes none of these.
#pragma once
#include <cstdint>
#include <mutex>

namespace tp {

// Outermost first. Those of one rank are never held together.
enum class LockRank : uint8_t {
  kRegistry,   // client/registry: plugins, and the client while it starts
  kPlugins,    // pjrt/plugin: loaded libraries
  kVariables,  // client/pjrt_client: what a plugin found in the environment
  kReplay,     // exec/replay: numbers that a replay uploads once
  kOneOps,     // exec/one_ops: programs of one op
  kMakeRoom,   // exec/program_cache: one makes room at a time
  kGraph,      // ir/graph: slots of nodes
  kLaunches,   // exec/launches
  kFamilies,   // exec/numbers
  kPrograms,   // exec/program_cache
  kExecutor,   // exec/executor: records, the last program
  kExplainer,  // exec/explain
  kStored,     // exec/miss: headers of stored programs
  kDumps,      // exec/dump
  kDevices,    // client/pjrt_client: one replicated execute at a time
  kMessages,   // probe: what is said until the locks are free
  kTable,      // base/forks: tables that live as long as the process
  kCount
};
static_assert(static_cast<int>(LockRank::kCount) <= 32);

#ifdef TP_CHECK_LOCKS
inline constexpr bool kCheckLocks = true;
#else
inline constexpr bool kCheckLocks = false;
#endif

// The calling thread is about to take, or has given back, a lock of that rank. note_lock throws
// kInternal where the thread holds one of this rank or a later one.
void note_lock(LockRank rank);
void note_unlock(LockRank rank) noexcept;

template <LockRank rank, bool checked = kCheckLocks>
class RankedMutex : public std::mutex {
 public:
  void lock() {
    if constexpr (checked) note_lock(rank);
    std::mutex::lock();
  }
  void unlock() {
    std::mutex::unlock();
    if constexpr (checked) note_unlock(rank);
  }
  bool try_lock() = delete;  // nobody needs it
};

// What a std::condition_variable waits with: a std::unique_lock that keeps the note.
template <LockRank rank, bool checked = kCheckLocks>
class RankedLock : public std::unique_lock<std::mutex> {
  using Base = std::unique_lock<std::mutex>;

 public:
  explicit RankedLock(RankedMutex<rank, checked>& mu) : Base(mu, std::defer_lock) { lock(); }
  ~RankedLock() {
    if (owns_lock()) unlock();
  }
  RankedLock(const RankedLock&) = delete;
  void lock() {
    if constexpr (checked) note_lock(rank);
    Base::lock();
  }
  void unlock() {
    Base::unlock();
    if constexpr (checked) note_unlock(rank);
  }
};
template <LockRank rank, bool checked>
RankedLock(RankedMutex<rank, checked>&) -> RankedLock<rank, checked>;

}  // namespace tp
