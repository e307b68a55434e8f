// The folder of stored programs: private, whole files only, bounded, safe beside other processes.
#include "exec/cache_folder.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "base/cache_place.h"
#include "exec/cache_file.h"
#include "temp_folder.h"

namespace tp::exec {
namespace {

namespace fs = std::filesystem;

mode_t mode_of(const std::string& path) {
  struct stat s{};
  EXPECT_EQ(stat(path.c_str(), &s), 0) << path;
  return s.st_mode & 0777;
}
void set_age(const std::string& path, int64_t seconds) {
  timespec t{time(nullptr) - seconds, 0};
  timespec both[] = {t, t};
  EXPECT_EQ(utimensat(AT_FDCWD, path.c_str(), both, 0), 0);
}

struct CacheFolderTest : testing::Test {
  test::TempFolder dir;
  std::string name(int i) { return program_file_name(hash_text(std::to_string(i))); }
  // Stores a whole program file of about `bytes` bytes, last used `age` seconds ago.
  void put(int i, size_t bytes, int64_t age = 0) {
    std::string program(bytes, 'x');
    CacheFile f{.key = hash_text(std::to_string(i))};
    EXPECT_EQ(write_cache_file(dir.path, name(i), encode_head(f, program), program), "");
    set_age(dir.file(name(i)), age);
  }
  bool has(int i) { return fs::exists(dir.file(name(i))); }
};

TEST_F(CacheFolderTest, FoldersAndFilesArePrivate) {
  std::string inner = dir.file("a/b");
  EXPECT_EQ(prepare_cache_folder({inner}), "");
  EXPECT_EQ(mode_of(dir.file("a")), 0700u);
  EXPECT_EQ(mode_of(inner), 0700u);
  mode_t old = umask(0);
  EXPECT_EQ(write_cache_file(inner, name(1), "x"), "");
  umask(old);
  EXPECT_EQ(mode_of(inner + "/" + name(1)), 0600u);
}

TEST_F(CacheFolderTest, FolderThatOthersMayWriteToIsNotUsed) {
  chmod(dir.path.c_str(), 0777);
  EXPECT_NE(prepare_cache_folder({dir.path}).find("other users may write"), std::string::npos);
  chmod(dir.path.c_str(), 0700);
  EXPECT_EQ(prepare_cache_folder({dir.path}), "");
}

TEST_F(CacheFolderTest, FolderOfAGroupOrBelowOneIsNotUsed) {
  std::string inner = dir.file("a/b");
  EXPECT_EQ(prepare_cache_folder({inner}), "");
  chmod(inner.c_str(), 0770);
  EXPECT_NE(prepare_cache_folder({inner}).find("other users may write to " + inner),
            std::string::npos);
  chmod(inner.c_str(), 01777);  // as a parent it would do, as the folder itself it does not
  EXPECT_NE(prepare_cache_folder({inner}), "");
  chmod(inner.c_str(), 0700);
  chmod(dir.file("a").c_str(), 0770);
  EXPECT_NE(prepare_cache_folder({inner}).find("other users may write to " + dir.file("a")),
            std::string::npos);
  chmod(dir.file("a").c_str(), 01777);
  EXPECT_EQ(prepare_cache_folder({inner}), "");
}

constexpr uid_t kStranger = 12345;

TEST_F(CacheFolderTest, FolderFileOrParentOfAnotherUserIsNotUsed) {
  if (geteuid() != 0) GTEST_SKIP() << "only root may give a file away";
  std::string inner = dir.file("a/b"), words = " belongs to another user (12345)";
  EXPECT_EQ(prepare_cache_folder({inner}), "");
  EXPECT_EQ(write_cache_file(inner, name(1), "x"), "");
  EXPECT_TRUE(read_cache_file(inner, name(1), Touch::kNo));
  std::string file = inner + "/" + name(1);
  EXPECT_EQ(chown(file.c_str(), kStranger, kStranger), 0);
  EXPECT_FALSE(read_cache_file(inner, name(1), Touch::kNo));
  EXPECT_TRUE(read_cache_file(inner, name(1), Touch::kNo, Trust::kAnyone));
  EXPECT_NE(distrust(inner, name(1)).find(file + words), std::string::npos);
  for (const std::string& folder : {inner, dir.file("a")}) {
    EXPECT_EQ(chown(folder.c_str(), kStranger, kStranger), 0);
    EXPECT_NE(prepare_cache_folder({inner}).find(folder + words), std::string::npos);
    EXPECT_EQ(prepare_cache_folder({.folder = inner, .read_only = true, .shared = true}), "");
    EXPECT_EQ(chown(folder.c_str(), 0, 0), 0);
  }
  EXPECT_EQ(prepare_cache_folder({inner}), "");
}

TEST_F(CacheFolderTest, FileThatOthersMayWriteToIsNotRead) {
  put(1, 10);
  for (mode_t mode : {0620u, 0602u, 0666u}) {
    chmod(dir.file(name(1)).c_str(), mode);
    EXPECT_FALSE(read_cache_file(dir.path, name(1), Touch::kNo)) << mode;
    EXPECT_EQ(verify_folder(dir.path).size(), 1u);
  }
  chmod(dir.file(name(1)).c_str(), 0644);
  EXPECT_TRUE(read_cache_file(dir.path, name(1), Touch::kNo));
  EXPECT_EQ(distrust(dir.path, name(1)), "");
  EXPECT_EQ(distrust(dir.path, name(2)), "");
}

TEST_F(CacheFolderTest, LinkToTheFolderIsAsGoodAsItsPlaceAndItsTarget) {
  fs::create_directory(dir.file("real"));
  fs::create_directory(dir.file("links"));
  for (const char* f : {"real", "links"}) chmod(dir.file(f).c_str(), 0700);
  fs::create_directory_symlink(dir.file("real"), dir.file("links/cache"));
  std::string link = dir.file("links/cache");
  EXPECT_EQ(prepare_cache_folder({link}), "");
  for (const char* weak : {"real", "links"}) {
    chmod(dir.file(weak).c_str(), 0777);
    EXPECT_NE(prepare_cache_folder({link}), "") << weak;
    chmod(dir.file(weak).c_str(), 0700);
  }
}

TEST_F(CacheFolderTest, PipeInTheFilesPlaceDoesNotBlock) {
  ASSERT_EQ(mkfifo(dir.file(name(1)).c_str(), 0600), 0);
  EXPECT_FALSE(read_cache_file(dir.path, name(1), Touch::kNo));
}

TEST_F(CacheFolderTest, ReadOnlyPlaceMakesNoFolder) {
  EXPECT_NE(prepare_cache_folder({.folder = dir.file("none"), .read_only = true}), "");
  EXPECT_FALSE(fs::exists(dir.file("none")));
}

TEST_F(CacheFolderTest, PlaceWithoutAFolderIsToldWithTheReason) {
  dir.put("file", "");
  EXPECT_NE(prepare_cache_folder({dir.file("file")}), "");
  EXPECT_NE(prepare_cache_folder({dir.file("file/below")}), "");
  EXPECT_NE(write_cache_file(dir.file("gone"), name(1), "x"), "");
}

TEST_F(CacheFolderTest, LinksAreNotFollowed) {
  dir.put("elsewhere", "secret");
  fs::create_symlink(dir.file("elsewhere"), dir.file(name(1)));
  EXPECT_FALSE(read_cache_file(dir.path, name(1), Touch::kYes).has_value());
  EXPECT_TRUE(list_folder(dir.path).programs.empty());
}

TEST_F(CacheFolderTest, ReadingCountsAsUseOnlyWhereAsked) {
  put(1, 10, 1000);
  put(2, 10, 1000);
  read_cache_file(dir.path, name(1), Touch::kYes);
  read_cache_file(dir.path, name(2), Touch::kNo);
  auto files = list_folder(dir.path).programs;
  ASSERT_EQ(files.size(), 2u);
  EXPECT_EQ(files[0].name, name(2));
  EXPECT_GT(files[1].used_ns, files[0].used_ns + 900'000'000'000);
}

TEST_F(CacheFolderTest, LongestUnusedGoFirstAndOnlyAsFarAsNeeded) {
  put(1, 1000, 30);
  put(2, 1000, 10);
  put(3, 1000, 20);
  int64_t one = list_folder(dir.path).programs[0].bytes;
  Removed r = evict(dir.path, 2 * one, 0);
  EXPECT_EQ(r.files, 1);
  EXPECT_EQ(r.bytes, one);
  EXPECT_FALSE(has(1));
  EXPECT_TRUE(has(2) && has(3));
  evict(dir.path, one, 0);
  EXPECT_TRUE(has(2));
  EXPECT_FALSE(has(3));
  EXPECT_EQ(evict(dir.path, one, 0).files, 0);
}

TEST_F(CacheFolderTest, StrangersFilesAreLeftAlone) {
  dir.put("notes.txt", "mine");
  dir.put("0123.program", "short name");
  put(1, 100);
  EXPECT_EQ(evict(dir.path, 0, 0).files, 1);
  put(1, 100);
  EXPECT_EQ(clear_folder(dir.path).files, 1);
  EXPECT_TRUE(fs::exists(dir.file("notes.txt")) && fs::exists(dir.file("0123.program")));
}

TEST_F(CacheFolderTest, ClearRemovesPluginHashesToo) {
  std::string plugin = "plugin-" + hash_text("p").hex();
  dir.put(plugin, "x");
  EXPECT_EQ(evict(dir.path, 0, 0).files, 0);
  EXPECT_EQ(clear_folder(dir.path).files, 1);
}

TEST_F(CacheFolderTest, PartOfALivingWriterStaysAndOfADeadOneGoes) {
  std::string part = name(1) + ".1-1.part";
  dir.put(part, "half");
  int fd = open(dir.file(part).c_str(), O_RDONLY);
  ASSERT_EQ(flock(fd, LOCK_EX | LOCK_NB), 0);
  EXPECT_EQ(evict(dir.path, 0, 0).files + clear_folder(dir.path).files, 0);
  EXPECT_TRUE(verify_folder(dir.path).empty());
  close(fd);
  EXPECT_EQ(verify_folder(dir.path).size(), 1u);
  EXPECT_EQ(evict(dir.path, 1 << 20, 60).files, 0);  // it may be a second old
  set_age(dir.file(part), 61);
  EXPECT_EQ(evict(dir.path, 1 << 20, 60).files, 1);
}

TEST_F(CacheFolderTest, VerifyNamesBrokenAndMisnamedFilesOnly) {
  put(1, 100);
  put(2, 100);
  put(3, 100);
  dir.put(name(2), dir.get(name(2)).substr(0, 150));
  fs::rename(dir.file(name(3)), dir.file(name(4)));
  auto found = verify_folder(dir.path);
  ASSERT_EQ(found.size(), 2u);
  for (const Complaint& c : found) EXPECT_TRUE(c.name == name(2) || c.name == name(4)) << c.name;
}

TEST_F(CacheFolderTest, ThreadsAndProcessesWritingOneNameLeaveOneWholeFile) {
  auto write_many = [&] {
    for (int i = 0; i < 50; ++i) {
      std::string program(4096, static_cast<char>('a' + i % 26));
      CacheFile f{.key = hash_text("1")};
      write_cache_file(dir.path, name(1), encode_head(f, program), program);
      auto bytes = read_cache_file(dir.path, name(1), Touch::kYes);
      if (!bytes || decode(*bytes).program.size() != 4096) _exit(1);
    }
  };
  std::vector<pid_t> children;
  for (int p = 0; p < 3; ++p)
    if (pid_t pid = fork(); pid == 0) {
      write_many();
      _exit(0);
    } else {
      children.push_back(pid);
    }
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 2; ++t) threads.emplace_back(write_many);
  }
  for (pid_t pid : children) {
    int status = 0;
    waitpid(pid, &status, 0);
    EXPECT_EQ(status, 0);
  }
  FolderList l = list_folder(dir.path);
  EXPECT_EQ(l.programs.size(), 1u);
  EXPECT_TRUE(l.parts.empty());
  EXPECT_TRUE(verify_folder(dir.path).empty());
}

TEST_F(CacheFolderTest, WritersKilledAtAnyTimeLeaveNothingThatIsBelieved) {
  int parts = 0;
  for (int round = 0; round < 30; ++round) {
    pid_t pid = fork();
    if (pid == 0) {
      std::string program(8 << 20, static_cast<char>('a' + round % 26));
      for (int i = 0;; ++i) {
        CacheFile f{.key = hash_text(std::to_string(i % 3))};
        write_cache_file(dir.path, name(i % 3), encode_head(f, program), program);
      }
    }
    for (int wait = 0; wait < 5000 && std::filesystem::is_empty(dir.path); ++wait)  // it writes now
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    std::this_thread::sleep_for(std::chrono::milliseconds(3 + round * 7 % 25));
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
    FolderList l = list_folder(dir.path);
    parts += static_cast<int>(l.parts.size());
    for (const Complaint& c : verify_folder(dir.path))
      EXPECT_TRUE(c.name.ends_with(kPartSuffix)) << c.name << ": " << c.what;
    evict(dir.path, 1 << 30, 0);
    EXPECT_TRUE(verify_folder(dir.path).empty());
  }
  EXPECT_GT(parts, 0);  // else no kill fell into a write, and this test shows nothing
}

}  // namespace
}  // namespace tp::exec
