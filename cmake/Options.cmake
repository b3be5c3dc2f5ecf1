# Compiler flags shared by every target.
option(INGOT_TESTS "Build the tests" ON)
set(INGOT_SANITIZE "" CACHE STRING "Sanitizers to build with: empty, address (with undefined), or thread")

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -g1")
set(CMAKE_CXX_FLAGS_DEBUG "-O0 -g")

add_library(ingot_flags INTERFACE)
target_include_directories(ingot_flags INTERFACE ${CMAKE_SOURCE_DIR}/src)
# Rounding is part of the contract: the compiler may not fuse or reorder floating point on its own.
target_compile_options(ingot_flags INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion
  -Wnon-virtual-dtor -Woverloaded-virtual -Werror -ffp-contract=off)
if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  target_compile_options(ingot_flags INTERFACE -Wthread-safety -Wimplicit-fallthrough -Wno-missing-designated-field-initializers)
else()
  target_compile_options(ingot_flags INTERFACE -Wno-missing-field-initializers)
endif()

if(INGOT_SANITIZE STREQUAL "address")
  add_compile_options(-fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer -O1)
  add_link_options(-fsanitize=address,undefined)
elseif(INGOT_SANITIZE STREQUAL "thread")
  add_compile_options(-fsanitize=thread -fno-omit-frame-pointer -O1)
  add_link_options(-fsanitize=thread)
elseif(NOT INGOT_SANITIZE STREQUAL "")
  message(FATAL_ERROR "INGOT_SANITIZE is '${INGOT_SANITIZE}'; it may be empty, address or thread")
endif()

find_program(CCACHE ccache)
if(CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE})
endif()
find_program(LLD NAMES ld.lld-19 ld.lld)
if(LLD AND CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  add_link_options(--ld-path=${LLD})
endif()
