// What the handles of the strict driver point to. Objects are never freed, so that the use of a destroyed handle, of
// one of another kind, and of a pointer that never was a handle are distinguished.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tests/backend/gpu/strict/gpu.h"
#include "tests/backend/gpu/strict/image.h"

namespace strict {

struct Object {
  int device = 0;
  bool live = true;
  virtual ~Object() = default;
};

struct Context : Object {};

struct Capture {
  std::thread::id thread;
  std::vector<Command> commands;
  bool valid = true;
};
struct Stream : Object {
  uint32_t number = 0;
  std::optional<Capture> capture;
  std::vector<std::pair<Mark, uintptr_t>> staged;  // copies of pageable memory, and when they may be freed
};
struct Event : Object {
  std::optional<Mark> recorded;
};
struct Graph : Object {
  std::vector<Command> commands;
};
struct ExecutableGraph : Object {
  std::vector<Command> commands;
};
struct Module : Object {
  Image image;
};
struct Function : Object {
  std::string name;
  uint32_t args_bytes = 0;
  size_t max_dynamic_shared = size_t{48} << 10;
};

class Objects {
 public:
  template <class T>
  T* add(int device) {
    auto object = std::make_unique<T>();
    object->device = device;
    T* const added = object.get();
    all_[added] = std::move(object);
    return added;
  }
  // Null unless the handle is that of a live T.
  template <class T>
  T* find(void* handle) const {
    const auto found = all_.find(handle);
    T* object = found == all_.end() ? nullptr : dynamic_cast<T*>(found->second.get());
    return object != nullptr && object->live ? object : nullptr;
  }
  template <class Visit>
  void for_each_stream(int device, Visit visit) const {
    for (const auto& [handle, object] : all_) {
      auto* stream = dynamic_cast<Stream*>(object.get());
      if (stream != nullptr && stream->device == device) visit(*stream);
    }
  }

 private:
  std::unordered_map<void*, std::unique_ptr<Object>> all_;
};

}  // namespace strict
