// The held-out part of a data file, for `ingot init`.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace ingot::app {

// A file beside `data` whose name says that it is the held-out part: "train" in its name replaced by heldout, eval,
// validation and the like (train.jsonl, heldout.jsonl), or one of these words after it (chat.jsonl,
// chat_heldout.jsonl). Nothing when there is none, and when a DataSplit of `data` lies beside it.
std::optional<std::filesystem::path> held_out_beside(const std::filesystem::path& data);

// A data file as two: STEM.train.EXT and STEM.heldout.EXT, uncompressed. Of JSON lines every 20th record is held out,
// of plain text the last twentieth, cut between two lines. The files are removed again unless keep() is called.
class DataSplit {
 public:
  // Writes them into `folder`. They are absent when there is too little to split: fewer than 20 records or 2,000 bytes
  // of text. Errors: those of data::DocumentReader; usage when one of the files exists already; those of FileWriter.
  DataSplit(const std::filesystem::path& data, const std::filesystem::path& folder);
  DataSplit(DataSplit&&) = default;  // what is moved from has no files
  DataSplit& operator=(const DataSplit&) = delete;
  ~DataSplit();

  explicit operator bool() const { return !files_.empty(); }
  const std::filesystem::path& train() const { return files_[0]; }
  const std::filesystem::path& held_out() const { return files_[1]; }
  const char* rule() const { return rule_; }  // "every 20th document": which part is held out
  void keep() { kept_ = true; }

 private:
  DataSplit() = default;  // the constructor delegates to it, so that the destructor runs when it throws

  std::vector<std::filesystem::path> files_;  // both or none
  const char* rule_ = "";
  bool kept_ = false;
};

}  // namespace ingot::app
