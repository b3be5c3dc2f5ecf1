// Runs the built executable as a user would.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace ingot::e2e {

struct Result {
  int code = 0;        // exit code; 128 + signal when it was killed
  std::string output;  // standard output
  std::string error;   // standard error
};

// One run of the executable. Its output goes to files, so that it never blocks on a pipe.
class Process {
 public:
  // `file_limit`: the largest size of a file that it may write (RLIMIT_FSIZE), 0 for no limit. `input`: its standard
  // input.
  explicit Process(const std::vector<std::string>& arguments, uint64_t file_limit = 0, const std::string& input = {});
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;
  ~Process();  // kills a running process

  // The exit code, or nothing when it still runs after `most`.
  std::optional<int> wait(std::chrono::milliseconds most);
  void kill(int signal);  // after SIGKILL it also waits
  Result result() const;  // with the output so far
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = -1;
  std::optional<int> code_;
  std::filesystem::path folder_;
};

// Makes `home`, a folder for INGOT_HOME. Its rates of the machine are shared by all tests of this build, so that they
// are measured once.
void make_home(const std::filesystem::path& home);

// Runs the executable to its end.
Result ingot(const std::vector<std::string>& arguments, const std::string& input = {});

}  // namespace ingot::e2e
