# The extension module torch_pjrt._C: the two rooms that see torch, over the core.
# torch's include and library folders are used directly: find_package(Torch) takes seconds and adds flags.
if(NOT TP_TORCH_DIR)
  message(FATAL_ERROR
    "torch not found in the build Python ${Python_EXECUTABLE}: run `make setup`, or pip install torch==2.13.0")
endif()

add_library(_C MODULE ${TP_TORCH} ${TP_BIND} ${TP_GENERATED})
target_include_directories(_C SYSTEM PRIVATE
  ${TP_TORCH_DIR}/include ${TP_TORCH_DIR}/include/torch/csrc/api/include ${TP_PYTHON_INCLUDE})
target_compile_definitions(_C PRIVATE _GLIBCXX_USE_CXX11_ABI=1 TORCH_EXTENSION_NAME=_C)
target_link_directories(_C PRIVATE ${TP_TORCH_DIR}/lib)
target_link_libraries(_C PRIVATE tp_core torch torch_cpu c10 torch_python)
target_link_options(_C PRIVATE -Wl,--exclude-libs,ALL)
if(TP_TORCH)
  target_precompile_headers(_C PRIVATE <torch/library.h>)
endif()
set_target_properties(_C PROPERTIES
  PREFIX "" SUFFIX "${TP_PYTHON_SUFFIX}"
  BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH "$ORIGIN/../torch/lib")
if(TP_IN_PLACE)
  set_target_properties(_C PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${CMAKE_SOURCE_DIR}/torch_pjrt)
endif()

install(TARGETS _C LIBRARY DESTINATION torch_pjrt)
if(NOT TP_IN_PLACE)
  install(FILES ${TP_GEN}/_build_info.py DESTINATION torch_pjrt)
endif()
