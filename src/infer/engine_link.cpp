#include "infer/engine_link.h"

#include "base/error.h"

namespace ingot::infer {

namespace {

struct Header {
  EngineMessage message{};
  int64_t bytes = 0;
};

}  // namespace

void EngineLink::send(EngineMessage message, const std::vector<std::span<const std::byte>>& parts) const {
  if (alone()) return;
  std::vector<std::byte> bytes;
  for (const std::span<const std::byte> part : parts) bytes.insert(bytes.end(), part.begin(), part.end());
  Header header{message, std::ssize(bytes)};
  group_.begin_broadcast(std::as_writable_bytes(std::span(&header, 1)), 0).wait();
  if (!bytes.empty()) group_.begin_broadcast(bytes, 0).wait();
}

EngineLink::Received EngineLink::receive() const {
  Header header;
  group_.begin_broadcast(std::as_writable_bytes(std::span(&header, 1)), 0).wait();
  Received received{header.message, std::vector<std::byte>(static_cast<size_t>(header.bytes))};
  if (header.bytes > 0) group_.begin_broadcast(received.bytes, 0).wait();
  return received;
}

std::span<const std::byte> take_bytes(std::span<const std::byte>& from, size_t count) {
  if (count > from.size()) throw_error(ErrorKind::internal, "a message of the engine is too short");
  const std::span<const std::byte> taken = from.first(count);
  from = from.subspan(count);
  return taken;
}

}  // namespace ingot::infer
