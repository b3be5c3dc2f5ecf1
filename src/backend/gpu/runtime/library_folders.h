// Where to look for vendors' libraries that the dynamic linker does not find: the toolkits' folders and Python wheels.
#pragma once

#include <string>
#include <vector>

namespace ingot::gpu {

// Existing folders: of CUDA_HOME, CUDA_PATH and /usr/local/cuda; of CONDA_PREFIX; nvidia/*/lib of the site folders.
std::vector<std::string> nvidia_folders();

// Existing folders: of ROCM_PATH and /opt/rocm; _rocm_sdk_*/lib and torch/lib of the site folders.
std::vector<std::string> amd_folders();

// Python's site-packages and dist-packages folders, found without running Python: those of VIRTUAL_ENV, CONDA_PREFIX,
// the python3 on PATH (also after following links) with /usr/local, and the user's own.
std::vector<std::string> site_folders();

}  // namespace ingot::gpu
