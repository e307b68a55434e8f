# The extension module torch_pjrt._C: the two rooms that see torch, over the core. It is compiled once
# for each torch of TP_TORCHES; with several, each file is named by its torch and
# torch_pjrt/_extension.py takes the one that fits.
# torch's include and library folders are used directly: find_package(Torch) takes seconds and adds flags.
if(NOT TP_TORCHES)
  message(FATAL_ERROR
    "torch not found in the build Python ${Python_EXECUTABLE}: run `make setup`, or pip install torch==2.13.0")
endif()

# Python's headers are on the path of these alone: all else is compiled by the same commands for every
# Python, so that ccache has it for the wheel of the next one.
set_source_files_properties(${TP_BIND} src/torch/frames.cpp PROPERTIES
  COMPILE_OPTIONS "-isystem;${TP_PYTHON_INCLUDE}")

function(tp_add_extension name dir gen_root generated)
  add_library(${name} MODULE ${TP_TORCH} ${TP_BIND} ${generated})
  if(NOT gen_root STREQUAL CMAKE_BINARY_DIR)  # which tp_core brings
    target_include_directories(${name} BEFORE PRIVATE ${gen_root})
  endif()
  target_include_directories(${name} SYSTEM PRIVATE
    ${dir}/include ${dir}/include/torch/csrc/api/include)
  target_compile_definitions(${name} PRIVATE _GLIBCXX_USE_CXX11_ABI=1 TORCH_EXTENSION_NAME=_C)
  target_link_directories(${name} PRIVATE ${dir}/lib)
  target_link_libraries(${name} PRIVATE tp_core torch torch_cpu c10 torch_python)
  target_link_options(${name} PRIVATE -Wl,--exclude-libs,ALL)
  if(TP_TORCH)
    target_precompile_headers(${name} PRIVATE <torch/library.h>)
  endif()
  set_target_properties(${name} PROPERTIES
    PREFIX "" SUFFIX "${TP_PYTHON_SUFFIX}"
    BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH "$ORIGIN/../torch/lib")
  if(TP_IN_PLACE)
    set_target_properties(${name} PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${CMAKE_SOURCE_DIR}/torch_pjrt)
  endif()
  install(TARGETS ${name} LIBRARY DESTINATION torch_pjrt)
endfunction()

foreach(torch IN LISTS TP_TORCHES)
  string(REPLACE "|" ";" torch "${torch}")
  list(GET torch 0 name)
  list(GET torch 1 dir)
  tp_gen_root(${name} gen_root)
  tp_add_extension(${name} ${dir} ${gen_root} ${gen_root}/gen/meta_rows.inc)
endforeach()

if(NOT TP_IN_PLACE)
  install(FILES ${TP_GEN}/_build_info.py DESTINATION torch_pjrt)
endif()
