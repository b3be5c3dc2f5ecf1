// Where the tests find what they read. In one file that CMake writes: a path in the command line of every test would
// keep ccache from using what another checkout compiled.
#pragma once

namespace ingot {

extern const char* const test_data;         // tests/golden
extern const char* const source_root;       // the checkout
extern const char* const ingot_executable;  // of this build

}  // namespace ingot
