// Reading documents from data files: JSON lines and plain text, compressed or not, arrays of tokens, and MDS shards.
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

// Whether the name of a remote file says that it is JSON lines, text or .npy: then it is no folder and no data set of
// several files, and the server is not asked whether it is one.
bool is_remote_file(const std::filesystem::path& path);
// formats::is_megatron, but for those.
bool is_megatron(const std::filesystem::path& path);

// A data file and how often each of its documents comes in an epoch: 1 once, 2 twice, 0.5 every other one.
struct Source {
  std::filesystem::path path;
  double weight = 1;
};

enum class OnError { stop, skip };
// stop or skip. Errors: usage, listing the words.
OnError parse_on_error(std::string_view word);

// What lies in a file for one document: a line of JSON lines, not yet looked at; the document itself; or why there is
// none.
struct Record {
  std::variant<std::string, Document, Error> content;
  int64_t number = 0;  // of the line, row, sample or document, from 1; 0 for a whole file of plain text
};

// The documents of one file, in its order. By name (without .gz or .zst): .jsonl, .ndjson and .json are JSON lines,
// .txt and .md are one document of plain text, and .npy is rows of tokens (token_rows.h). A folder with an index.json
// is one of MDS shards (mds_rows.h), and a .idx beside a .bin a Megatron data set, of documents of tokens. Under any
// other name a file is JSON lines when its first byte that is not white space is '{', and else plain text if `format`
// says text. Blank lines of JSON lines are passed over.
class DocumentReader {
 public:
  // Errors: as ByteStream, TokenRows or MdsRows; usage when the file's kind and `format` do not go together.
  DocumentReader(const std::filesystem::path& path, Format format, OnError on_error);

  // False at the end. Errors: corrupt, naming file and line (or row) and what is wrong with it (on_error stop); corrupt
  // for a file without any document, for a plain text that is not UTF-8, and for a damaged shard.
  bool next(Document& document);

  // The same in steps, so that JSON is read on several threads: `take` on one at a time, `parse` on any, and `refuse`,
  // with what `parse` threw, in order. `take` is false at the end, of a file without any document, too, for which
  // `throw_empty` is there; until a first document has told the format (automatic), it parses the lines itself.
  bool take(Record& record);
  Document parse(Record record) const;
  void refuse(const Error& error, int64_t number);
  [[noreturn]] void throw_empty() const;
  void forget_skipped();  // the bad lines so far were told about by somebody else

  const std::filesystem::path& path() const { return path_; }  // as messages show it
  std::string place(int64_t number) const;                     // "data.jsonl line 7", of a record or document.line
  bool plain() const { return plain_; }                        // one document of plain text
  bool tokens() const {                                        // rows of tokens
    return rows_.has_value() || megatron_.has_value() || (mds_ && mds_->format() == Format::tokens);
  }
  Format format() const { return format_; }                            // automatic until the first document was given
  int64_t num_documents() const { return num_documents_; }             // given by `next` so far
  int64_t num_skipped() const { return num_skipped_; }                 // bad lines left out (on_error skip)
  const std::string& first_skipped() const { return first_skipped_; }  // why the first of them was; empty without

 private:
  bool take_line(Record& record);
  bool take_text(Record& record);
  bool take_row(Record& record);
  bool take_sample(Record& record);
  bool take_megatron(Record& record);
  const char* part() const;

  std::filesystem::path path_;
  std::optional<LineReader> lines_;  // one of these four
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
