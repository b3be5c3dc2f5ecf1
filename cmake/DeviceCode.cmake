# Device code: every *.gpu.cpp compiled by nvcc to PTX for each NVIDIA architecture and assembled, joined to a fatbin with
# the PTX for later architectures, and by clang to a code object for each AMD architecture, without any file of ROCm's; all
# of it embedded in the executable (code_objects.h). INGOT_GPU: auto takes the compilers that are there, none takes none,
# all wants every one. The target `device_code` makes these files alone, in src/backend/gpu/device of the build folder:
# STEM.TARGET. tools/emulate_ptx.py runs the PTX, STEM.compute_N for sm_N.
set(INGOT_GPU none CACHE STRING "Device code to build in: auto, none or all")
set(cuda_architectures sm_80 sm_90 sm_100)
list(TRANSFORM cuda_architectures REPLACE sm_ compute_ OUTPUT_VARIABLE cuda_ptx)
set(cuda_embedded_ptx compute_100)
set(amd_architectures gfx90a gfx942 gfx1100)        # clang 19 knows these
set(amd_late_architectures gfx950)                  # and clang 22 this one

find_program(NVCC nvcc)
find_program(CLANG_AMD NAMES clang++-19)
find_program(CLANG_AMD_LATE NAMES clang++-22)
if(NVCC AND NOT (FATBINARY AND PTXAS))  # beside the compiler itself; what is found may be a script that calls it
  execute_process(COMMAND ${NVCC} --dryrun -x cu -cubin -o none.cubin none.cu OUTPUT_VARIABLE dryrun ERROR_VARIABLE dryrun)
  string(REGEX MATCH "_HERE_=([^\n]*)" found "${dryrun}")
  find_program(FATBINARY fatbinary HINTS ${CMAKE_MATCH_1})
  find_program(PTXAS ptxas HINTS ${CMAKE_MATCH_1})
endif()

# Standard C++20 of the host build, its warnings, and its rule that the compiler fuses nothing.
set(amd_flags -x hip --cuda-device-only -nogpuinc -nogpulib -mcode-object-version=5 --no-gpu-bundle-output -std=c++20 -O3
  -ffp-contract=off -Wall -Wextra -Wshadow -Werror)
set(cuda_flags -x cu -std=c++20 -O3 --fmad=false -Werror all-warnings)

function(ingot_check_device_compilers)
  if(NOT INGOT_GPU MATCHES "^(auto|none|all)$")
    message(FATAL_ERROR "INGOT_GPU is '${INGOT_GPU}'; it may be auto, none or all")
  endif()
  if(INGOT_GPU STREQUAL "all")
    foreach(tool NVCC FATBINARY PTXAS CLANG_AMD CLANG_AMD_LATE)
      if(NOT ${tool})
        message(FATAL_ERROR "INGOT_GPU=all: no nvcc (with its fatbinary and ptxas), clang++-19 or clang++-22 was found (${tool})")
      endif()
    endforeach()
  endif()
endfunction()

