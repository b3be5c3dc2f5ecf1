// Where vendors' libraries lie when the dynamic linker does not know: toolkits' folders and Python wheels.
#pragma once

#include <string>
#include <vector>

namespace ingot::gpu {

// Folders that exist: of CUDA_HOME, CUDA_PATH and /usr/local/cuda; of CONDA_PREFIX; nvidia/*/lib of the site folders.
std::vector<std::string> nvidia_folders();

// Folders that exist: of ROCM_PATH and /opt/rocm; _rocm_sdk_*/lib and torch/lib of the site folders.
std::vector<std::string> amd_folders();

// Where Python packages lie, found without running Python: the folders of VIRTUAL_ENV, CONDA_PREFIX, the python3 on
// PATH (its links followed, too) and the user's own.
std::vector<std::string> site_folders();

}  // namespace ingot::gpu
