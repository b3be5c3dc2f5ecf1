#include "runs/supervisor.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/append_file.h"
#include "base/clock.h"
#include "base/environment.h"
#include "base/error.h"
#include "base/file.h"
#include "base/json_text.h"
#include "base/path.h"
#include "base/signals.h"
#include "base/strings.h"
#include "checkpoint/native.h"
#include "comm/launcher.h"

namespace ingot::runs {

namespace fs = std::filesystem;

namespace {

constexpr double longest_wait_s = 600;

// Global, because a signal handler has no user argument.
std::atomic<pid_t> child = 0;
std::atomic<bool> stopping = false;
std::atomic<bool> ranks = false;  // the child is a launcher

// The signal by which the child is asked to stop. mpirun forwards SIGUSR1 to its ranks, but on SIGTERM it kills them.
int stop_signal(int number) { return ranks ? SIGUSR1 : number; }

extern "C" void ingot_pass_on(int number) {
  const int before = errno;
  stopping = true;
  if (const pid_t to = child.load(); to > 0) ::kill(to, stop_signal(number));
  errno = before;
}

// While this object exists, stop signals are forwarded to the child.
class SignalForwarder {
 public:
  SignalForwarder() : signals_(stop_signals()), former_(signals_.size()) {
    struct sigaction action{};
    action.sa_handler = ingot_pass_on;
    action.sa_flags = SA_RESTART;
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < signals_.size(); ++i) ::sigaction(signals_[i], &action, &former_[i]);
  }
  SignalForwarder(const SignalForwarder&) = delete;
  SignalForwarder& operator=(const SignalForwarder&) = delete;
  ~SignalForwarder() {
    for (size_t i = 0; i < signals_.size(); ++i) ::sigaction(signals_[i], &former_[i], nullptr);
  }
  const std::vector<int>& signals() const { return signals_; }

