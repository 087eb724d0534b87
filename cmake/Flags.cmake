# tf_hps_flags: how all of this project's own C++ is compiled.

add_library(tf_hps_flags INTERFACE)
target_include_directories(tf_hps_flags INTERFACE "${CMAKE_CURRENT_SOURCE_DIR}")
target_compile_options(tf_hps_flags INTERFACE
  -Wall -Wextra -Wno-unused-parameter -Wno-sign-compare
  # A row's bits must not depend on which instructions a build or a machine has: no fused multiply-add unless written.
  -ffp-contract=off
  $<$<CXX_COMPILER_ID:Clang>:-Wthread-safety>)
if(TF_HPS_WERROR)
  target_compile_options(tf_hps_flags INTERFACE -Werror)
endif()

if(TF_HPS_SANITIZE STREQUAL "address")
  set(sanitizers address,undefined)
else()
  set(sanitizers "${TF_HPS_SANITIZE}")
endif()
if(sanitizers)
  target_compile_options(tf_hps_flags INTERFACE
    -fsanitize=${sanitizers} -fno-sanitize-recover=all -fno-omit-frame-pointer -O1 -g
    # vptr needs type_info, which LevelDB lacks; with the others g++ 12 rejects constant expressions in Abseil, and
    # the address sanitizer reports a use of null all the same.
    -fno-sanitize=vptr,null,nonnull-attribute,returns-nonnull-attribute)
  target_link_options(tf_hps_flags INTERFACE -fsanitize=${sanitizers})
  # Abseil's hash tables get another layout under AddressSanitizer, which TensorFlow's copy of Abseil does not have.
  target_compile_definitions(tf_hps_flags INTERFACE NDEBUG_SANITIZER)
else()
  target_link_options(tf_hps_flags INTERFACE -Wl,-z,defs)
endif()
