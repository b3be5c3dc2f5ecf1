#include "infer/copy_thread.h"

#include <algorithm>
#include <cstring>

#include "base/threads.h"

namespace ingot::infer {

struct CopyThread::Copy {
  std::vector<Segment> segments;
  bool cancelled = false;
  bool ended = false;
};

CopyThread::CopyThread() : thread_(start_thread("copying adapters", [this] { run(); })) {}

CopyThread::~CopyThread() {
  queue_.lock()->stop = true;
  queue_.notify_all();
  thread_.join();
}

std::shared_ptr<CopyThread::Copy> CopyThread::start(std::vector<Segment> segments) {
  auto copy = std::make_shared<Copy>();
  copy->segments = std::move(segments);
  queue_.lock()->copies.push_back(copy);
  queue_.notify_all();
  return copy;
}

bool CopyThread::ended(const Copy& copy) const {
  const auto held = queue_.lock();
  return copy.ended;
}

void CopyThread::wait(const Copy& copy) const {
  queue_.lock().wait([&](const Queue&) { return copy.ended; });
}

void CopyThread::cancel(const std::shared_ptr<Copy>& copy) {
  auto held = queue_.lock();
  copy->cancelled = true;
  if (std::erase(held->copies, copy) > 0) copy->ended = true;
  held.wait([&](const Queue&) { return copy->ended; });
}

bool CopyThread::wanted(const Copy& copy) const {
  const auto held = queue_.lock();
  return !held->stop && !copy.cancelled;
}

void CopyThread::run() {
  for (;;) {
    std::shared_ptr<Copy> copy;
    {
      auto held = queue_.lock();
      held.wait([](const Queue& queue) { return queue.stop || !queue.copies.empty(); });
      if (held->stop) return;
      copy = std::move(held->copies.front());
      held->copies.pop_front();
    }
    for (const Segment& segment : copy->segments) {
      for (size_t done = 0; done < segment.bytes && wanted(*copy); done += chunk_bytes) {
        std::memcpy(segment.to + done, static_cast<const std::byte*>(segment.from) + done,
                    std::min(chunk_bytes, segment.bytes - done));
      }
    }
    {
      const auto held = queue_.lock();
      copy->ended = true;
    }
    queue_.notify_all();
  }
}

}  // namespace ingot::infer
