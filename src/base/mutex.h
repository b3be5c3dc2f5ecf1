// Mutexes that clang's thread-safety analysis understands, and `Guarded<T>`: data and its mutex in one object.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <utility>

#include "base/thread_annotations.h"

namespace ingot {

class INGOT_CAPABILITY("mutex") Mutex {
 public:
  void lock() INGOT_ACQUIRE() { mutex_.lock(); }
  void unlock() INGOT_RELEASE() { mutex_.unlock(); }

 private:
  std::mutex mutex_;
};

class INGOT_SCOPED_CAPABILITY MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) INGOT_ACQUIRE(mutex) : mutex_(mutex) { mutex_.lock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;
  ~MutexLock() INGOT_RELEASE() { mutex_.unlock(); }

 private:
  Mutex& mutex_;
};

// A value that can be reached only through `lock()`:
//   Guarded<Queue> queue;
//   { auto held = queue.lock(); held->push(x); }
//   queue.notify_all();
// The reference must not outlive the lock.
template <class T>
class Guarded {
 public:
  template <class... Args>
  explicit Guarded(Args&&... args) : value_{std::forward<Args>(args)...} {}

  class Lock {
   public:
    T& operator*() const { return owner_->value_; }
    T* operator->() const { return &owner_->value_; }
    // Sleeps until `ready(value)` holds; it is checked under the lock.
    template <class Ready>
    void wait(Ready ready) {
      owner_->changed_.wait(lock_, [&] { return ready(owner_->value_); });
    }
    // As wait, but gives up after `seconds`; returns whether `ready` held.
    template <class Ready>
    bool wait_for(double seconds, Ready ready) {
      return owner_->changed_.wait_for(lock_, std::chrono::duration<double>(seconds),
                                       [&] { return ready(owner_->value_); });
    }

   private:
    friend class Guarded;
    explicit Lock(Guarded* owner) : owner_(owner), lock_(owner->mutex_) {}
    Guarded* owner_;
    std::unique_lock<std::mutex> lock_;
  };

  [[nodiscard]] Lock lock() { return Lock(this); }
  void notify_one() { changed_.notify_one(); }
  void notify_all() { changed_.notify_all(); }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  T value_;
};

}  // namespace ingot
