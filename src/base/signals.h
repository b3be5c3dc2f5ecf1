// Signals: the request to stop (SIGINT, SIGTERM, SIGHUP and SIGUSR1), a server's SIGHUP, and threads that receive no
// signals.
//
// The first stop signal sets a flag that long work checks between steps; the second calls the application's function
// (which ends the process: a library may not). All but SIGINT are sent by programs, and a scheduler, a launcher and a
// supervisor, or a terminal and its shell, may each send one for the same reason (SIGTERM and SIGHUP at the end of a
// session). So within a second of the first signal only SIGINT counts as a second one, and SIGHUP never does.
#pragma once

#include <signal.h>

#include <vector>

namespace ingot {

// The signals that ask this process to stop: SIGINT, SIGTERM, SIGUSR1, and SIGHUP unless the process ignores it, as
// under nohup(1). Must not be called in a signal handler.
std::vector<int> stop_signals();

// What SIGHUP means to a StopSignal: a request to stop (unless the process ignores it), or nothing.
enum class HangUp { stops, ignored };

class StopSignal {
 public:
  // Installs the handlers; only one StopSignal may exist at a time (internal). `second` runs inside the handler, so it
  // must be async-signal-safe (_exit). System calls that a signal interrupts are restarted. Also ignores SIGPIPE and
  // SIGXFSZ: a closed pipe and a file-size limit are then errors of the write.
  explicit StopSignal(void (*second)(int signal), HangUp hang_up = HangUp::stops);
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;
  // Restores the former handlers and clears the request.
  ~StopSignal();

  bool requested() const { return number() != 0; }
  // The first signal's number, or 0.
  int number() const;

 private:
  struct Former {
    int signal;
    struct sigaction action;
  };
  void install(int signal, void (*handler)(int));

  std::vector<Former> former_;
};

// SIGHUP as servers use it: a request to read files again. To be used beside a StopSignal that ignores SIGHUP.
class ReloadSignal {
 public:
  // Installs the handler, even where SIGHUP was ignored; only one ReloadSignal may exist at a time (internal).
  ReloadSignal();
  ReloadSignal(const ReloadSignal&) = delete;
  ReloadSignal& operator=(const ReloadSignal&) = delete;
  ~ReloadSignal();  // restores the former handler

  // Whether a signal has arrived since the last call.
  bool take();

 private:
  struct sigaction former_{};
};

// While this lives, the calling thread and the threads that it starts receive no signals, which are left to threads
// that handle them. Signals of a thread's own faults stay unblocked: a blocked one would end the process.
class BlockedSignals {
 public:
  BlockedSignals() {
    sigset_t all;
    sigfillset(&all);
    for (const int fault : {SIGBUS, SIGSEGV, SIGFPE, SIGILL, SIGTRAP, SIGSYS}) sigdelset(&all, fault);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;
  ~BlockedSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_;
};

}  // namespace ingot
