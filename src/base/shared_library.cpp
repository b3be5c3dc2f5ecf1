#include "base/shared_library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <filesystem>
#include <system_error>

#include "base/error.h"

namespace ingot {

SharedLibrary::SharedLibrary(const std::vector<std::string>& names, const std::vector<std::string>& folders) {
  std::vector<std::string> candidates = names;
  for (const std::string& folder : folders) {
    for (const std::string& name : names) candidates.push_back(fmt::format("{}/{}", folder, name));
  }
  for (const std::string& candidate : candidates) {
    std::error_code none;  // dlopen reports other files that are not libraries, but would block on a pipe
    if (std::filesystem::is_fifo(candidate, none)) {
      if (reason_.empty()) reason_ = candidate + ": is a pipe, not a library";
      continue;
    }
    // Vendors' libraries have threads and memory of their own until the process ends, and must not be unloaded.
    handle_ = dlopen(candidate.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (handle_ != nullptr) {
      path_ = candidate;
      return;
    }
    // The error of the first name, or a later one that says more than that there is no such file.
    const char* error = dlerror();
    const std::string text = error != nullptr ? error : candidate + ": unknown reason";
    if (reason_.empty() || text.find("No such file") == std::string::npos) reason_ = text;
  }
}

SharedLibrary::~SharedLibrary() {
  if (handle_ != nullptr) dlclose(handle_);
}

void* SharedLibrary::find(const char* name) const { return dlsym(handle_, name); }

void* SharedLibrary::address(const char* name) const {
  void* found = find(name);
  if (found == nullptr) throw_error(ErrorKind::unavailable, "{} has no function {}", path_, name);
  return found;
}

}  // namespace ingot
