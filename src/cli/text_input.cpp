#include "cli/text_input.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/strings.h"

namespace ingot::cli {

std::vector<int32_t> parse_ids(std::string_view text) {
  std::vector<int32_t> ids;
  for (const std::string& piece : split(text, ',')) {
    const std::string_view word = trim(piece);
    int32_t id = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), id);
    if (error != std::errc() || end != word.data() + word.size() || id < 0) {
      throw_hint(ErrorKind::usage, "give token ids as numbers from 0, separated by commas: 1,2,3",
                 "'{}' is not a token id", word);
    }
    ids.push_back(id);
  }
  return ids;
}

std::string read_text(const std::string& path) {
  std::string text = read_file(path);
  if (!is_utf8(text)) throw_hint(ErrorKind::corrupt, "convert it to UTF-8", "{} is not UTF-8 text", path);
  return text;
}

std::vector<std::string> read_texts(const std::string& path) {
  const std::string lines = read_text(path);
  std::vector<std::string> texts;
  for (size_t at = 0; at < lines.size();) {
    const size_t end = std::min(lines.find('\n', at), lines.size());
    const nlohmann::ordered_json line = try_parse_json(std::string_view(lines).substr(at, end - at));
    at = end + 1;
    if (!line.is_string()) {
      throw_error(ErrorKind::corrupt, "{}, line {}: not a JSON string", path, texts.size() + 1);
    }
    texts.push_back(line.get<std::string>());
  }
  return texts;
}

void TextInput::declare(Arguments& arguments, const char* name) {
  text_name = name;
  arguments.option(name, text, "the text itself");
  arguments.option("file", file, "a file with the text (UTF-8)");
  arguments.option("ids", ids, "token ids instead of a text: 1,2,3 (needs no tokenizer)");
}

void TextInput::check() const {
  if (text.has_value() + file.has_value() + ids.has_value() == 1) return;
  throw_error(ErrorKind::usage, "give exactly one of --{}, --file and --ids", text_name);
}

std::string TextInput::words() const { return text ? *text : read_text(*file); }

}  // namespace ingot::cli
