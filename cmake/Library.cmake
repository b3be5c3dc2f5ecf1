# ingot_precompile(TARGET [HEADER VERSION]...): base/pch.h and each HEADER are precompiled with TARGET's flags. The file .sum
# has what ccache takes for their contents (see Options.cmake).
function(ingot_precompile target)
  # In angle brackets: with an absolute path no checkout could use objects that ccache has from another.
  set(headers <base/pch.h>)
  set(rest ${ARGN})
  while(rest)
    list(POP_FRONT rest header version)
    list(APPEND headers <${header}>)
  endwhile()
  target_precompile_headers(${target} PRIVATE ${headers})
  file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/CMakeFiles/${target}.dir/cmake_pch.hxx.pch.sum "${INGOT_PCH_SUM}${ARGN}")
endfunction()

# ingot_share_precompiled(TARGET FLAGS [HEADER VERSION]...): the same, but compiled once for all targets with these headers
# and FLAGS: library, or test with the optimization that it is compiled with (test-O0).
function(ingot_share_precompiled target flags)
  set(headers ${ARGN})
  list(FILTER headers INCLUDE REGEX "/")
  string(MAKE_C_IDENTIFIER "pch_${flags}_${headers}" shared)
  if(NOT TARGET ${shared})
    set(empty ${CMAKE_BINARY_DIR}/precompiled.cpp)  # a target needs a source
    file(CONFIGURE OUTPUT ${empty} CONTENT "")
    add_library(${shared} OBJECT ${empty})
    target_link_libraries(${shared} PRIVATE ingot_flags ingot_base_headers)
    if(flags MATCHES "^test")
      target_link_libraries(${shared} PRIVATE GTest::gtest)
      set_target_properties(${shared} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
      target_compile_options(${shared} PRIVATE -fPIE)  # as for executables
    endif()
    if(flags STREQUAL "test-O0")
      target_compile_options(${shared} PRIVATE -O0)
    endif()
    ingot_precompile(${shared} ${ARGN})
  endif()
  target_precompile_headers(${target} REUSE_FROM ${shared})
endfunction()

# ingot_json_header(RESULT LINKED...): the JSON library's header and version where it is among LINKED. It is the most expensive
# header of all to parse, so whoever links it has it precompiled.
function(ingot_json_header result)
  set(${result} "" PARENT_SCOPE)
  if("nlohmann_json::nlohmann_json" IN_LIST ARGN)
    set(${result} nlohmann/json.hpp ${nlohmann_json_VERSION} PARENT_SCOPE)
  endif()
endfunction()

# ingot_include_root(NAME FOLDER): the interface target ingot_NAME_headers, whose include root holds src/FOLDER alone. A
# target sees the folders of the libraries that it links, so an #include of a higher layer does not compile.
function(ingot_include_root name folder)
  set(root ${CMAKE_BINARY_DIR}/src_roots/${name})
  cmake_path(GET folder PARENT_PATH parent)
  file(MAKE_DIRECTORY ${root}/${parent})
  file(CREATE_LINK ${CMAKE_SOURCE_DIR}/src/${folder} ${root}/${folder} SYMBOLIC)
  add_library(ingot_${name}_headers INTERFACE)
  target_include_directories(ingot_${name}_headers INTERFACE ${root})
endfunction()

# ingot_library(NAME [OWN_FLAGS] [FOLDER path] [ROOT path] [SUBFOLDERS paths...] [USES ingot folders...] [LINKS external targets...])
# One static library a folder, made of every .cpp directly inside it and inside its SUBFOLDERS. ROOT: where other folders
# below it are libraries of their own (models), the folder that its include root holds instead of FOLDER. OWN_FLAGS: its
# caller adds compiler flags, so that its precompiled headers are not those of the others.
function(ingot_library name)
  cmake_parse_arguments(ARG "OWN_FLAGS" "FOLDER;ROOT" "SUBFOLDERS;USES;LINKS" ${ARGN})
  if(NOT ARG_FOLDER)
    set(ARG_FOLDER ${name})
  endif()
  if(NOT ARG_ROOT)
    set(ARG_ROOT ${ARG_FOLDER})
  endif()
  ingot_include_root(${name} ${ARG_ROOT})
  set(patterns ${CMAKE_SOURCE_DIR}/src/${ARG_FOLDER}/*.cpp)
  foreach(subfolder ${ARG_SUBFOLDERS})
    list(APPEND patterns ${CMAKE_SOURCE_DIR}/src/${ARG_FOLDER}/${subfolder}/*.cpp)
  endforeach()
  file(GLOB sources CONFIGURE_DEPENDS ${patterns})
  add_library(ingot_${name} STATIC ${sources})
  target_link_libraries(ingot_${name} PUBLIC ingot_flags ingot_${name}_headers Threads::Threads)
  foreach(used ${ARG_USES})
    target_link_libraries(ingot_${name} PUBLIC ingot_${used})
  endforeach()
  # External headers are used in .cpp files only, so they are private.
  target_link_libraries(ingot_${name} PRIVATE ${ARG_LINKS})
  ingot_json_header(json ${ARG_LINKS})
  if(ARG_OWN_FLAGS)
    ingot_precompile(ingot_${name} ${json})
  else()
    ingot_share_precompiled(ingot_${name} library ${json})
  endif()
endfunction()

# ingot_test(FOLDER [COMPUTES] [USES ingot folders...] [LINKS external targets...])
# One test program a folder of tests/, made of every *_test.cpp inside it; each GoogleTest case is a CTest test. Test code
# is compiled without optimization, which halves the time to compile it: what is tested is in libraries. COMPUTES: the
# tests' own loops take time, so that they are optimized, except under sanitizers.
function(ingot_test folder)
  cmake_parse_arguments(ARG "COMPUTES" "" "USES;LINKS" ${ARGN})
  string(REPLACE "/" "_" name ${folder})
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/${folder}/*.cpp)
  if(NOT sources)
    return()
  endif()
  add_executable(test_${name} ${sources})
  target_link_libraries(test_${name} PRIVATE ingot_flags test_locations GTest::gtest GTest::gtest_main ${ARG_LINKS})
  foreach(used ${ARG_USES})
    target_link_libraries(test_${name} PRIVATE ingot_${used})
  endforeach()
  target_include_directories(test_${name} PRIVATE ${CMAKE_SOURCE_DIR})
  set(flags test)
  if(INGOT_SANITIZE OR NOT ARG_COMPUTES)
    set(flags test-O0)
    target_compile_options(test_${name} PRIVATE -O0)
  endif()
  ingot_json_header(json ${ARG_LINKS})
  ingot_share_precompiled(test_${name} ${flags} gtest/gtest.h ${GTest_VERSION} ${json})
  gtest_discover_tests(test_${name} TEST_PREFIX ${folder}. NO_PRETTY_VALUES DISCOVERY_TIMEOUT 60 PROPERTIES TIMEOUT 600)
endfunction()
