// Ctrl-C, SIGTERM, SIGHUP and SIGUSR1 for commands that can be killed at any point: they write files under a temporary
// name and publish them by rename.
#pragma once

namespace ingot::cli {

// From now on stop_signals() (base/signals.h) end the process at once: one line on standard error, exit code 130.
void exit_on_interrupt();

// Ends the process in the same way; passed to StopSignal for the second signal. May be called in a signal handler.
void exit_interrupted(int signal);

}  // namespace ingot::cli
