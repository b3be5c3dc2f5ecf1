// Looking for a vendor's library.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/shared_library.h"

namespace ingot::gpu {

struct LibraryFacts {
  std::string name;     // "cuBLASLt"
  std::string path;     // where it was found; empty when it was not
  std::string version;  // empty when only a device can tell
  std::string reason;   // why it cannot be used here; empty when nothing speaks against it
};

struct LibraryNames {
  const char* variable;                   // the environment variable that names a file in place of these
  std::vector<std::string> names;         // newest first
  std::vector<std::string> (*folders)();  // looked in when the dynamic linker knows none of the names
};

// Tries the files in order until `use` takes one, which it refuses by an Error. The reason why none was taken, that of
// the newest library that was there, or empty.
std::string try_libraries(const LibraryNames& names, const std::function<void(std::unique_ptr<SharedLibrary>)>& use);

}  // namespace ingot::gpu
