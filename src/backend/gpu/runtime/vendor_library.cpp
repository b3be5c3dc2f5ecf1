#include "backend/gpu/runtime/vendor_library.h"

#include "base/environment.h"
#include "base/error.h"

namespace ingot::gpu {

std::string try_libraries(const LibraryNames& names, const std::function<void(std::unique_ptr<SharedLibrary>)>& use) {
  const char* named = environment(names.variable);
  const std::vector<std::string> files = named != nullptr ? std::vector<std::string>{named} : names.names;
  const std::vector<std::string> folders = named != nullptr ? std::vector<std::string>{} : names.folders();
  std::string absent;
  std::string refused;
  for (const std::string& file : files) {
    auto library = std::make_unique<SharedLibrary>(std::vector<std::string>{file}, folders);
    if (!*library) {
      if (absent.empty()) absent = library->reason();
      continue;
    }
    try {
      use(std::move(library));
      return {};
    } catch (const Error& error) {
      if (refused.empty()) refused = error.message();
    }
  }
  return refused.empty() ? absent : refused;
}

}  // namespace ingot::gpu
