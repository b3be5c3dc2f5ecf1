// The search for a vendor's library.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/shared_library.h"

namespace ingot::gpu {

struct LibraryInfo {
  std::string name;     // "cuBLASLt"
  std::string path;     // where it was found; empty if it was not
  std::string version;  // empty if only a device can report it
  std::string reason;   // why it cannot be used here; empty if no obstacle is known
};

struct LibraryNames {
  const char* variable;                   // environment variable that names a file to load instead
  std::vector<std::string> names;         // file names, newest first
  std::vector<std::string> (*folders)();  // searched if the dynamic linker knows none of the names
};

// Tries the files in order until `use` accepts one; `use` rejects a file by throwing an Error. Returns empty on
// success. Otherwise returns the error of the first (newest) file that was found, or, if none was found, why the first
// one was not.
std::string try_libraries(const LibraryNames& names, const std::function<void(std::unique_ptr<SharedLibrary>)>& use);

}  // namespace ingot::gpu
