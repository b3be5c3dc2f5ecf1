// Starting threads of a class's own, outside of a ThreadPool.
#pragma once

#include <functional>
#include <future>
#include <string_view>
#include <system_error>
#include <thread>

#include "base/signals.h"

namespace ingot {

// Starts a thread that receives no signals and runs `body`, which must not throw. The caller must join it, even if a
// later start_thread fails: destroying a std::thread that was not joined ends the process. Errors: resource, saying
// what the thread is for, when the system refuses one.
std::thread start_thread(std::string_view what, std::function<void()> body);

[[noreturn]] void refuse_thread(std::string_view what, const std::system_error& why);

// std::async on a thread that receives no signals. Errors: as start_thread.
template <class Body>
auto start_task(std::string_view what, Body body) {
  const BlockedSignals blocked;
  try {
    return std::async(std::launch::async, std::move(body));
  } catch (const std::system_error& refused) {
    refuse_thread(what, refused);
  }
}

}  // namespace ingot
