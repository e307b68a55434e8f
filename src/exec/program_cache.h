// Programs by key: an LRU in memory with single flight: however many threads miss on one key, one
// compiles and the others wait for it, and get its error. Thread-safe.
//
// Programs unused for longest are also dropped while the process has more than half of the memory
// mappings that the system allows it (base/mappings.h).
//
// A thread that hears signals (base/interrupt.h) compiles in a thread of its own, so that Ctrl-C
// gets it back at once. The compile goes on: who asks for that key again waits for its end.
#pragma once
#include <condition_variable>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "base/lock_order.h"
#include "base/lru.h"
#include "base/mappings.h"
#include "client/computation_client.h"
#include "exec/key.h"
#include "exec/placement.h"

namespace tp::exec {

// A compiled program and what it was compiled from.
struct Program {
  Key key;
  client::ExecutablePtr executable;
  std::vector<uint64_t> signature;  // ir::Graph::signature: compared before a hit is believed
  size_t nodes = 0;
  double compile_seconds = 0;  // or what loading took
  bool from_disk = false;
  // A hit was compared, and no collision of its key was met. Written under the cache's lock.
  mutable bool believed = false, collides = false;
  Placement placement;  // of one that runs on a mesh
};
using ProgramPtr = std::shared_ptr<const Program>;

class ProgramCache {
 public:
  using CountMappings = Mappings (*)();
  // Runs f in a new thread; throws std::system_error where there is none to be had.
  using StartThread = void (*)(std::function<void()> f);
  explicit ProgramCache(size_t capacity, CountMappings count = &count_mappings,
                        StartThread start_thread = &detach)
      : programs_(capacity), count_mappings_(count), start_thread_(start_thread) {}
  ~ProgramCache();  // waits for the compiles that were left alone

  // The program under `key` whose signature is equal, or the one that `compile` makes. A program of
  // equal key and other structure (a hash collision) is never given: it is compiled under a key of
  // its own. `compile` may outlive the call: it owns what it uses, but for the cache's owner.
  ProgramPtr find_or_compile(const Key& key, const std::vector<uint64_t>& signature,
                             const std::function<ProgramPtr()>& compile);
  // Starts that in a thread of its own, unless the program is there or on its way (false); its
  // error is dropped.
  bool compile_beside(const Key& key, const std::function<ProgramPtr()>& compile);
  ProgramPtr find(const Key& key, const std::vector<uint64_t>& signature);
  // The program under `key` where an earlier find() compared its signature (or TORCH_PJRT_VERIFY is
  // 0), and no other graph was ever met under that key; else null. Always null with
  // TORCH_PJRT_VERIFY=2.
  ProgramPtr find_known(const Key& key);
  void clear();
  size_t size();
  std::vector<ProgramPtr> all();  // most recently used first
  bool compiling();               // is any thread?

 private:
  struct Flight {  // one compile; guarded by mu_
    bool done = false;
    ProgramPtr program;
    std::exception_ptr error;
  };
  using FlightPtr = std::shared_ptr<Flight>;
  ProgramPtr find_locked(Hash128 total, const std::vector<uint64_t>& signature, bool* collides);
  void run_compile(Hash128 total, const FlightPtr& flight,
                   const std::function<ProgramPtr()>& compile);
  ProgramPtr finish(RankedLock<LockRank::kPrograms>& lock, const FlightPtr& flight);
  void run_compile_alone(Hash128 total, const FlightPtr& flight,
                         const std::function<ProgramPtr()>& compile);
  static void detach(std::function<void()> f);
  void make_room();
  // Takes out the quarter unused for longest, but never the newest.
  std::vector<ProgramPtr> oldest();
  RankedMutex<LockRank::kPrograms> mu_;
  std::condition_variable finished_;
  LruMap<Hash128, ProgramPtr> programs_;
  std::unordered_map<Hash128, FlightPtr> flights_;
  const CountMappings count_mappings_;
  const StartThread start_thread_;
  RankedMutex<LockRank::kMakeRoom> room_mu_;  // one makes room at a time; guards all below
  Mappings counted_;
  size_t since_ = 0;  // programs made since that count
};

}  // namespace tp::exec
