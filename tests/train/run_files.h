// A temporary folder, by default for the running test, and expected errors.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "base/error.h"

namespace ingot::train {

class RunFiles {
 public:
  RunFiles() : RunFiles(name_of_test()) {}
  explicit RunFiles(const std::string& name)
      : path_(std::filesystem::path(testing::TempDir()) / ("train-" + name + "-" + std::to_string(getpid()))) {
    std::filesystem::create_directories(path_);
  }
  RunFiles(const RunFiles&) = delete;
  RunFiles& operator=(const RunFiles&) = delete;
  ~RunFiles() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::filesystem::path& path() const { return path_; }

 private:
  static std::string name_of_test() {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    return std::string(test->test_suite_name()) + "-" + test->name();
  }

  std::filesystem::path path_;
};

// Message and hint of the ingot::Error of `kind` that `call` must throw.
template <class Call>
std::string refusal(ErrorKind kind, Call call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_STREQ(name(error.kind()), name(kind)) << error.message();
    return error.message() + "\n" + error.hint();
  }
  ADD_FAILURE() << "no error was thrown";
  return {};
}

}  // namespace ingot::train
