// A temporary folder of the running test, removed with its contents at the end.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <string>

#include "base/error.h"

namespace ingot::data {

class TempFolder {
 public:
  TempFolder() {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    path_ = std::filesystem::temp_directory_path() / (std::string("ingot_data_") + test->test_suite_name() + "_" +
                                                      test->name() + "_" + std::to_string(::getpid()));
    std::filesystem::create_directories(path_);
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  const std::filesystem::path& path() const { return path_; }

  // Writes a file into the folder and returns its path.
  std::filesystem::path file(const std::string& name, const std::string& bytes) const {
    std::ofstream out(path_ / name, std::ios::binary);
    out << bytes;
    return path_ / name;
  }

 private:
  std::filesystem::path path_;
};

// Runs `call`, which must throw an ingot::Error, and returns the error.
template <class Call>
Error error_of(Call call) {
  try {
    call();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "no error was thrown";
  return Error(ErrorKind::internal, "none");
}

// Expects an error of this kind whose message and hint contain all words.
inline void expect_error(const Error& error, ErrorKind kind, std::initializer_list<const char*> words) {
  EXPECT_EQ(name(error.kind()), std::string(name(kind))) << error.message();
  for (const char* word : words) {
    EXPECT_NE((error.message() + "\n" + error.hint()).find(word), std::string::npos)
        << "no '" << word << "' in: " << error.message() << "\nhint: " << error.hint();
  }
}

}  // namespace ingot::data
