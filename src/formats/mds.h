// MDS shards (MosaicML Streaming, version 2): reads and writes index.json and the shard files.
// Format: its documentation and files. For the same samples, the writer's files are byte-identical to those of
// StreamingDataset's own writer (compressed files if the compressors have the same versions, gz except for its header).
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/mutex.h"
#include "formats/mds_encoding.h"
#include "storage/file_cache.h"

namespace ingot::formats {

struct MdsColumn {
  std::string name;
  MdsEncoding encoding;
};

struct MdsFileInfo {
  std::string basename;  // relative to the index's folder; may contain sub-folders
  uint64_t bytes = 0;
  std::map<std::string, std::string> hashes;  // digest name -> hex
};

struct MdsShardInfo {
  std::vector<MdsColumn> columns;   // ascending name
  std::string compression;          // with its level, as in compression.h; empty: uncompressed
  std::vector<std::string> hashes;  // digest names, ascending
  std::optional<uint64_t> size_limit;
  int64_t samples = 0;
  MdsFileInfo raw;
  std::optional<MdsFileInfo> zip;  // the compressed file
};

// Errors: corrupt, naming `source` and shard, for missing, unknown or invalid keys, for columns that are not sorted or
// whose size differs from their encoding's, and for file names outside the folder; unsupported for other versions and
// formats and for unsupported encodings (pkl), compressions and hashes.
std::vector<MdsShardInfo> parse_mds_index(std::string_view text, const std::string& source);
std::string mds_index_text(std::span<const MdsShardInfo> shards);

// One shard. Samples are views into it. Movable.
class MdsShard {
 public:
  // `packed`: the file is the compressed one. Errors: corrupt for a size or hash that differs from the index, and as
  // below; those of MappedFile and decompress.
  MdsShard(InputFile file, bool packed, const MdsShardInfo& info);
  // The bytes of an uncompressed shard, which must outlive this; `source` replaces the path in messages. Errors:
  // corrupt for a number of samples that differs from the index, and for offsets that do not ascend to the end.
  MdsShard(std::span<const std::byte> bytes, const MdsShardInfo& info, std::string source);

  int64_t num_samples() const { return num_samples_; }
  // The encoded values of a sample, in column order. REQUIRES 0 <= index < num_samples(). Errors: corrupt, naming file
  // and sample, for sizes that do not sum to the sample's.
  std::vector<std::string_view> sample(int64_t index) const;

 private:
  void open(std::span<const std::byte> bytes, const MdsShardInfo& info);

  InputFile input_;
  MappedFile file_;
  std::vector<char> unpacked_;  // decompressed file; not a string, whose bytes may move with it
  std::string source_;
  std::vector<std::optional<uint32_t>> sizes_;  // by column
  std::vector<std::string> names_;
  std::span<const std::byte> bytes_;
  int64_t num_samples_ = 0;
};

// The shards of a folder, as listed in its index.
class MdsFolder {
 public:
  // `folder`: a path, or a remote address (http(s)://, s3://). Errors: those of read_file, fetch_text and
  // parse_mds_index; corrupt for an index without samples, and for shards with different columns.
  explicit MdsFolder(std::filesystem::path folder);

  const std::filesystem::path& path() const { return path_; }
  const std::vector<MdsShardInfo>& shards() const { return shards_; }
  const std::vector<MdsColumn>& columns() const { return shards_.front().columns; }
  int64_t num_samples() const { return num_samples_; }
  bool remote() const { return remote_; }
  // Errors: not_found, naming the file; those of MdsShard, and of FileCache::get for a remote shard. A remote shard
  // that arrives damaged is fetched a second time.
  MdsShard open(size_t shard) const;
  // REQUIRES remote(). remote_file: the file to fetch for a shard; open: the shard, from the fetched file. If the index
  // has no hash for the file, its version is requested from the server, once. Errors: as find_remote.
  RemoteFile remote_file(size_t shard) const;
  MdsShard open(size_t shard, FileCache::File fetched) const;

 private:
  std::filesystem::path path_;
  bool remote_ = false;
  std::vector<MdsShardInfo> shards_;
  // Versions reported by the server, by remote shard; shared, since copies of an MdsFolder stand for the same folder.
  std::shared_ptr<std::deque<Guarded<std::optional<std::string>>>> versions_;
  int64_t num_samples_ = 0;
};

struct MdsWriterSettings {
  std::string compression;                                 // empty: uncompressed
  std::vector<std::string> hashes;                         // in any order
  std::optional<uint64_t> size_limit = uint64_t{1} << 26;  // bytes per shard, as the format counts them
};

// Writes a folder of shards. index.json is written last, so a folder without it is incomplete.
//
//   MdsWriter writer(folder, {{"text", parse_mds_encoding("str")}}, {});
//   writer.write(std::array<std::string_view, 1>{text});
//   writer.finish();
class MdsWriter {
 public:
  // Creates the folder. Errors: usage when the folder is not empty, for no columns, for two of the same name, and for a
  // size limit of 2^32 or more; unsupported for an unknown compression or hash.
  MdsWriter(std::filesystem::path folder, std::vector<MdsColumn> columns, const MdsWriterSettings& settings);

  const std::vector<MdsColumn>& columns() const { return next_.columns; }  // sorted by name: the order of values
  int64_t num_samples() const { return num_samples_; }
  int64_t num_shards() const { return std::ssize(shards_); }  // written so far

  // One encoded value per column. Errors: corrupt, naming the column, for a value that is invalid in its encoding;
  // resource for a shard beyond 4 GiB; those of write_file.
  void write(std::span<const std::string_view> values);
  // Errors: usage if no sample was written; those of write_file.
  void finish();

 private:
  void flush();

  std::filesystem::path path_;
  MdsShardInfo next_;
  std::string config_;  // JSON stored in each shard
  std::vector<MdsShardInfo> shards_;
  std::vector<uint32_t> sizes_;  // by sample of the next shard
  std::string samples_;
  int64_t num_samples_ = 0;
};

}  // namespace ingot::formats
