// A shared library that is opened at run time, if it exists.
#pragma once

#include <string>
#include <vector>

namespace ingot {

class SharedLibrary {
 public:
  // Opens the first of `names` that can be opened: first as the dynamic linker finds the plain names, then in each of
  // `folders`. If none can be opened the library is empty, and reason() says why.
  SharedLibrary(const std::vector<std::string>& names, const std::vector<std::string>& folders);
  SharedLibrary(const SharedLibrary&) = delete;
  SharedLibrary& operator=(const SharedLibrary&) = delete;
  ~SharedLibrary();

  explicit operator bool() const { return handle_ != nullptr; }
  const std::string& path() const { return path_; }
  const std::string& reason() const { return reason_; }

  bool has(const char* name) const { return find(name) != nullptr; }
  // The function `name`; `bind` sets a pointer to it. ErrorKind::unavailable, naming library and function, when it does
  // not exist.
  template <class Function>
  Function* function(const char* name) const {
    return reinterpret_cast<Function*>(address(name));
  }
  template <class Function>
  void bind(Function*& pointer, const char* name) const {
    pointer = function<Function>(name);
  }

 private:
  void* find(const char* name) const;
  void* address(const char* name) const;
  void* handle_ = nullptr;
  std::string path_;
  std::string reason_;
};

}  // namespace ingot
