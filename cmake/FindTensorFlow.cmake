# Finds the TensorFlow of ${Python3_EXECUTABLE}, or the one at TF_HPS_TENSORFLOW_DIR, and defines
#   TensorFlow::headers    include directories and the ABI's definitions
#   TensorFlow::framework  the same and libtensorflow_framework.so.2, which also holds Abseil
#   TensorFlow_DIR         the folder of the Python package

set(TF_HPS_TENSORFLOW_DIR "" CACHE PATH "Folder of the tensorflow package; empty: ask Python3_EXECUTABLE")

if(TF_HPS_TENSORFLOW_DIR)
  set(TensorFlow_DIR "${TF_HPS_TENSORFLOW_DIR}")
  set(TensorFlow_VERSION "")
else()
  find_package(Python3 REQUIRED COMPONENTS Interpreter)
  execute_process(
    COMMAND "${Python3_EXECUTABLE}" "${CMAKE_CURRENT_LIST_DIR}/../scripts/find_tensorflow.py"
    OUTPUT_VARIABLE found ERROR_VARIABLE reason RESULT_VARIABLE failed
    OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_STRIP_TRAILING_WHITESPACE)
  if(failed)
    message(FATAL_ERROR "${reason}\nor name another Python with -DPython3_EXECUTABLE=/path/to/python3")
  endif()
  string(REPLACE "\n" ";" found "${found}")
  list(GET found 0 TensorFlow_DIR)
  list(GET found 1 TensorFlow_VERSION)
endif()
find_file(TensorFlow_LIBRARY libtensorflow_framework.so.2 PATHS "${TensorFlow_DIR}" NO_DEFAULT_PATH NO_CACHE)

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(TensorFlow
  REQUIRED_VARS TensorFlow_LIBRARY TensorFlow_DIR VERSION_VAR TensorFlow_VERSION)

if(TensorFlow_VERSION AND NOT TensorFlow_VERSION MATCHES "^2\\.21(\\.|$)")
  message(FATAL_ERROR "${TensorFlow_DIR} is TensorFlow ${TensorFlow_VERSION}; this version of tf_hps is "
    "written for 2.21: pip install 'tensorflow==2.21.*'")
endif()

# SYSTEM: TensorFlow's headers do not pass our warnings.
add_library(TensorFlow::headers INTERFACE IMPORTED)
target_include_directories(TensorFlow::headers SYSTEM INTERFACE "${TensorFlow_DIR}/include")
target_compile_definitions(TensorFlow::headers INTERFACE _GLIBCXX_USE_CXX11_ABI=1 EIGEN_MAX_ALIGN_BYTES=64)

add_library(TensorFlow::framework SHARED IMPORTED)
set_target_properties(TensorFlow::framework PROPERTIES
  IMPORTED_LOCATION "${TensorFlow_LIBRARY}" IMPORTED_SONAME libtensorflow_framework.so.2)
target_link_libraries(TensorFlow::framework INTERFACE TensorFlow::headers)