 private:
  std::vector<int> signals_;
  std::vector<struct sigaction> former_;
};

// Starts the executable again. The child has a process group of its own, so that Ctrl-C reaches it only once, through
// this process. It gets a stop signal when this process dies. Its standard input is empty, because a background process
// that reads from its terminal is stopped.
pid_t start(std::vector<std::string> words, const SignalForwarder& forwarder) {
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  sigset_t passed, before;
  sigemptyset(&passed);
  for (const int number : forwarder.signals()) sigaddset(&passed, number);
  ::pthread_sigmask(SIG_BLOCK, &passed, &before);  // until `child` is set for the handler
  const pid_t parent = ::getpid();
  const pid_t made = ::fork();
  if (made == 0) {
    ::setpgid(0, 0);
    ::close(STDIN_FILENO);
    if (::open("/dev/null", O_RDONLY) != STDIN_FILENO) ::_exit(exit_code(ErrorKind::unavailable));
    for (const int number : forwarder.signals()) ::signal(number, SIG_DFL);  // a signal that is ignored remains ignored
    ::prctl(PR_SET_PDEATHSIG, stop_signal(SIGTERM));
    if (::getppid() != parent) ::_exit(130);
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    ::execvp(pointers[0], pointers.data());
    ::_exit(127);
  }
  child = made;
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (made < 0) {
    throw_error(ErrorKind::unavailable, "cannot start a process for the run: {}", errno_message(errno));
  }
  return made;
}

// The exit code, or 128 plus the number of the signal that ended the process, as in a shell.
int end_of(pid_t process) {
  int status = 0;
  while (::waitpid(process, &status, 0) < 0 && errno == EINTR) {
  }
  child = 0;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

std::string describe(int code) {
  if (code > 128 && ::strsignal(code - 128) != nullptr) {
    return fmt::format("killed by signal {} ({})", code - 128, ::strsignal(code - 128));
  }
  return fmt::format("exited with code {}", code);
}

// Whether the last process recorded in the run's events has made steps. The type comes first in every event.
bool made_steps(const fs::path& events) {
  if (!regular_file_exists(events)) return false;
  std::ifstream file(events, std::ios::binary | std::ios::ate);
  if (!file) return false;
  constexpr std::streamoff max_bytes = 1 << 20;
  file.seekg(-std::min<std::streamoff>(file.tellg(), max_bytes), std::ios::end);
  std::ostringstream read;
  read << file.rdbuf();
  const std::string tail = read.str();
  const size_t start = tail.rfind(R"({"type":"start")"), step = tail.rfind(R"({"type":"step")");
  return step != std::string::npos && (start == std::string::npos || step > start);
}

bool may_mend(int code, const fs::path& run) {
  if (code == exit_code(ErrorKind::usage) || code == exit_code(ErrorKind::corrupt) || code == 127) return false;
  return code != exit_code(ErrorKind::resource) || made_steps(run / "events.jsonl");
}

// The step of the newest checkpoint.
std::optional<int64_t> last_checkpoint(const fs::path& run) {
  const std::vector<int64_t> steps = checkpoint::list_checkpoints(run / "checkpoints");
  return steps.empty() ? std::nullopt : std::optional(steps.back());
}

// Appends a warning to the events of a killed process, whose last line may be truncated.
void add_warning(const fs::path& events, int64_t step, const std::string& message) {
  bool torn = false;
  if (std::ifstream before(events, std::ios::binary | std::ios::ate); before && before.tellg() > 0) {
    before.seekg(-1, std::ios::end);
    torn = before.get() != '\n';
  }
  nlohmann::ordered_json event = {{"type", "warning"}};
  if (step > 0) event["step"] = step;  // without a checkpoint the steps so far will be repeated
  event["message"] = message;
  AppendFile(events).append((torn ? "\n" : "") + json_line(event) + "\n");
}

void refuse_ranks() {
  const std::optional<comm::Launch> launch = comm::find_launch(environment);
  if (!launch) return;
  throw_hint(ErrorKind::usage,
             "let the supervisor start the ranks: ingot pretrain ... --restarts N --launcher \"mpirun -n R\"",
             "--restarts in one of {} ranks ({}): a single rank cannot be restarted", launch->size, launch->launcher);
}

// The resume mode of the next attempt, after one with mode `last`: if that attempt wrote no checkpoint, the run begins
// again. The checkpoints of a run with mode `yes` may be in a store.
Resume next_resume(Resume last, const Supervised& what) {
  if (last == Resume::automatic) return last;
  if (last == Resume::yes || last_checkpoint(what.run)) return Resume::yes;
  return path_exists(what.run / "events.jsonl") ? Resume::fresh : last;
}

const char* option(Resume resume) {
  switch (resume) {
    case Resume::yes: return "--resume";
    case Resume::fresh: return "--resume=fresh";
    case Resume::automatic: return "--resume=auto";
    case Resume::no: break;
  }
  throw_error(ErrorKind::internal, "a start without --resume");
}

// From where an attempt begins; `step` is that of the last checkpoint in the folder, 0 without one.
std::string begin_of(Resume resume, int64_t step) {
  if (step > 0) return fmt::format("step {}", step);
  if (resume == Resume::automatic) return "its last checkpoint, if it has one";
  return resume == Resume::yes ? "its last checkpoint" : "its start";
}

// Returns false when a stop was requested meanwhile.
bool wait(double seconds) {
  const double until = steady_seconds() + seconds;
  while (!stopping && steady_seconds() < until) ::usleep(20'000);
  return !stopping;
}

}  // namespace

int supervise(const Supervised& what, Log& log) {
  refuse_ranks();
  // Checked before the first attempt: later attempts continue what they find.
  if (what.resume == Resume::no) RunFolder::check(what.run, what.resume, "");
  ranks = !what.launcher.empty();
  std::vector<std::string> words;
  std::istringstream launcher(what.launcher);
  for (std::string word; launcher >> word;) words.push_back(word);
  words.push_back(executable_path().string());
  words.insert(words.end(), what.arguments.begin(), what.arguments.end());
  const SignalForwarder forwarder;
  stopping = false;
  double pause = what.wait_s;
  Resume resume = what.resume;
  for (int64_t restart = 1;; ++restart) {
    std::vector<std::string> attempt = words;
    if (resume != Resume::no) attempt.emplace_back(option(resume));
    const int code = end_of(start(attempt, forwarder));
    if (stopping) return 130;
    if (code == 0 || code == 130 || !may_mend(code, what.run)) return code;
    if (restart > what.restarts) {
      log.error("{} failed again ({}), and all {} restarts are used up", what.run.string(), describe(code),
                what.restarts);
      return code;
    }
    const fs::path events = what.run / "events.jsonl";
    const bool started = path_exists(events);
    resume = next_resume(resume, what);
    const int64_t from = last_checkpoint(what.run).value_or(0);
    const std::string message = fmt::format("the run failed ({}); restart {} of {} from {} in {}", describe(code),
                                            restart, what.restarts, begin_of(resume, from), format_duration(pause));
    log.warning("{}", message);
    if (started) {
      add_warning(events, from, message);
      Log file;
      file.add_file(what.run / "log.txt");
      file.warning("{}", message);
    }
    if (!wait(pause)) return 130;
    pause = std::min(2 * pause, longest_wait_s);
  }
}

}  // namespace ingot::runs
