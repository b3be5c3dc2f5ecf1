// Documents of a folder of MDS shards (formats/mds.h), one per sample:
//
// - tokens: column "tokens", either `bytes` that are int64 numbers, as llm-foundry writes them, or a one-dimensional
//   integer `ndarray`. All tokens are in the loss, and the document may be split at any token.
// - text: column "text" with encoding `str`.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>

#include "data/document.h"
#include "formats/mds.h"

namespace ingot::data {

// Whether `path`, which may be remote, is a folder with an index.json. Errors: as input_exists.
bool is_mds_folder(const std::filesystem::path& path);

class MdsRows {
 public:
  // `format`: automatic (tokens if there is such a column, else text), tokens or text. Errors: as formats::MdsFolder;
  // usage for another format; unsupported, naming the columns, when no column has the format.
  MdsRows(const std::filesystem::path& folder, Format format);

  // Moves to the next sample, opening its shard and prefetching later remote ones; false at the end. Errors: as
  // formats::MdsShard.
  bool advance();
  // The current sample, to which advance() moved. Errors: corrupt, saying what is wrong but not where.
  Document read() const;

  Format format() const { return tokens_ ? Format::tokens : Format::text; }
  int64_t row() const { return row_; }  // number of the current sample, from 1

 private:
  FileCache::File prefetched();

  formats::MdsFolder folder_;
  std::unique_ptr<FilePrefetch> prefetch_;
  size_t column_ = 0;
  bool tokens_ = false;
  size_t next_shard_ = 0;
  std::optional<formats::MdsShard> shard_;
  int64_t sample_ = -1;  // in the current shard
  int64_t row_ = 0;
};

}  // namespace ingot::data
