// Ctrl-C, SIGTERM, SIGHUP and SIGUSR1 for commands that leave nothing half-done: files are written under another name
// and published by rename, so the process may end anywhere.
#pragma once

namespace ingot::app {

// From now on stop_signals() (base/signals.h) end the process at once: one line on standard error, exit code 130.
void exit_on_interrupt();

// What a StopSignal's second signal does: the same. May be called in a signal handler.
void exit_interrupted(int signal);

}  // namespace ingot::app
