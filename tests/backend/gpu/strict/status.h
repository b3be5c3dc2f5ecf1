// The codes of CUresult (CUDA Driver API, "Data types used by CUDA driver") and of hipError_t (HIP Runtime API, "Error
// Handling"), which have the same values for the same errors.
#pragma once

namespace strict {

using Status = int;
inline constexpr Status success = 0;
inline constexpr Status invalid_value = 1;
inline constexpr Status out_of_memory = 2;
inline constexpr Status not_initialized = 3;
inline constexpr Status invalid_configuration = 9;  // HIP
inline constexpr Status invalid_device = 101;
inline constexpr Status invalid_image = 200;
inline constexpr Status invalid_context = 201;
inline constexpr Status no_binary_for_gpu = 209;
inline constexpr Status invalid_kernel_file = 218;  // HIP; CUDA: CUDA_ERROR_INVALID_PTX
inline constexpr Status unsupported_ptx_version = 222;
inline constexpr Status shared_object_init_failed = 303;
inline constexpr Status invalid_handle = 400;
inline constexpr Status illegal_state = 401;
inline constexpr Status not_found = 500;
inline constexpr Status not_ready = 600;
inline constexpr Status illegal_address = 700;
inline constexpr Status launch_failed = 719;
inline constexpr Status capture_unsupported = 900;
inline constexpr Status capture_invalidated = 901;
inline constexpr Status capture_isolation = 905;
inline constexpr Status capture_wrong_thread = 908;
inline constexpr Status unknown = 999;

// CUDA's name ("CUDA_ERROR_OUT_OF_MEMORY") or HIP's; null for a code that is not listed here.
const char* status_name(Status status, bool hip);

}  // namespace strict
