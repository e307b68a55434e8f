// The registry: which client PJRT_DEVICE names. Flags are read once a process, so tests that set
// variables run their body in a fresh process (gtest's "threadsafe" death tests).
#include <sys/wait.h>
#include <unistd.h>

#include "base/text.h"
#include "client/registry_table.h"
#include "fake_client.h"
#include "plugins_for_tests.h"

namespace tp::client {
namespace {

using test::words_of;

PluginSpec spec(std::string name, std::string path = "/x.so") {
  PluginSpec s;
  s.name = std::move(name);
  s.library_path = std::move(path);
  return s;
}

TEST(Table, StartsWithOnePlaceholder) {
  Table table;
  EXPECT_TRUE(table.names().empty());
  EXPECT_EQ(
      words_of([&] { table.find("CPU"); }),
      "PJRT_DEVICE=CPU: its plugin is not installed\n  try: pip install fastatomstruct-xla-cpu");
}

TEST(Table, UnknownNameListsWhatIsThereAndHowToAddOne) {
  Table table;
  table.put(spec("CPU"));
  table.put(spec("CHIP"));
  std::string words = words_of([&] { table.find("chip"); });
  EXPECT_TRUE(words.starts_with("PJRT_DEVICE=chip: no such device; registered: CHIP, CPU\n"))
      << words;
  for (const char* way :
       {"torch_pjrt.plugins", "torch_xla.plugins", "jax_plugins", "TORCH_PJRT_PLUGIN=chip:"})
    EXPECT_NE(words.find(way), words.npos) << way;
}

TEST(Table, NamesAreExact) {
  Table table;
  table.put(spec("CPU"));
  EXPECT_EQ(table.find("CPU").library_path, "/x.so");
  EXPECT_THROW(table.find("cpu"), Error);
  EXPECT_THROW(table.find("CPU "), Error);
}

TEST(Table, PluginFlagAddsAnEntry) {
  Table table;
  EXPECT_EQ(table.find("CHIP", "CHIP:/a:b.so").library_path, "/a:b.so");
  EXPECT_EQ(table.names("CHIP:/a.so"), (std::vector<std::string>{"CHIP"}));
}

TEST(Table, PluginFlagMovesAnEntryAndKeepsItsOptions) {
  Table table;
  auto cpu = spec("CPU");
  cpu.options = {{"cpu_device_count", int64_t{4}}};
  table.put(cpu);
  auto found = table.find("CPU", "CPU:/other.so");
  EXPECT_EQ(found.library_path, "/other.so");
  EXPECT_EQ(found.options.size(), 1u);
}

TEST(Table, UnreadablePluginFlagIsExplained) {
  for (const char* flag : {"nocolon", ":/path", "NAME:"})
    EXPECT_NE(words_of([&] { Table().find("X", flag); }).find("expected NAME:PATH"),
              std::string::npos)
        << flag;
}

TEST(Start, MissingLibraryIsOneMessageWithWhatToInstall) {
  auto s = spec("CHIP", "/no/chip.so");
  s.how_to_install = "pip install chip-pjrt";
  EXPECT_EQ(words_of([&] { start_plugin(s); }),
            "PJRT_DEVICE=CHIP cannot start: PJRT plugin library not found: /no/chip.so\n"
            "  try: pip install chip-pjrt");
}

TEST(Start, MissingHardwareGivesThePluginsWordsAndTheNextTryWorks) {
  test::FakePlugin fake;
  fake.script("client:1=FAILED_PRECONDITION No visible chips.");
  auto s = test::fake_spec();
  s.how_to_install = "check the cable";
  EXPECT_EQ(
      words_of([&] { start_plugin(s); }),
      "PJRT_DEVICE=FAKE cannot start: PJRT_Client_Create failed with FAILED_PRECONDITION [9]: "
      "No visible chips.\n  try: check the cable");
  EXPECT_EQ(start_plugin(s)->platform(), "fake");
}

struct Process : testing::Test {
  void SetUp() override { testing::FLAGS_gtest_death_test_style = "threadsafe"; }
  // For bodies of death tests: exits 0 where all holds, else says what did not.
  static void exit_if(bool ok, const std::string& words) {
    if (!ok) std::fprintf(stderr, "found: %s\n", words.c_str());
    std::_Exit(ok ? 0 : 1);
  }
};

TEST_F(Process, ClientIsMadeByTheVariablesAlone) {
  auto body = [] {
    setenv("PJRT_DEVICE", "FAKE", 1);
    setenv("TORCH_PJRT_PLUGIN", ("FAKE:" + test::fake_plugin_path()).c_str(), 1);
    setenv("TORCH_PJRT_FAKE_DEVICES", "2", 1);
    std::string words = words_of([] {
      if (client_exists()) throw std::runtime_error("made too early");
      if (client().devices().size() != 2) throw std::runtime_error("wrong client");
      if (registered() != std::vector<std::string>{"FAKE"}) throw std::runtime_error("wrong list");
      if (&client() != &client()) throw std::runtime_error("made twice");
    });
    exit_if(words.empty(), words);
  };
  EXPECT_EXIT(body(), testing::ExitedWithCode(0), "");
}

TEST_F(Process, FailedStartIsNotRemembered) {
  auto body = [] {
    setenv("PJRT_DEVICE", "FAKE", 1);
    register_plugin(test::fake_spec());
    test::FakePlugin fake;
    fake.script("client:1=UNAVAILABLE busy");
    std::string first = words_of([] { client(); });
    bool ok = first.find("UNAVAILABLE [14]: busy") != first.npos && !client_exists();
    ok = ok && client().platform() == "fake" && client_exists();
    exit_if(ok, first);
  };
  EXPECT_EXIT(body(), testing::ExitedWithCode(0), "");
}

TEST_F(Process, DeviceIsTheCpuWhereNothingIsSet) {
  auto body = [] {
    unsetenv("PJRT_DEVICE");
    unsetenv("TORCH_PJRT_PLUGIN");
    std::string words = words_of([] { client(); });
    exit_if(words.starts_with("PJRT_DEVICE=CPU: its plugin is not installed"), words);
  };
  EXPECT_EXIT(body(), testing::ExitedWithCode(0), "");
}

TEST_F(Process, PluginCannotBeReplacedUnderARunningClient) {
  auto body = [] {
    setenv("PJRT_DEVICE", "FAKE", 1);
    register_plugin(test::fake_spec());
    client();
    std::string words = words_of([] { register_plugin(test::fake_spec()); });
    register_plugin(spec("OTHER"));
    exit_if(words.find("'FAKE' cannot be replaced") != words.npos && registered().size() == 2,
            words);
  };
  EXPECT_EXIT(body(), testing::ExitedWithCode(0), "");
}

// What `f` throws in a forked child.
std::string in_child(void (*f)()) {
  int ends[2];
  if (pipe(ends) != 0) return "no pipe";
  if (pid_t child = fork(); child == 0) {
    std::string words = words_of(f);
    (void)!write(ends[1], words.data(), words.size());
    std::_Exit(0);
  } else {
    close(ends[1]);
    std::string words;
    char buffer[1000];
    for (ssize_t n; (n = read(ends[0], buffer, sizeof buffer)) > 0;)
      words.append(buffer, static_cast<size_t>(n));
    close(ends[0]);
    waitpid(child, nullptr, 0);
    return words;
  }
}

TEST(Fork, ChildOfAProcessWithAClientIsToldSo) {
  set_client_for_testing(std::make_unique<test::FakeClient>());
  check_not_forked();
  std::string words = in_child([] { client(); });
  EXPECT_NE(words.find("forked from process"), words.npos) << words;
  EXPECT_NE(words.find("spawn"), words.npos) << words;
  client();  // the parent goes on
  set_client_for_testing(nullptr);
}

TEST(Fork, ChildMayMakeItsOwnClientWhereTheParentHasNone) {
  set_client_for_testing(nullptr);
  std::string words = in_child([] {
    set_client_for_testing(std::make_unique<test::FakeClient>());
    client();
  });
  EXPECT_EQ(words, "");
}

TEST(Registry, TestsMayPutAClientInPlace) {
  set_client_for_testing(std::make_unique<test::FakeClient>());
  EXPECT_TRUE(client_exists());
  EXPECT_EQ(client().platform(), "double");
  set_client_for_testing(nullptr);
  EXPECT_FALSE(client_exists());
}

}  // namespace
}  // namespace tp::client
