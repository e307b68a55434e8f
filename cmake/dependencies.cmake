# What the build needs and where it finds it: the build Python, pjrt_c_api.h, xxhash.h, ccache, a fast linker.
find_package(Threads REQUIRED)
find_package(Python REQUIRED COMPONENTS Interpreter)

# Folders of `torch` packages to build for; none: the build Python's own.
set(TP_TORCH_DIRS "" CACHE STRING "Folders of the torch packages that the extension is built for")
execute_process(
  COMMAND ${Python_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/python_env.py ${TP_TORCH_DIRS}
  OUTPUT_VARIABLE lines OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
string(REPLACE "\n" ";" lines "${lines}")
set(TP_TORCHES "")  # extension|folder|version|git revision, of each torch
foreach(line IN LISTS lines)
  string(REGEX MATCH "^([A-Z_]+)=(.*)$" unused "${line}")
  if(CMAKE_MATCH_1 STREQUAL "TORCH")
    set(torch "${CMAKE_MATCH_2}")
    if(TP_IN_PLACE)  # one torch; a wheel leaves the file of this name out (pyproject.toml)
      string(REGEX MATCH "[|].*" rest "${torch}")
      set(torch "_C${rest}")
    endif()
    list(APPEND TP_TORCHES "${torch}")
  elseif(NOT DEFINED CACHE{TP_${CMAKE_MATCH_1}})
    set(TP_${CMAKE_MATCH_1} "${CMAKE_MATCH_2}")
  endif()
endforeach()

if(NOT TP_PJRT_INCLUDE)
  message(FATAL_ERROR
    "pjrt_c_api.h not found: the build Python ${Python_EXECUTABLE} lacks the wheel that ships it.\n"
    "Run: ${Python_EXECUTABLE} -m pip install xla-cpu-pjrt==0.0.1")
endif()

# PyPI's pyarrow carries the same header for machines without Debian's package.
find_path(TP_XXHASH_INCLUDE xxhash.h)
if(NOT TP_XXHASH_INCLUDE)
  execute_process(
    COMMAND ${Python_EXECUTABLE} -c
      "import importlib.util as u; print(u.find_spec('pyarrow').submodule_search_locations[0])"
    OUTPUT_VARIABLE pyarrow OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  find_path(TP_XXHASH_INCLUDE xxhash.h
    PATHS ${pyarrow}/include/arrow/vendored/xxhash NO_DEFAULT_PATH)
endif()
if(NOT TP_XXHASH_INCLUDE)
  message(FATAL_ERROR
    "xxhash.h not found. Run one of: apt-get install libxxhash-dev; "
    "${Python_EXECUTABLE} -m pip install pyarrow (it carries the header)")
endif()

find_program(TP_CCACHE ccache)
if(TP_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # The sloppiness is what ccache wants for precompiled headers.
  set(CMAKE_CXX_COMPILER_LAUNCHER
    ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros ${TP_CCACHE})
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    add_compile_options(-fpch-preprocess)
  endif()
endif()

foreach(linker mold lld)
  find_program(TP_LINKER_${linker} NAMES ld.${linker} ${linker})
  if(TP_LINKER_${linker} AND NOT TP_LINKER)
    set(TP_LINKER ${linker})
    add_link_options(-fuse-ld=${linker})
  endif()
endforeach()
