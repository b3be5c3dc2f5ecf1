// Signals: the wish to stop (SIGINT, SIGTERM, SIGHUP and SIGUSR1), a server's SIGHUP, and threads that get none.
//
// The first such signal sets a flag that work asks for between steps; the second calls the function that the
// application gave (which ends the process: a library may not). All but SIGINT are sent by programs, and a scheduler, a
// launcher and a supervisor, or a terminal and its shell, may each send one for the same reason (SIGTERM and SIGHUP at
// the end of a session): within a second of the first they are no second one, and SIGHUP never is.
#pragma once

#include <signal.h>

#include <vector>

namespace ingot {

// The signals that ask this process to stop: SIGINT, SIGTERM, SIGUSR1, and SIGHUP unless the process ignores it, as
// nohup(1) starts one. Not for a signal handler.
std::vector<int> stop_signals();

// What SIGHUP is to a StopSignal: a wish to stop (unless the process ignores it), or none of its business.
enum class HangUp { stops, ignored };

class StopSignal {
 public:
  // Installs the handlers; while this lives no other may be made (internal). `second` runs inside the handler, so it
  // may do only what a signal handler may (_exit). System calls that a signal interrupts are restarted. Also ignores
  // SIGPIPE and SIGXFSZ: a closed pipe and a file-size limit are then errors of the write.
  explicit StopSignal(void (*second)(int signal), HangUp hang_up = HangUp::stops);
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;
  // Puts the former handlers back and forgets the wish.
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

// SIGHUP as servers have it: the wish that files be read again. For beside a StopSignal that ignores it.
class ReloadSignal {
 public:
  // Installs the handler, also where SIGHUP was ignored; while this lives no other may be made (internal).
  ReloadSignal();
  ReloadSignal(const ReloadSignal&) = delete;
  ReloadSignal& operator=(const ReloadSignal&) = delete;
  ~ReloadSignal();  // puts the former handler back

  // Whether one came since this was asked last.
  bool take();

 private:
  struct sigaction former_{};
};

// While it lives, this thread and the threads that it starts get no signals: they are for those that know what to do.
// Faults of a thread's own stay open to it: one that is blocked would end the process.
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
