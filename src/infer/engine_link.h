// Broadcasts of batches and adapters from rank 0's engine to the other ranks of its model (infer/follower.h). Used by
// the thread that runs the engine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>
#include <vector>

#include "comm/group.h"

namespace ingot::infer {

enum class EngineMessage : int64_t {
  settings,  // EngineSettings, the first message
  adapter,   // weights for an adapter slot
  batch,     // what to compute; then all ranks compute it
  idle,      // nothing: rank 0 waits for requests; then all ranks meet at a barrier
  end,       // the engine ends: the last message
};

class EngineLink {
 public:
  explicit EngineLink(comm::Group group) : group_(std::move(group)) {}

  bool leads() const { return group_.rank() == 0; }
  bool alone() const { return group_.size() == 1; }
  // A message of these parts, one after another. Does nothing in a group of one. Errors: the group's.
  void send(EngineMessage message, const std::vector<std::span<const std::byte>>& parts = {}) const;
  void barrier() const { group_.barrier(); }

  struct Received {
    EngineMessage message{};
    std::vector<std::byte> bytes;
  };
  Received receive() const;

 private:
  comm::Group group_;
};

// The bytes of numbers, and numbers from the beginning of bytes, which it removes. ErrorKind::internal when there are
// fewer.
template <class T>
std::span<const std::byte> bytes_of(const std::vector<T>& values) {
  static_assert(std::is_trivially_copyable_v<T>);
  return std::as_bytes(std::span(values));
}
std::span<const std::byte> take_bytes(std::span<const std::byte>& from, size_t count);
template <class T>
T take(std::span<const std::byte>& from) {
  static_assert(std::is_trivially_copyable_v<T>);
  T value;
  std::memcpy(&value, take_bytes(from, sizeof value).data(), sizeof value);
  return value;
}
template <class T>
std::vector<T> take_all(std::span<const std::byte>& from, size_t count) {
  static_assert(std::is_trivially_copyable_v<T>);
  std::vector<T> values(count);
  if (count > 0) std::memcpy(values.data(), take_bytes(from, count * sizeof(T)).data(), count * sizeof(T));
  return values;
}

}  // namespace ingot::infer
