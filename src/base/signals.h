// Signals: the wish to stop (SIGINT, SIGTERM and SIGUSR1), and threads that get none.
//
// The first such signal sets a flag that work asks for between steps; the second calls the function that the
// application gave (which ends the process: a library may not). SIGTERM and SIGUSR1 are sent by programs, and a
// scheduler, a launcher and a supervisor may each pass the same one on: the same again within a second is no second
// one.
#pragma once

#include <signal.h>

namespace ingot {

class StopSignal {
 public:
  // Installs the handlers; while this lives no other may be made (internal). `second` runs inside the handler, so it
  // may do only what a signal handler may (_exit). System calls that a signal interrupts are restarted. Also ignores
  // SIGPIPE and SIGXFSZ: a closed pipe and a file-size limit are then errors of the write.
  explicit StopSignal(void (*second)(int signal));
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;
  // Puts the former handlers back and forgets the wish.
  ~StopSignal();

  bool requested() const { return number() != 0; }
  // The first signal's number, or 0.
  int number() const;
};

// While it lives, this thread and the threads that it starts get no signals: they are for those that know what to do.
class BlockedSignals {
 public:
  BlockedSignals() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;
  ~BlockedSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_;
};

}  // namespace ingot
