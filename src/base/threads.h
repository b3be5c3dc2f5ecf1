// Threads that a class starts for itself.
#pragma once

#include <functional>
#include <future>
#include <string_view>
#include <system_error>
#include <thread>

#include "base/signals.h"

namespace ingot {

// Starts a thread that gets no signals and runs `body`, which may not throw. The caller joins it, also where one that
// it starts later is refused: a std::thread that is destroyed before ends the process. Errors: resource, saying what
// the thread is for, when the system refuses one.
std::thread start_thread(std::string_view what, std::function<void()> body);

[[noreturn]] void refuse_thread(std::string_view what, const std::system_error& why);

// std::async on a thread that gets no signals. Errors: as start_thread.
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
