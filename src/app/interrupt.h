// Ctrl-C and SIGTERM for commands that leave nothing half-done: files are written under another name and published by
// rename, so the process may end anywhere.
#pragma once

namespace ingot::app {

// From now on SIGINT and SIGTERM end the process at once with exit code 130.
void exit_on_interrupt();

// What a StopSignal's second signal does: ends the process with exit code 130. May be called in a signal handler.
void exit_interrupted(int signal);

}  // namespace ingot::app