# clang 22 writes no list of dependencies of device code: all headers that device code may include stand for it.
file(GLOB_RECURSE device_headers CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/backend/gpu/*.h)
list(FILTER device_headers EXCLUDE REGEX "/(runtime|sim)/[^/]*$")

# ingot_cuda_target(RESULT STEM ARCHITECTURE): what STEM.gpu.cpp is compiled for. Files *_sm90.gpu.cpp have instructions of
# sm_90a, whose code runs on compute capability 9.0 alone, and are compiled for it instead of sm_90. No GPU has another 9.x.
function(ingot_cuda_target result stem architecture)
  if(architecture STREQUAL "sm_90" AND stem MATCHES "_sm90$")
    set(architecture sm_90a)
  endif()
  set(${result} ${architecture} PARENT_SCOPE)
endfunction()

# ingot_assemble_ptx(STEM ARCHITECTURE): makes STEM.sm_N from STEM.compute_N, by the command of nvcc.
function(ingot_assemble_ptx stem architecture)
  get_filename_component(name ${stem} NAME)
  string(REPLACE sm_ compute_ ptx ${architecture})
  ingot_cuda_target(target ${stem} ${architecture})
  add_custom_command(OUTPUT ${stem}.${architecture}
    COMMAND ${PTXAS} --warning-as-error -arch=${target} -m64 --fmad false ${stem}.${ptx} -o ${stem}.${architecture}
    DEPENDS ${stem}.${ptx} COMMENT "Device code ${name}.gpu.cpp for ${architecture}" VERBATIM)
endfunction()

# ingot_device_compilation(OUTPUT SOURCE ARCHITECTURE): the command that makes OUTPUT; compilers go through ccache.
function(ingot_device_compilation output source architecture)
  if(architecture MATCHES "^gfx")
    set(compiler ${CLANG_AMD})
    if(architecture IN_LIST amd_late_architectures)
      set(compiler ${CLANG_AMD_LATE})
    endif()
    set(command ${compiler} ${amd_flags} --offload-arch=${architecture})
  else()
    string(REPLACE compute_ sm_ architecture ${architecture})
    string(REGEX REPLACE ".gpu.cpp$" "" stem ${source})
    ingot_cuda_target(target ${stem} ${architecture})
    string(REPLACE sm_ compute_ target ${target})
    set(command ${NVCC} -ptx ${cuda_flags} -arch=${target})
  endif()
  if(CCACHE)
    list(PREPEND command ${CMAKE_COMMAND} -E env ${CCACHE})
  endif()
  get_filename_component(name ${source} NAME)
  add_custom_command(OUTPUT ${output} COMMAND ${command} -I${CMAKE_SOURCE_DIR}/src -o ${output} -c ${source}
    DEPENDS ${source} ${device_headers} COMMENT "Device code ${name} for ${architecture}" VERBATIM)
endfunction()

# ingot_fatbin(OUTPUT STEM): joins the files STEM.ARCHITECTURE of all NVIDIA architectures, and the PTX for later ones.
function(ingot_fatbin output stem)
  set(images)
  set(parts)
  foreach(architecture ${cuda_architectures} ${cuda_embedded_ptx})
    ingot_cuda_target(target ${stem} ${architecture})
    string(REGEX MATCH "[0-9]+a?$" number ${target})
    set(kind elf)
    if(architecture STREQUAL cuda_embedded_ptx)
      set(kind ptx)
    endif()
    list(APPEND images --image3=kind=${kind},sm=${number},file=${stem}.${architecture})
    list(APPEND parts ${stem}.${architecture})
  endforeach()
  get_filename_component(name ${output} NAME)
  add_custom_command(OUTPUT ${output} COMMAND ${FATBINARY} --create=${output} -64 ${images} DEPENDS ${parts}
    COMMENT "Device code ${name}" VERBATIM)
endfunction()

# ingot_device_code(TARGET FILE...): compiles each FILE and adds a source to TARGET that embeds the results.
function(ingot_device_code target)
  ingot_check_device_compilers()
  set(folder ${CMAKE_CURRENT_BINARY_DIR}/device)
  file(MAKE_DIRECTORY ${folder})
  set(compiled)
  set(embedded)
  if(NOT INGOT_GPU STREQUAL "none")
    if(NVCC AND FATBINARY AND PTXAS)
      list(APPEND compiled ${cuda_architectures} ${cuda_ptx})
      list(APPEND embedded cuda)
    endif()
    if(CLANG_AMD)
      list(APPEND compiled ${amd_architectures})
      list(APPEND embedded ${amd_architectures})
    endif()
    if(CLANG_AMD_LATE)
      list(APPEND compiled ${amd_late_architectures})
      list(APPEND embedded ${amd_late_architectures})
    endif()
  endif()
  message(STATUS "Device code for: ${compiled}")
  set(blocks)
  set(entries)
  set(outputs)
  foreach(source ${ARGN})
    get_filename_component(name ${source} NAME)
    string(REPLACE ".gpu.cpp" "" stem ${name})
    foreach(architecture ${compiled})
      if(architecture MATCHES "^sm_")
        ingot_assemble_ptx(${folder}/${stem} ${architecture})
      else()
        ingot_device_compilation(${folder}/${stem}.${architecture} ${source} ${architecture})
      endif()
    endforeach()
    if("cuda" IN_LIST embedded)
      ingot_fatbin(${folder}/${stem}.cuda ${folder}/${stem})
    endif()
    foreach(architecture ${embedded})
      set(output ${folder}/${stem}.${architecture})
      set(symbol ingot_code_${stem}_${architecture})
      string(APPEND blocks "extern \"C\" const unsigned char ${symbol}[], ${symbol}_end[];\n"
        "asm(\".pushsection .rodata\\n.balign 64\\n${symbol}:\\n.incbin \\\"${output}\\\"\\n${symbol}_end:\\n.popsection\\n\");\n")
      string(APPEND entries "    {\"${name}\", \"${architecture}\", ${symbol}, ${symbol}_end},\n")
      list(APPEND outputs ${output})
    endforeach()
  endforeach()
  add_custom_target(device_code DEPENDS ${outputs})
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
