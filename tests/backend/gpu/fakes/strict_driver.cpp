// The strict driver, a file beside this library.
#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>

#include "tests/backend/gpu/fakes/driver.h"

namespace fake {
namespace {

struct Driver {
  int (*current_device)(int*) = nullptr;
  int (*may_allocate)(const char*) = nullptr;
  int (*share)(void**, const void*, size_t) = nullptr;
  int (*call)(const strict::LibraryCall*) = nullptr;

  Driver() {
    Dl_info own{};
    dladdr(reinterpret_cast<const void*>(&misuse), &own);
    const std::string path = std::filesystem::path(own.dli_fname).replace_filename(FAKE_STRICT_DRIVER);
    void* const library = dlopen(path.c_str(), RTLD_NOW);
    if (library == nullptr) {
      misuse("%s", dlerror());
      std::abort();
    }
    const auto bind = [&](auto*& function, const char* name) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
    };
    bind(current_device, "strict_current_device");
    bind(may_allocate, "strict_may_allocate");
    bind(share, "strict_share");
    bind(call, "strict_call_library");
  }
};

const Driver& driver() {
  static const Driver only;
  return only;
}

// STRICT_LIBRARIES=allocates: every call allocates memory, so that none can be captured.
bool allocates() {
  const char* set = std::getenv("STRICT_LIBRARIES");
  return set != nullptr && set == std::string_view("allocates");
}

}  // namespace

int current_device() {
  int device = -1;
  return driver().current_device(&device) == 0 ? device : -1;
}

bool may_allocate(const char* what) { return driver().may_allocate(what) == 0; }

void* share(const void* data, size_t bytes) {
  void* copy = nullptr;
  return driver().share(&copy, data, bytes) == 0 ? copy : nullptr;
}

bool launch(int device, void* stream, const char* function, const void* args, size_t args_bytes,
            const std::vector<DeviceMemory>& memory) {
  if (allocates() && !may_allocate("a library allocates memory")) return false;
  const strict::LibraryCall call{device, stream, function, args, args_bytes, memory.data(), memory.size()};
  return driver().call(&call) == 0;
}

}  // namespace fake
