# Compiler flags shared by every target.
option(INGOT_TESTS "Build the tests" ON)
option(INGOT_FUZZ "Build the fuzz targets of tests/fuzz (clang)" OFF)
set(INGOT_SANITIZE "" CACHE STRING "Sanitizers to build with: empty, address (with undefined), or thread")

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -g1")
set(CMAKE_CXX_FLAGS_DEBUG "-O0 -g")

add_library(ingot_flags INTERFACE)
# Rounding is part of the contract: the compiler may not fuse or reorder floating point on its own.
target_compile_options(ingot_flags INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion
  -Wnon-virtual-dtor -Woverloaded-virtual -Werror -ffp-contract=off)
if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  target_compile_options(ingot_flags INTERFACE -Wthread-safety -Wimplicit-fallthrough -Wno-missing-designated-field-initializers)
else()
  target_compile_options(ingot_flags INTERFACE -Wno-missing-field-initializers)
endif()

if(INGOT_SANITIZE STREQUAL "address")
  # Undefined behaviour but what the address sanitizer sees where it matters, at the access: a fifth less to compile.
  add_compile_options(-fsanitize=address,undefined -fno-sanitize=null,object-size,pointer-overflow,vptr,function
    -fno-sanitize-recover=all -fno-omit-frame-pointer -O1)
  add_link_options(-fsanitize=address,undefined)
elseif(INGOT_SANITIZE STREQUAL "thread")
  add_compile_options(-fsanitize=thread -fno-omit-frame-pointer -O1)
  add_link_options(-fsanitize=thread)
elseif(NOT INGOT_SANITIZE STREQUAL "")
  message(FATAL_ERROR "INGOT_SANITIZE is '${INGOT_SANITIZE}'; it may be empty, address or thread")
endif()

if(INGOT_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    message(FATAL_ERROR "INGOT_FUZZ needs clang (libFuzzer); the compiler is ${CMAKE_CXX_COMPILER_ID}")
  endif()
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()

find_program(CCACHE ccache)
if(CCACHE)
  # Any checkout may use what another compiled: paths are hashed relative to this one, and a precompiled header by what its
  # text becomes (a file ".sum" beside it, see ingot_library), not by its bytes, which hold the paths of its checkout.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros
    CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1 CCACHE_PCH_EXTSUM=1 ${CCACHE})
  if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    add_compile_options("SHELL:-Xclang -fno-pch-timestamp")
    # CMake's own form passes the header through -Xclang, whose arguments ccache does not make relative.
    set(CMAKE_CXX_COMPILE_OPTIONS_USE_PCH -include <PCH_HEADER>)
  endif()
endif()
execute_process(COMMAND ${CMAKE_CXX_COMPILER} -std=c++20 -E -P -x c++ ${CMAKE_SOURCE_DIR}/src/base/pch.h
  OUTPUT_VARIABLE INGOT_PCH_SUM ERROR_QUIET COMMAND_ERROR_IS_FATAL ANY)
string(MD5 INGOT_PCH_SUM "${INGOT_PCH_SUM}")
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/base/pch.h)
find_program(LLD NAMES ld.lld-19 ld.lld)
if(LLD AND CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  add_link_options(--ld-path=${LLD})
endif()
