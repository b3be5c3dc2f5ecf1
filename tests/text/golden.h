// Golden files of this folder, made by tools/reference/make_tokenizer_golden.py and make_template_golden.py.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>
#include <string>

#include "base/error.h"
#include "tests/locations.h"

namespace ingot::text {

inline std::string read_golden(const std::string& name) {
  const std::filesystem::path path = std::filesystem::path(test_data) / "text" / name;
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot read " + path.string());
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// The error that the call throws.
inline Error error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "no error";
  return Error(ErrorKind::internal, "");
}

inline nlohmann::ordered_json read_golden_json(const std::string& name) {
  return nlohmann::ordered_json::parse(read_golden(name));
}

}  // namespace ingot::text
