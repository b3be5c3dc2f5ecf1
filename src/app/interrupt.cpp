#include "app/interrupt.h"

#include <unistd.h>

#include <csignal>

namespace ingot::app {

void exit_interrupted(int) { _exit(130); }

void exit_on_interrupt() {
  struct sigaction action{};
  action.sa_handler = &exit_interrupted;
  sigemptyset(&action.sa_mask);
  for (int signal : {SIGINT, SIGTERM}) sigaction(signal, &action, nullptr);
}

}  // namespace ingot::app
