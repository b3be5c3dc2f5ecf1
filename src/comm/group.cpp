#include "comm/group.h"

#include <cstring>

namespace ingot::comm {

Operation Group::keep(std::span<std::byte> to, std::span<const std::byte> from) {
  if (to.size() != from.size()) {
    throw_error(ErrorKind::internal, "{} bytes of one rank are {} bytes of all", from.size(), to.size());
  }
  if (!to.empty()) std::memmove(to.data(), from.data(), to.size());
  return {};
}

Operation Group::begin_send(std::span<const std::byte> data, int to) const {
  if (alone()) throw_error(ErrorKind::internal, "{} bytes are sent in a group of one", data.size());
  return Operation(channel_->send(data.data(), data.size(), to));
}

Operation Group::begin_receive(std::span<std::byte> data, int from) const {
  if (alone()) throw_error(ErrorKind::internal, "{} bytes are received in a group of one", data.size());
  return Operation(channel_->receive(data.data(), data.size(), from));
}

std::vector<std::string> Group::gather(const std::string& text) const {
  if (alone()) return {text};
  const auto places = static_cast<size_t>(size());
  std::vector<uint64_t> lengths(places);
  const uint64_t own = text.size();
  begin_all_gather(std::as_writable_bytes(std::span(lengths)), std::as_bytes(std::span(&own, 1)),
                   std::vector<size_t>(places, sizeof own))
      .wait();
  const std::vector<size_t> bytes(lengths.begin(), lengths.end());
  size_t total = 0;
  for (const size_t length : bytes) total += length;
  std::string all(total, '\0');
  begin_all_gather(std::as_writable_bytes(std::span(all)), std::as_bytes(std::span(text)), bytes).wait();
  std::vector<std::string> texts;
  size_t at = 0;
  for (const size_t length : bytes) {
    texts.push_back(all.substr(at, length));
    at += length;
  }
  return texts;
}

Group Group::split(int color, int key, const std::string& name) const {
  return alone() ? Group() : Group(channel_->split(color, key, name));
}

}  // namespace ingot::comm
