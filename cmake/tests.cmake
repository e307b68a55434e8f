# The core's gtest suite (no torch) and the fake plugin that it loads to inject faults.
enable_testing()
find_package(GTest REQUIRED)
if(NOT TP_FFI_INCLUDE)
  message(FATAL_ERROR
    "xla/ffi/api/c_api.h not found: the tests' custom calls need it. "
    "Run: ${Python_EXECUTABLE} -m pip install jaxlib")
endif()

if(NOT TP_CPU_PLUGIN)
  message(FATAL_ERROR
    "no CPU plugin is installed, which the tests run on. "
    "Run: ${Python_EXECUTABLE} -m pip install --no-deps -r requirements/cpu-plugins.txt")
endif()

add_library(fakeplugin SHARED ${TP_FAKEPLUGIN})
target_include_directories(fakeplugin SYSTEM PRIVATE ${TP_PJRT_INCLUDE})
target_include_directories(fakeplugin PRIVATE src)

add_library(tp_harness STATIC ${TP_HARNESS})
target_include_directories(tp_harness PUBLIC tests/core)
target_compile_definitions(tp_harness PUBLIC
  TP_FAKEPLUGIN_PATH="$<TARGET_FILE:fakeplugin>"
  TP_CPU_PLUGIN_PATH="${TP_CPU_PLUGIN}")
target_link_libraries(tp_harness PUBLIC tp_core)

# One op over a pipe, for tests/core/opcheck.py and for people.
add_executable(op_tool tests/core/op_tool.cpp)
target_link_libraries(op_tool PRIVATE tp_harness)

add_executable(core_tests ${TP_CORE_TESTS})
target_include_directories(core_tests SYSTEM PRIVATE ${TP_FFI_INCLUDE})
target_link_libraries(core_tests PRIVATE tp_harness GTest::gtest GTest::gtest_main)
add_dependencies(core_tests fakeplugin)
if(TP_BUILD_EXTENSION)  # the dev build wants op_tool and the fake plugin; gtests run under sanitizers
  set_target_properties(core_tests PROPERTIES EXCLUDE_FROM_ALL ON)
endif()
# ThreadSanitizer cannot see into real plugins and cries wolf about their threads: there, what runs
# over doubles and over the fake plugin.
set(TP_TEST_FILTER "*")
if(TP_SANITIZE MATCHES "thread")
  set(TP_TEST_FILTER "*Cache*:*Executor*:*Interrupt*:*Launch*:*Donation*:FakePlugin*:*Graph*:Lru*:Key*")
endif()
# Halves of the tests that ctest may run side by side (-j2).
foreach(shard 0 1)
  add_test(NAME core_tests_${shard} COMMAND core_tests --gtest_brief=1 --gtest_filter=${TP_TEST_FILTER})
  set_tests_properties(core_tests_${shard} PROPERTIES ENVIRONMENT
    "GTEST_TOTAL_SHARDS=2;GTEST_SHARD_INDEX=${shard};LSAN_OPTIONS=suppressions=${CMAKE_SOURCE_DIR}/tools/lsan.supp:print_suppressions=0;TSAN_OPTIONS=die_after_fork=0:halt_on_error=1")
endforeach()
