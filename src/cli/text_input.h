// The source of a command's text: --text, --file or --ids.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/command.h"
#include "text/tokenizer.h"

namespace ingot::cli {

// Parses "1,2,3", with or without spaces. Errors: usage, naming the part that is not a token id.
std::vector<int32_t> parse_ids(std::string_view text);

// Reads a file as text. Errors: those of read_file; corrupt when it is not UTF-8.
std::string read_text(const std::string& path);

// Reads a file with one JSON string per line. Errors: as read_text; corrupt, naming the line, for anything else.
std::vector<std::string> read_texts(const std::string& path);

struct TextInput {
  std::optional<std::string> text;
  std::optional<std::string> file;
  std::optional<std::string> ids;

  // Declares the options; `text_name` is the name of the option for a text ("text", "prompt").
  void declare(Arguments& arguments, const char* text_name);
  // Errors: usage unless exactly one of them was given.
  void check() const;
  // The text from `text` or `file`. REQUIRES that `ids` is not set.
  std::string words() const;

  const char* text_name = "text";
};

}  // namespace ingot::cli
