# Generated sources, in <build>/gen (on the include path as "gen/..."):
#   build_info.h   versions of torch and of this source tree; rewritten only when they change
#   meta_rows.inc  PyTorch's own type rules for the op table (tools/gen_meta.py)
set(TP_GEN ${CMAKE_BINARY_DIR}/gen)
file(MAKE_DIRECTORY ${TP_GEN})

set(info_args --version ${PROJECT_VERSION} --torch-version "${TP_TORCH_VERSION}"
    --torch-git "${TP_TORCH_GIT}" --header ${TP_GEN}/build_info.h)
if(TP_IN_PLACE)
  list(APPEND info_args --python ${CMAKE_SOURCE_DIR}/torch_pjrt/_build_info.py)
else()
  list(APPEND info_args --python ${TP_GEN}/_build_info.py)
endif()
# Runs at every build (30 ms): sources may have changed since the last one.
add_custom_target(tp_build_info_file
  COMMAND ${Python_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tools/build_info.py ${info_args}
  BYPRODUCTS ${TP_GEN}/build_info.h VERBATIM)
add_library(tp_build_info INTERFACE)
target_include_directories(tp_build_info INTERFACE ${CMAKE_BINARY_DIR})
add_dependencies(tp_build_info tp_build_info_file)

if(TP_BUILD_EXTENSION AND EXISTS ${CMAKE_SOURCE_DIR}/tools/gen_meta.py)
  add_custom_command(
    OUTPUT ${TP_GEN}/meta_rows.inc
    COMMAND ${Python_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tools/gen_meta.py
            --torch ${TP_TORCH_DIR} --out ${TP_GEN}/meta_rows.inc
    DEPENDS ${CMAKE_SOURCE_DIR}/tools/gen_meta.py ${TP_OPS}
    VERBATIM)
  set(TP_GENERATED ${TP_GEN}/meta_rows.inc)
endif()
