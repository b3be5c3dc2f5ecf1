# Device code: every *.gpu.cpp compiled by nvcc to a fatbin (code for the architectures below, PTX of the last for later
# ones) and by clang to a code object for each AMD architecture, without any file of ROCm's; all of it embedded in the
# executable (code_objects.h). INGOT_GPU: auto takes the compilers that are there, none takes none, all wants every one.
set(INGOT_GPU auto CACHE STRING "Device code to build in: auto, none or all")
set(cuda_architectures 80 90 100)
set(amd_architectures gfx90a gfx942 gfx1100)        # clang 19 knows these
set(amd_late_architectures gfx950)                  # and clang 22 this one

find_program(NVCC nvcc)
find_program(CLANG_AMD NAMES clang++-19)
find_program(CLANG_AMD_LATE NAMES clang++-22)

# Standard C++20 of the host build, its warnings, and its rule that the compiler fuses nothing.
set(amd_flags -x hip --cuda-device-only -nogpuinc -nogpulib -mcode-object-version=5 --no-gpu-bundle-output -std=c++20 -O3
  -ffp-contract=off -Wall -Wextra -Wshadow -Werror)
set(cuda_flags -x cu -fatbin -std=c++20 -O3 --fmad=false -Werror all-warnings)
foreach(architecture ${cuda_architectures})
  list(APPEND cuda_flags -gencode arch=compute_${architecture},code=sm_${architecture})
  set(cuda_last ${architecture})
endforeach()
list(APPEND cuda_flags -gencode arch=compute_${cuda_last},code=compute_${cuda_last})

function(ingot_check_device_compilers)
  if(NOT INGOT_GPU MATCHES "^(auto|none|all)$")
    message(FATAL_ERROR "INGOT_GPU is '${INGOT_GPU}'; it may be auto, none or all")
  endif()
  if(INGOT_GPU STREQUAL "all")
    foreach(tool NVCC CLANG_AMD CLANG_AMD_LATE)
      if(NOT ${tool})
        message(FATAL_ERROR "INGOT_GPU=all: no nvcc, clang++-19 or clang++-22 was found (${tool})")
      endif()
    endforeach()
  endif()
endfunction()

# ingot_device_code(TARGET FILE...): compiles each FILE and adds a source to TARGET that embeds the results.
function(ingot_device_code target)
  ingot_check_device_compilers()
  set(folder ${CMAKE_CURRENT_BINARY_DIR}/device)
  file(MAKE_DIRECTORY ${folder})
  set(launcher)
  if(CCACHE)
    set(launcher ${CMAKE_COMMAND} -E env ${CCACHE})
  endif()
  set(blocks)
  set(entries)
  set(outputs)
  set(built)
  foreach(source ${ARGN})
    get_filename_component(name ${source} NAME)
    string(REPLACE ".gpu.cpp" "" stem ${name})
    set(targets)
    if(NOT INGOT_GPU STREQUAL "none")
      if(NVCC)
        list(APPEND targets cuda)
      endif()
      if(CLANG_AMD)
        list(APPEND targets ${amd_architectures})
      endif()
      if(CLANG_AMD_LATE)
        list(APPEND targets ${amd_late_architectures})
      endif()
    endif()
    foreach(architecture ${targets})
      set(output ${folder}/${stem}.${architecture})
      if(architecture STREQUAL "cuda")
        set(command ${NVCC} ${cuda_flags} -I${CMAKE_SOURCE_DIR}/src -MD -MF ${output}.d -MT ${output} -o ${output} ${source})
      else()
        set(compiler ${CLANG_AMD})
        if(architecture IN_LIST amd_late_architectures)
          set(compiler ${CLANG_AMD_LATE})
        endif()
        set(command ${launcher} ${compiler} ${amd_flags} --offload-arch=${architecture} -I${CMAKE_SOURCE_DIR}/src
          -Xclang -dependency-file -Xclang ${output}.d -Xclang -MT -Xclang ${output} -o ${output} ${source})
      endif()
      add_custom_command(OUTPUT ${output} COMMAND ${command} DEPENDS ${source} DEPFILE ${output}.d
        COMMENT "Device code ${name} for ${architecture}" VERBATIM)
      set(symbol ingot_code_${stem}_${architecture})
      string(APPEND blocks "extern \"C\" const unsigned char ${symbol}[], ${symbol}_end[];\n"
        "asm(\".pushsection .rodata\\n.balign 64\\n${symbol}:\\n.incbin \\\"${output}\\\"\\n${symbol}_end:\\n.popsection\\n\");\n")
      string(APPEND entries "    {\"${name}\", \"${architecture}\", ${symbol}, ${symbol}_end},\n")
      list(APPEND outputs ${output})
      list(APPEND built ${architecture})
    endforeach()
  endforeach()
  list(REMOVE_DUPLICATES built)
  message(STATUS "Device code for: ${built}")
  set(embedding ${folder}/code_objects.cpp)
  file(CONFIGURE OUTPUT ${embedding} @ONLY CONTENT [[// Made by cmake/DeviceCode.cmake.
#include "backend/gpu/runtime/code_objects.h"

@blocks@
namespace ingot::gpu {

std::span<const CodeObject> code_objects() {
  static const std::vector<CodeObject> all = {
@entries@  };
  return all;
}

}  // namespace ingot::gpu
]])
  set_source_files_properties(${embedding} PROPERTIES OBJECT_DEPENDS "${outputs}")
  target_sources(${target} PRIVATE ${embedding})
endfunction()
