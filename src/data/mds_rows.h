// Documents of an MDS folder (formats/mds.h), a sample each.
//
// - tokens: its column "tokens", `bytes` that are int64 numbers, as llm-foundry writes them, or an `ndarray` of
// integers
//   of one dimension. Everything counts, and it may be cut anywhere.
// - text: its column "text" of encoding `str`.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>

#include "data/document.h"
#include "formats/mds.h"

namespace ingot::data {

// Whether `path` is a folder with an index.json; also of a remote address. Errors: as input_exists.
bool is_mds_folder(const std::filesystem::path& path);

class MdsRows {
 public:
  // `format`: automatic (tokens where there are such, else text), tokens or text. Errors: as formats::MdsFolder; usage
  // for another format; unsupported, naming the columns, where none is of the format.
  MdsRows(const std::filesystem::path& folder, Format format);

  // Goes to the next sample and opens its shard, fetching remote ones ahead; false at the end. Errors: as
  // formats::MdsShard.
  bool advance();
  // The sample that advance() went to. Errors: corrupt, saying what is wrong but not where.
  Document read() const;

  Format format() const { return tokens_ ? Format::tokens : Format::text; }
  int64_t row() const { return row_; }  // that advance() went to, from 1

 private:
  FileCache::File prefetched();

  formats::MdsFolder folder_;
  std::unique_ptr<FilePrefetch> prefetch_;
  size_t column_ = 0;
  bool tokens_ = false;
  size_t next_shard_ = 0;
  std::optional<formats::MdsShard> shard_;
  int64_t sample_ = -1;  // in the shard
  int64_t row_ = 0;
};

}  // namespace ingot::data
