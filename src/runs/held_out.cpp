#include "runs/held_out.h"

#include <array>

#include "base/error.h"
#include "base/file.h"
#include "base/path.h"
#include "base/strings.h"
#include "data/source.h"
#include "storage/uri.h"

namespace ingot::runs {

namespace fs = std::filesystem;

namespace {

constexpr int64_t one_in = 20;
constexpr size_t least_text = 2000;
constexpr std::array<std::string_view, 9> words = {"heldout", "held_out", "held-out", "eval", "validation",
                                                   "valid",   "val",      "dev",      "test"};

// "a/my.jsonl.gz": "my" and ".jsonl".
std::pair<std::string, std::string> bare_name(const fs::path& data) {
  fs::path bare = data.filename();
  if (bare.extension() == ".gz" || bare.extension() == ".zst") bare = bare.stem();
  return {bare.stem().string(), bare.extension().string()};
}

void split_records(const fs::path& data, FileWriter& train, FileWriter& held_out) {
  data::LineReader lines{data::ByteStream(data)};
  int64_t record = 0;
  for (std::string line; lines.next(line);) {
    if (trim(line).empty()) continue;
    FileWriter& file = ++record % one_in == 0 ? held_out : train;
    line.push_back('\n');
    file.write(line);
  }
}

// Offset at which the last twentieth begins: after the last empty line before it, else after the last line. 0: no such
// place.
size_t text_cut(const std::string& text) {
  const size_t max_cut = text.size() - text.size() / one_in;
  for (const std::string_view end : {"\n\n", "\n"}) {
    const size_t found = text.rfind(end, max_cut);
    if (found != std::string::npos && found >= text.size() / 2) return found + end.size();
  }
  return 0;
}

}  // namespace

std::optional<fs::path> held_out_beside(const fs::path& data) {
  if (is_remote(data.string())) return std::nullopt;
  const std::string name = data.filename().string();
  const auto [stem, extension] = bare_name(data);
  // A file that was split here before contains its held-out part too.
  if (path_exists(data.parent_path() / fmt::format("{}.train{}", stem, extension))) return std::nullopt;
  const auto beside = [&](const std::string& other) -> std::optional<fs::path> {
    fs::path path = data.parent_path() / other;
    if (other != name && regular_file_exists(path)) return path;
    return std::nullopt;
  };
  const size_t train = name.find("train");
  for (const std::string_view word : words) {
    if (train != std::string::npos) {
      if (auto found = beside(std::string(name).replace(train, 5, word))) return found;
    }
    for (const std::string_view joint : {"_", "-", "."}) {
      if (auto found = beside(fmt::format("{}{}{}{}", stem, joint, word, name.substr(stem.size())))) return found;
    }
  }
  return std::nullopt;
}

DataSplit::DataSplit(const fs::path& data, const fs::path& folder) : DataSplit() {
  data::DocumentReader reader(data, data::Format::automatic, data::OnError::stop);
  if (reader.tokens() || data::is_mds_folder(data)) {
    throw_hint(ErrorKind::usage, "give held-out data with --eval",
               "{}: an array of tokens or a folder of shards cannot be split", data.string());
  }
  const bool plain = reader.plain();
  std::string text;
  size_t cut = 0;
  if (plain) {
    text = data::LineReader{data::ByteStream(data)}.rest();
    if (text.size() >= least_text) cut = text_cut(text);
    if (cut == 0) return;
  } else {
    // Errors of a record must state its position in this file, not in one of the two parts.
    for (data::Document document; reader.next(document);) continue;
    if (reader.num_documents() < one_in) return;
  }
  const auto [stem, extension] = bare_name(data);
  const fs::path train_path = folder / (stem + ".train" + extension),
                 eval_path = folder / (stem + ".heldout" + extension);
  for (const fs::path& path : {train_path, eval_path}) {
    if (name_exists(path)) {
      throw_hint(
          ErrorKind::usage,
          fmt::format("if it is an earlier split of this file, run ingot init {}; otherwise remove it, or give --eval",
                      train_path.string()),
          "{} already exists", path.string());
    }
  }
  FileWriter train(train_path), held_out(eval_path);
  if (plain) {
    train.write(std::string_view(text).substr(0, cut));
    held_out.write(std::string_view(text).substr(cut));
  } else {
    split_records(data, train, held_out);
  }
  files_ = {train_path, eval_path};
  train.publish();
  held_out.publish();
  rule_ = plain ? "the last twentieth" : "every 20th document";
}

DataSplit::~DataSplit() {
  std::error_code ignored;
  if (keep_) return;
  for (const fs::path& path : files_) fs::remove(path, ignored);
}

}  // namespace ingot::runs
