// Helpers of the format tests: bytes written by hand, expected errors, a temporary folder.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>

#include "base/error.h"
#include "base/file.h"
#include "tests/locations.h"

namespace ingot::formats::testing {

inline std::span<const std::byte> as_span(const std::string& bytes) { return std::as_bytes(std::span(bytes)); }

inline std::string as_string(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// The bytes of a number in a little-endian file.
template <class T>
std::string raw(T value) {
  std::string out(sizeof(T), '\0');
  std::memcpy(out.data(), &value, sizeof(T));
  return out;
}

// "01 ff" -> two bytes.
inline std::string hex(const std::string& text) {
  std::string out;
  for (size_t i = 0; i + 1 < text.size(); i += 3) out += static_cast<char>(std::stoi(text.substr(i, 2), nullptr, 16));
  return out;
}

inline std::filesystem::path golden(const std::string& name) {
  return std::filesystem::path(test_data) / "formats" / name;
}

// A temporary folder, removed at the end.
class Folder {
 public:
  Folder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "ingot_formats_XXXXXX").string();
    path_ = mkdtemp(pattern.data());
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() { std::filesystem::remove_all(path_); }
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

// Expects that `action` throws ingot::Error of this kind with `part` in its message.
template <class Action>
void expect_error(ErrorKind kind, const std::string& part, Action action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(name(error.kind()), std::string(name(kind))) << error.message();
    EXPECT_NE(error.message().find(part), std::string::npos) << error.message() << "\ndoes not contain: " << part;
    return;
  }
  ADD_FAILURE() << "expected an error with: " << part;
}

}  // namespace ingot::formats::testing
