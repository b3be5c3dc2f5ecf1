// Paths that the tests read. CMake writes them into one source file: as compile definitions they would differ between
// checkouts, and ccache could not share objects.
#pragma once

namespace ingot {

extern const char* const test_data;         // tests/golden
extern const char* const source_root;       // the checkout
extern const char* const ingot_executable;  // of this build
extern const char* const fake_nccl;         // of this build: the stand-in for NCCL on simulated devices

}  // namespace ingot
