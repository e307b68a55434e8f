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
  EXPECT_EQ(row(Flag::kXlaFlags).in_key, InKey::kYes);
  EXPECT_EQ(row(Flag::kCompilationCacheSize).in_key, InKey::kNo);
  EXPECT_EQ(row(Flag::kDebug).in_key, InKey::kNo);
  std::string key = flags_in_key();
  EXPECT_NE(key.find("XLA_FLAGS="), std::string::npos);
  EXPECT_EQ(key.find("TORCH_PJRT_DEBUG"), std::string::npos);
}

// Values are read once for the process, so each of these looks in a process of its own.
template <class F>
void in_child(F&& f) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(std::exit(f() ? 0 : 1), testing::ExitedWithCode(0), "");
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

}  // namespace
}  // namespace tp
