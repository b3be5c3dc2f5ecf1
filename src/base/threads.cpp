#include "base/threads.h"

#include "base/error.h"

namespace ingot {

void refuse_thread(std::string_view what, const std::system_error& why) {
  throw_hint(ErrorKind::resource, "raise the process limit (ulimit -u) or the memory limit",
             "cannot start a thread for {}: {}", what, why.code().message());
}

std::thread start_thread(std::string_view what, std::function<void()> body) {
  const BlockedSignals blocked;
  try {
    return std::thread(std::move(body));
  } catch (const std::system_error& refused) {
    refuse_thread(what, refused);
  }
}

}  // namespace ingot
