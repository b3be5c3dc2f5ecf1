// Reads documents from data files: JSON lines and plain text, optionally compressed, token arrays, and MDS shards.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "base/error.h"
#include "data/byte_stream.h"
#include "data/document.h"
#include "data/mds_rows.h"
#include "data/token_rows.h"
#include "formats/megatron.h"

namespace ingot::data {

// Whether a path is remote and its name identifies it as JSON lines, text or .npy. Such a path is not a folder or a
// data set of several files, so the server does not have to be asked.
bool is_remote_file(const std::filesystem::path& path);
// formats::is_megatron, but false without asking the server when is_remote_file(path).
bool is_megatron(const std::filesystem::path& path);

// A data file and how often each of its documents occurs in an epoch: 1 once, 2 twice, 0.5 every other one.
struct Source {
  std::filesystem::path path;
  double weight = 1;
};

enum class OnError { stop, skip };
// Parses "stop" or "skip". Errors: usage, listing these words.
OnError parse_on_error(std::string_view word);

// A document as `take` reads it: a line of JSON that is still to be parsed, a Document, or the error in its place.
struct Record {
  std::variant<std::string, Document, Error> content;
  int64_t number = 0;  // line, row, sample or document number, from 1; 0 for a plain text file as a whole
};

// Reads the documents of one file, in order. By name (without .gz or .zst): .jsonl, .ndjson and .json are JSON lines,
// .txt and .md are one document of plain text, and .npy is rows of tokens (token_rows.h). A folder with an index.json
// is a set of MDS shards (mds_rows.h), and a .idx next to a .bin is a Megatron data set of tokenized documents. A file
// of any other name is JSON lines when its first byte that is not white space is '{', and plain text if `format` is
// text. Blank lines in JSON lines are skipped.
class DocumentReader {
 public:
  // Errors: as ByteStream, TokenRows or MdsRows; usage when the kind of file does not match `format` or cannot be
  // determined; unsupported for a JSON array.
  DocumentReader(const std::filesystem::path& path, Format format, OnError on_error);

  // False at the end. Errors: corrupt, naming file and line (or row) and what is wrong with it (on_error stop); corrupt
  // for a file without documents, for plain text that is not UTF-8, and for a damaged shard.
  bool next(Document& document);

  // next() in separate steps, so that JSON can be parsed on several threads: `take` on one thread at a time, `parse` on
  // any thread, and `refuse` for each error that `parse` threw, in the order of the file: it throws or counts the error
  // (on_error). `take` returns false at the end, also for a file without documents, for which the caller throws with
  // `throw_empty`. While the format is automatic, `take` parses lines itself until the first document has determined
  // it.
  bool take(Record& record);
  Document parse(Record record) const;
  void refuse(const Error& error, int64_t number);
  [[noreturn]] void throw_empty() const;
  void reset_skipped();  // resets the count of bad lines, when those so far were reported before

  const std::filesystem::path& path() const { return path_; }  // as shown in messages
  std::string location(int64_t number) const;  // location of a record or document.line: "data.jsonl line 7"
  bool plain() const { return plain_; }        // one document of plain text
  bool tokens() const {                        // tokenized documents
    return rows_.has_value() || megatron_.has_value() || (mds_ && mds_->format() == Format::tokens);
  }
  Format format() const { return format_; }                            // automatic until the first document was read
  int64_t num_documents() const { return num_documents_; }             // returned by `next` so far
  int64_t num_skipped() const { return num_skipped_; }                 // bad lines skipped (on_error skip)
  const std::string& first_skipped() const { return first_skipped_; }  // why the first one was skipped; empty if none

 private:
  bool take_line(Record& record);
  bool take_text(Record& record);
  bool take_row(Record& record);
  bool take_sample(Record& record);
  bool take_megatron(Record& record);
  const char* part() const;

  std::filesystem::path path_;
  std::optional<LineReader> lines_;  // exactly one of these four is set
  std::optional<TokenRows> rows_;
  std::optional<MdsRows> mds_;
  std::optional<formats::MegatronFile> megatron_;
  Format format_;
  OnError on_error_;
  bool plain_ = false;
  int64_t num_taken_ = 0;
  int64_t num_documents_ = 0;
  int64_t num_skipped_ = 0;
  std::string first_skipped_;
};

}  // namespace ingot::data
