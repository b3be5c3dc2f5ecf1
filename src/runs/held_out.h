// The held-out part of a data file, for `ingot init`.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace ingot::runs {

// Finds the held-out file next to `data` by its name: "train" in the name replaced by heldout, eval, validation and the
// like (train.jsonl, heldout.jsonl), or one of these words appended (chat.jsonl, chat_heldout.jsonl). Absent when there
// is none, and when `data` has been split by DataSplit before.
std::optional<std::filesystem::path> held_out_beside(const std::filesystem::path& data);

// Splits a data file in two: STEM.train.EXT and STEM.heldout.EXT, uncompressed. Of JSON lines every 20th record is held
// out, of plain text the last twentieth, cut between two lines. The destructor removes the files unless keep() was
// called.
class DataSplit {
 public:
  // Writes the files into `folder`; writes none when there is too little data: fewer than 20 records or 2,000 bytes of
  // text. Errors: those of data::DocumentReader; usage when one of the files exists already; those of FileWriter.
  DataSplit(const std::filesystem::path& data, const std::filesystem::path& folder);
  DataSplit(DataSplit&&) = default;  // a moved-from object has no files
  DataSplit& operator=(const DataSplit&) = delete;
  ~DataSplit();

  explicit operator bool() const { return !files_.empty(); }
  const std::filesystem::path& train() const { return files_[0]; }
  const std::filesystem::path& held_out() const { return files_[1]; }
  const char* rule() const { return rule_; }  // description of the held-out part: "every 20th document"
  void keep() { keep_ = true; }

 private:
  DataSplit() = default;  // the public constructor delegates to it, so that the destructor runs when that throws

  std::vector<std::filesystem::path> files_;  // both or none
  const char* rule_ = "";
  bool keep_ = false;
};

}  // namespace ingot::runs
