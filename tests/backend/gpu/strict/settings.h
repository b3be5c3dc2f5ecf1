// What the strict driver pretends to be. From the environment variable STRICT_DRIVER: "key=value,key=value".
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace strict {

struct Settings {
  int devices = 2;
  size_t memory = size_t{1} << 30;     // bytes of each device
  std::string architecture = "sm_90";  // `arch`; gfx942 for HIP
  int version_major = 13;              // `version=13.1`: of CUDA, or of ROCm (7.0)
  int version_minor = 1;
  int64_t delay_us = 0;    // before each command of a stream
  int64_t lost_after = 0;  // commands after which the device stops to respond; 0: never
};

// Ends the process, with a message, where the variable is not understood.
Settings settings_of_environment(bool hip);

}  // namespace strict
