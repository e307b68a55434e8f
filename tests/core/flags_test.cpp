// The flag table: every flag has its row, values come from the environment once, bad ones are told.
#include "base/flags.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <set>

#include "base/error.h"

namespace tp {
namespace {

const FlagRow& row(Flag f) { return flag_table()[static_cast<size_t>(f)]; }

TEST(Flags, RowsStandInTheEnumsOrderWithNamesOfTheirOwn) {
  std::set<std::string> names;
  ASSERT_EQ(flag_table().size(), static_cast<size_t>(Flag::kCount));
  for (size_t i = 0; i < flag_table().size(); ++i) {
    EXPECT_EQ(static_cast<size_t>(flag_table()[i].flag), i);
    EXPECT_TRUE(names.insert(flag_table()[i].name).second) << flag_table()[i].name;
    EXPECT_NE(std::string(flag_table()[i].help), "");
  }
}

TEST(Flags, NamesAreThePeersOrStartWithOurs) {
  for (const FlagRow& r : flag_table()) {
    std::string name = r.name;
    EXPECT_TRUE(name.starts_with("TORCH_PJRT_") || name.starts_with("XLA_") ||
                name.starts_with("PJRT_") || name.starts_with("PT_XLA_"))
        << name;
  }
}

TEST(Flags, DefaultsAreTheDesigns) {
  EXPECT_STREQ(row(Flag::kCompilationCacheSize).fallback, "2048");
  EXPECT_STREQ(row(Flag::kShapeCacheSize).fallback, "12288");
}

TEST(Flags, OnlyWhatChangesProgramsEntersTheKey) {
  EXPECT_EQ(row(Flag::kXlaFlags).in_key, InKey::kPlugin);  // client_test.cpp
  EXPECT_EQ(row(Flag::kCpuDeviceCount).in_key, InKey::kYes);
  EXPECT_EQ(row(Flag::kCompilationCacheSize).in_key, InKey::kNo);
  EXPECT_EQ(row(Flag::kDebug).in_key, InKey::kNo);
  std::string key = flags_in_key();
  EXPECT_NE(key.find("TORCH_PJRT_CPU_DEVICES="), std::string::npos);
  EXPECT_EQ(key.find("TORCH_PJRT_DEBUG"), std::string::npos);
}

TEST(Flags, FallbacksAreAllowed) {
  for (const FlagRow& r : flag_table()) EXPECT_NE(allowed_values(r), "") << r.name;
  EXPECT_NO_THROW(check_flags());
}

// Values are read once for the process, so each of these looks in a process of its own.
template <class F>
void in_child(F&& f) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(std::_Exit(f() ? 0 : 1), testing::ExitedWithCode(0), "");
}

TEST(FlagsDeathTest, EnvironmentIsReadOnce) {
  in_child([] {
    setenv("XLA_COMPILATION_CACHE_SIZE", "7", 1);
    bool first = flag_int(Flag::kCompilationCacheSize) == 7;
    setenv("XLA_COMPILATION_CACHE_SIZE", "8", 1);
    return first && flag_int(Flag::kCompilationCacheSize) == 7;
  });
}

TEST(FlagsDeathTest, EmptyMeansDefault) {
  in_child([] {
    setenv("XLA_COMPILATION_CACHE_SIZE", "", 1);
    return flag_int(Flag::kCompilationCacheSize) == 2048;
  });
}

TEST(FlagsDeathTest, WordsWhereANumberIsWantedAreNamed) {
  in_child([] {
    setenv("TORCH_PJRT_DEBUG", "2x", 1);
    try {
      flag_int(Flag::kDebug);
    } catch (const Error& e) {
      std::string said = e.what();
      return e.code() == Code::kValue && said.find("TORCH_PJRT_DEBUG") != said.npos &&
             said.find("'2x'") != said.npos;
    }
    return false;
  });
}

TEST(FlagsDeathTest, EveryBadValueIsToldAtOnceAndAnewWhereAskedAgain) {
  in_child([] {
    setenv("TORCH_PJRT_DEBUG", "-1", 1);
    setenv("TORCH_PJRT_CPU_DEVICES", "200", 1);
    setenv("XLA_SAVE_TENSORS_FMT", "pdf", 1);
    setenv("TORCH_PJRT_PLUGIN", "nowhere", 1);
    std::string said;
    try {
      check_flags();
    } catch (const Error& e) {
      said = e.what();
    }
    for (const char* words :
         {"TORCH_PJRT_DEBUG: expected a whole number of at least 0, found '-1'",
          "TORCH_PJRT_CPU_DEVICES: expected a whole number from 1 to 127, found '200'",
          "XLA_SAVE_TENSORS_FMT: expected text, dot or hlo, found 'pdf'",
          "TORCH_PJRT_PLUGIN: expected NAME:/path/to/plugin.so, found 'nowhere'"})
      if (said.find(words) == said.npos) return false;
    for (const FlagRow& r : flag_table()) unsetenv(r.name);
    check_flags();
    return flag_int(Flag::kCpuDeviceCount) == 1;
  });
}

}  // namespace
}  // namespace tp
