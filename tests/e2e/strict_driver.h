// Commands on the strict driver (tests/backend/gpu/strict).
#pragma once

#include <string>

#include "tests/locations.h"

namespace ingot::e2e {

// Assignments for a shell, before a command: both drivers are the strict one with these settings (strict/settings.h),
// the vendors' other libraries are missing, and decoding uses graphs. The command is `ingot_with_test_code`.
inline std::string on_strict_driver(const std::string& settings = "") {
  std::string all = "INGOT_CUDA_LIBRARY='" + std::string(strict_cuda) + "' INGOT_HIP_LIBRARY='" + strict_hip +
                    "' INGOT_GRAPHS=1 STRICT_DRIVER='" + settings + "' ";
  for (const char* library : {"CUBLASLT", "CUDNN", "HIPBLASLT", "NCCL", "RCCL", "NVML", "ROCM_SMI"}) {
    all += "INGOT_" + std::string(library) + "_LIBRARY=/nowhere ";
  }
  return all;
}

}  // namespace ingot::e2e
