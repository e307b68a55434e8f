// Programs kept on disk, through the executor: found by the next process, never believed when
// anything is off, and never in the way.
#include "exec/disk_cache.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "client/registry.h"
#include "exec/cache_folder.h"
#include "exec/explain.h"
#include "exec/miss.h"
#include "fake_client.h"
#include "probe/probe.h"
#include "temp_folder.h"

namespace tp::exec {
namespace {

using test::FakeClient;

const ir::Type kOut = ir::make_type(ir::DType::kF32, std::vector<int64_t>{2});

Key key_of(std::string_view name) {
  Key k;
  k.digests.fill(hash_text("ingredient"));
  k.total = hash_text(name);
  return k;
}

std::vector<std::string> said;
void remember(int, std::string_view text) { said.emplace_back(text); }

struct DiskCacheTest : testing::Test {
  test::TempFolder dir;
  FakeClient* client = new FakeClient;
  DiskCache cache;

  DiskCacheTest() {
    client::set_client_for_testing(std::unique_ptr<FakeClient>(client));
    place();
    said.clear();
    probe::set_sink(&remember);
  }
  ~DiskCacheTest() override {
    probe::set_sink(nullptr);
    set_cache_place({});
    client::set_client_for_testing(nullptr);
  }
  void place(bool read_only = false, int64_t limit = 1 << 20) {
    set_cache_place({dir.path, read_only, limit});
  }
  StoredProgram program(const Key& key, std::string_view module = "module") {
    return {.key = key,
            .structure = hash_text(module),
            .outputs = {&kOut, 1},
            .nodes = 3,
            .where = "t.py:1"};
  }
  void store(DiskCache& to, const Key& key, std::string_view module = "module") {
    auto e = client->compile({.module = module, .outputs = std::span(&kOut, 1)});
    to.store(*client, program(key, module), *e, 0.5);
  }
  size_t files() { return list_folder(dir.path).programs.size(); }
};

TEST_F(DiskCacheTest, StoredProgramIsLoadedByAnotherCache) {
  Key k = key_of("a");
  EXPECT_EQ(cache.load(*client, program(k)), nullptr);
  store(cache, k);
  DiskCache other;
  auto e = other.load(*client, program(k));
  ASSERT_NE(e, nullptr);
  EXPECT_EQ(e->output_types()[0], kOut);
  EXPECT_EQ(client->count("deserialize"), 1u);
}

TEST_F(DiskCacheTest, AColdCompileIsExplainedByWhatIsStored) {
  ir::Value x{ir::Node::make_data(kOut, nullptr), 0};
  auto key = [&](std::string_view torch, bool force_data) {
    return make_key({.force_data = force_data, .torch_revision = torch, .roots = {&x, 1}});
  };
  Key old = key("2.13.0", true), now = key("2.14.1", true), read = key("2.13.0", false);
  auto ask = [&](const Key& k, const char* torch, std::string_view module = "module") {
    StoredProgram p = program(k, module);
    p.words = {{"torch revision", torch}};
    forget_stored_headers();
    return summary(why_missed(p));
  };
  auto e = client->compile({.module = "module", .outputs = std::span(&kOut, 1)});
  StoredProgram p = program(old);
  p.words = {{"torch revision", "2.13.0"}};
  cache.store(*client, p, *e, 0.5);
  EXPECT_EQ(ask(now, "2.14.1"), "torch went 2.13.0 -> 2.14.1");
  EXPECT_EQ(ask(read, "2.13.0"),
            "compiled for a read where before it was for a sync, or the other way round");
  EXPECT_EQ(ask(now, "2.14.1", "another graph"), "");
  set_cache_place({});
  EXPECT_EQ(ask(now, "2.14.1"), "");
}

TEST_F(DiskCacheTest, HitsAndMissesAreCounted) {
  int64_t hits = probe::counter("PersistentCacheHit").value();
  int64_t misses = probe::counter("PersistentCacheMiss").value();
  Key k = key_of("a");
  cache.load(*client, program(k));
  store(cache, k);
  cache.load(*client, program(k));
  EXPECT_EQ(probe::counter("PersistentCacheHit").value(), hits + 1);
  EXPECT_EQ(probe::counter("PersistentCacheMiss").value(), misses + 1);
}

TEST_F(DiskCacheTest, OtherKeyIsAnotherFile) {
  store(cache, key_of("a"));
  EXPECT_EQ(cache.load(*client, program(key_of("b"))), nullptr);
  store(cache, key_of("b"));
  EXPECT_EQ(files(), 2u);
}

TEST_F(DiskCacheTest, CollisionOfKeysNeverGivesAnotherGraphsProgram) {
  Key k = key_of("a");
  store(cache, k, "one");
  EXPECT_EQ(cache.load(*client, program(k, "other")), nullptr);
}

TEST_F(DiskCacheTest, GraphsWhoseKeysCollideAreBothKept) {
  Key k = key_of("a");
  store(cache, k, "one");
  store(cache, k, "other");
  EXPECT_EQ(files(), 2u);
  EXPECT_NE(cache.load(*client, program(k, "one")), nullptr);
  EXPECT_NE(cache.load(*client, program(k, "other")), nullptr);
  EXPECT_TRUE(said.empty());
}

TEST_F(DiskCacheTest, BrokenFileIsDiscardedSaidOnceAndStoredAgain) {
  Key a = key_of("a"), b = key_of("b");
  for (const Key& k : {a, b}) {
    store(cache, k);
    dir.put(program_file_name(k.total, hash_text("module")),
            "torch_pjrt stored program 1\nchecksum 0\n");
    EXPECT_EQ(cache.load(*client, program(k)), nullptr);
  }
  EXPECT_EQ(files(), 0u);
  ASSERT_EQ(said.size(), 1u);
  EXPECT_NE(said[0].find("compiled again"), std::string::npos) << said[0];
  store(cache, a);
  EXPECT_NE(cache.load(*client, program(a)), nullptr);
}

TEST_F(DiskCacheTest, ProgramThatThePluginRefusesIsDiscarded) {
  Key k = key_of("a");
  store(cache, k);
  client->fail_deserialize = Error(Code::kRuntime, "Invalid target machine features");
  EXPECT_EQ(cache.load(*client, program(k)), nullptr);
  EXPECT_EQ(files(), 0u);
  ASSERT_EQ(said.size(), 1u);
  EXPECT_NE(said[0].find("Invalid target machine features"), std::string::npos);
}

TEST_F(DiskCacheTest, ProgramThatCannotBeSerializedIsNotStored) {
  client->fail_serialize = Error(Code::kNotImplemented, "no serialize here");
  store(cache, key_of("a"));
  EXPECT_EQ(files(), 0u);
  EXPECT_TRUE(said.empty());
  store(cache, key_of("a"));
  EXPECT_EQ(files(), 1u);
}

TEST_F(DiskCacheTest, FolderStaysBelowItsLimitAndTheUsedStay) {
  for (char c = 'a'; c < 'e'; ++c) store(cache, key_of(std::string(1, c)));
  int64_t one = list_folder(dir.path).programs[0].bytes;
  usleep(20000);
  EXPECT_NE(cache.load(*client, program(key_of("a"))), nullptr);
  usleep(20000);
  place(false, 3 * one + one / 2);
  store(cache, key_of("e"));
  EXPECT_EQ(files(), 3u);
  EXPECT_NE(cache.load(*client, program(key_of("a"))), nullptr);
  EXPECT_EQ(cache.load(*client, program(key_of("b"))), nullptr);
}

TEST_F(DiskCacheTest, ReadOnlyFolderIsReadAndNotWritten) {
  store(cache, key_of("a"));
  place(true);
  store(cache, key_of("b"));
  EXPECT_EQ(files(), 1u);
  EXPECT_NE(cache.load(*client, program(key_of("a"))), nullptr);
  EXPECT_TRUE(said.empty());
}

TEST_F(DiskCacheTest, ReadOnlyPlaceThatIsMissingIsNotMade) {
  set_cache_place({dir.file("none"), true, 1 << 20});
  EXPECT_EQ(cache.load(*client, program(key_of("a"))), nullptr);
  EXPECT_FALSE(std::filesystem::exists(dir.file("none")));
  EXPECT_TRUE(said.empty());
}

TEST_F(DiskCacheTest, FolderThatCannotBeUsedIsSaidOnceAndNothingFails) {
  dir.put("file", "");
  set_cache_place({dir.file("file"), false, 1 << 20});
  for (const char* k : {"a", "b", "c"}) {
    store(cache, key_of(k));
    EXPECT_EQ(cache.load(*client, program(key_of(k))), nullptr);
  }
  ASSERT_EQ(said.size(), 1u);
  EXPECT_NE(said[0].find("going on without"), std::string::npos);
}

TEST_F(DiskCacheTest, FullDiskIsSaidOnceAndLoadingGoesOn) {
  store(cache, key_of("a"));
  // No room for one more name: a folder in the place of the file.
  Key b = key_of("b");
  std::filesystem::create_directory(dir.file(program_file_name(b.total, hash_text("module"))));
  store(cache, b);
  store(cache, key_of("c"));
  EXPECT_EQ(said.size(), 1u);
  EXPECT_EQ(files(), 1u);
  EXPECT_TRUE(list_folder(dir.path).parts.empty());
  EXPECT_NE(cache.load(*client, program(key_of("a"))), nullptr);
}

TEST_F(DiskCacheTest, WithoutAPlaceNothingHappens) {
  set_cache_place({});
  int64_t misses = probe::counter("PersistentCacheMiss").value();
  store(cache, key_of("a"));
  EXPECT_EQ(cache.load(*client, program(key_of("a"))), nullptr);
  EXPECT_EQ(client->count("serialize"), 0u);
  EXPECT_EQ(probe::counter("PersistentCacheMiss").value(), misses);
}

}  // namespace
}  // namespace tp::exec
