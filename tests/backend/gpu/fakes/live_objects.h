// Objects that a library's caller has by handles, which it makes and destroys.
#pragma once

#include <memory>
#include <mutex>
#include <unordered_map>
#include <unordered_set>
#include <utility>

namespace fake {

// Thread-safe. Memory is never freed, so that a destroyed handle does not become that of another object.
template <class T>
class LiveObjects {
 public:
  T* add(T object) {
    const std::scoped_lock lock(mutex_);
    auto made = std::make_unique<T>(std::move(object));
    T* const added = made.get();
    all_[added] = std::move(made);
    live_.insert(added);
    return added;
  }
  // False unless the handle is that of a live object.
  bool remove(const void* handle) {
    const std::scoped_lock lock(mutex_);
    return live_.erase(handle) > 0;
  }
  bool has(const void* handle) const {
    const std::scoped_lock lock(mutex_);
    return live_.count(handle) > 0;
  }

 private:
  mutable std::mutex mutex_;
  std::unordered_map<const void*, std::unique_ptr<T>> all_;
  std::unordered_set<const void*> live_;
};

}  // namespace fake
