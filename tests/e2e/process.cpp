#include "tests/e2e/process.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <thread>

#include "base/file.h"
#include "tests/locations.h"

namespace ingot::e2e {

namespace {

// INGOT_HOME of child processes, unless a test has set one: not the user's. It is removed at exit.
std::string test_home() {
  struct Home {
    std::filesystem::path path = std::filesystem::temp_directory_path() / ("ingot-home-" + std::to_string(getpid()));
    Home() { make_home(path); }
    ~Home() {
      std::error_code ignored;
      std::filesystem::remove_all(path, ignored);
    }
  };
  static const Home home;
  return home.path;
}

}  // namespace

Process::Process(const std::vector<std::string>& arguments, uint64_t file_limit, const std::string& input) {
  static std::atomic<int> count = 0;
  folder_ =
      std::filesystem::temp_directory_path() / ("ingot-" + std::to_string(getpid()) + "-" + std::to_string(count++));
  std::filesystem::create_directories(folder_);
  std::ofstream(folder_ / "input") << input;
  for (const char* name : {"output", "error"}) std::ofstream(folder_ / name).close();
  std::vector<std::string> words = {ingot_executable};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  const std::string home = test_home();
  const std::string in = folder_ / "input", out = folder_ / "output", error = folder_ / "error";
  pid_ = fork();
  if (pid_ != 0) return;
  dup2(open(in.c_str(), O_RDONLY), 0);
  dup2(open(out.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), 1);
  dup2(open(error.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), 2);
  if (file_limit > 0) {
    const rlimit limit{file_limit, file_limit};
    setrlimit(RLIMIT_FSIZE, &limit);
    signal(SIGXFSZ, SIG_IGN);
  }
  setenv("INGOT_HOME", home.c_str(), 0);
  execv(pointers[0], pointers.data());
  _exit(127);
}

Process::~Process() {
  kill(SIGKILL);
  std::filesystem::remove_all(folder_);
}

std::optional<int> Process::wait(std::chrono::milliseconds most) {
  const auto end = std::chrono::steady_clock::now() + most;
  while (!code_) {
    int status = 0;
    if (waitpid(pid_, &status, WNOHANG) == pid_) {
      code_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
      break;
    }
    if (std::chrono::steady_clock::now() >= end) return std::nullopt;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return code_;
}

void Process::kill(int signal) {
  if (code_) return;
  ::kill(pid_, signal);
  if (signal == SIGKILL) wait(std::chrono::minutes(1));
}

Result Process::result() const {
  return {code_.value_or(0), read_file(folder_ / "output"), read_file(folder_ / "error")};
}

void make_home(const std::filesystem::path& home) {
  const std::filesystem::path rates = std::filesystem::path(ingot_executable).parent_path() / "tests/rates";
  std::filesystem::create_directories(rates);
  std::filesystem::create_directories(home);
  if (!std::filesystem::exists(home / "rates")) std::filesystem::create_directory_symlink(rates, home / "rates");
}

Result ingot(const std::vector<std::string>& arguments, const std::string& input) {
  Process process(arguments, 0, input);
  process.wait(std::chrono::minutes(9));
  return process.result();
}

}  // namespace ingot::e2e
