// Paths that the tests read. CMake writes them into one source file: as compile definitions they would differ between
// checkouts, and ccache could not share objects.
#pragma once

namespace ingot {

extern const char* const test_data;         // tests/golden
extern const char* const source_root;       // the checkout
extern const char* const ingot_executable;  // of this build
extern const char* const fake_cublaslt;     // of this build: the stand-in for cuBLASLt
extern const char* const fake_nccl;         // of this build: the stand-in for NCCL on simulated devices
// The strict driver, and the executable with code objects for it (tests/backend/gpu/strict).
extern const char* const strict_cuda;
extern const char* const strict_hip;
extern const char* const test_libraries;  // the folder with libstrict_cublaslt.so and the other libraries on it
extern const char* const ingot_with_test_code;

}  // namespace ingot
