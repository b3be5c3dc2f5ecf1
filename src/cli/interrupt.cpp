#include "cli/interrupt.h"

#include <unistd.h>

#include <csignal>
#include <string_view>

#include "base/signals.h"

namespace ingot::cli {

void exit_interrupted(int) {
  // Only async-signal-safe functions. On a terminal the cursor may be after a progress bar or a partial answer.
  constexpr std::string_view line = "\ningot: stopped\n";
  const size_t skip = isatty(STDERR_FILENO) != 0 ? 0 : 1;
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, line.data() + skip, line.size() - skip);
  _exit(130);
}

void exit_on_interrupt() {
  struct sigaction action{};
  action.sa_handler = &exit_interrupted;
  sigemptyset(&action.sa_mask);
  for (const int signal : stop_signals()) sigaction(signal, &action, nullptr);
}

}  // namespace ingot::cli
