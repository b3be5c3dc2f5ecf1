#include "comm/group.h"

#include <chrono>
#include <cstring>
#include <future>
#include <numeric>

#include "base/clock.h"
#include "base/threads.h"

namespace ingot::comm {

void Operation::wait() {
  if (pending_ == nullptr) return;
  const double from = steady_seconds();
  pending_->wait();
  pending_ = nullptr;
  *waited_ += steady_seconds() - from;
}

Operation Group::keep(std::span<std::byte> to, std::span<const std::byte> from) {
  if (to.size() != from.size()) {
    throw_error(ErrorKind::internal, "a group of one rank has an input of {} bytes and an output of {}", from.size(),
                to.size());
  }
  if (!to.empty()) std::memmove(to.data(), from.data(), to.size());
  return {};
}

Operation Group::begin_send(std::span<const std::byte> data, int to) const {
  if (alone()) throw_error(ErrorKind::internal, "cannot send {} bytes in a group of one rank", data.size());
  return pending(transport_->send(data.data(), data.size(), to));
}

Operation Group::begin_receive(std::span<std::byte> data, int from) const {
  if (alone()) throw_error(ErrorKind::internal, "cannot receive {} bytes in a group of one rank", data.size());
  return pending(transport_->receive(data.data(), data.size(), from));
}

std::vector<std::vector<std::byte>> Group::gather_bytes(std::span<const std::byte> own) const {
  if (alone()) return {{own.begin(), own.end()}};
  const std::vector<size_t> bytes = gather_one(own.size());
  std::vector<std::byte> all(std::accumulate(bytes.begin(), bytes.end(), size_t{0}));
  begin_all_gather(all, own, bytes).wait();
  std::vector<std::vector<std::byte>> parts;
  auto at = all.begin();
  for (const size_t count : bytes) {
    parts.emplace_back(at, at + static_cast<std::ptrdiff_t>(count));
    at += static_cast<std::ptrdiff_t>(count);
  }
  return parts;
}

std::vector<std::string> Group::gather(const std::string& text) const {
  std::vector<std::string> texts;
  for (const std::vector<char>& part : gather(std::span<const char>(text)))
    texts.emplace_back(part.begin(), part.end());
  return texts;
}

Group Group::split(int color, int key, const std::string& name) const {
  return alone() ? Group() : Group(transport_->split(color, key, name));
}

void run_while_synchronising(const Group& group, const std::function<void(const std::atomic<bool>& wanted)>& work) {
  std::atomic<bool> wanted = true;
  std::future<void> done;
  if (work) done = start_task("what the other ranks wait for", [&] { work(wanted); });
  const auto under_way = [&] {
    return done.valid() && done.wait_for(std::chrono::milliseconds(100)) == std::future_status::timeout;
  };
  try {
    while (group.all_max<int32_t>(under_way() ? 1 : 0) != 0) {
    }
  } catch (...) {
    wanted = false;
    throw;
  }
  if (done.valid()) done.get();
}

}  // namespace ingot::comm
