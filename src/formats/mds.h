// MDS shards (MosaicML Streaming, version 2): index.json and what it names, read and written to the byte.
// Format: its documentation and files; the writer's files are those of StreamingDataset's own writer for the same
// samples (compressed ones as far as the versions of the compressors are the same, gz but for its header).
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
#include "base/file_cache.h"
#include "base/mutex.h"
#include "formats/mds_encoding.h"

namespace ingot::formats {

struct MdsColumn {
  std::string name;
  MdsEncoding encoding;
};

struct MdsFileInfo {
  std::string basename;  // below the index's folder, may name sub-folders
  uint64_t bytes = 0;
  std::map<std::string, std::string> hashes;  // name of the digest -> hex
};

struct MdsShardInfo {
  std::vector<MdsColumn> columns;   // ascending name
  std::string compression;          // with its level, as in compression.h; empty: none
  std::vector<std::string> hashes;  // names, ascending
  std::optional<uint64_t> size_limit;
  int64_t samples = 0;
  MdsFileInfo raw;
  std::optional<MdsFileInfo> zip;  // the compressed file
};

// Errors: corrupt, naming `source` and shard, for keys that are missing, unknown or wrong, columns that are not sorted
// or whose size is not their encoding's, names of files outside the folder; unsupported for other versions and
// formats, encodings (pkl), compressions and hashes that are not read.
std::vector<MdsShardInfo> parse_mds_index(std::string_view text, const std::string& source);
std::string mds_index_text(std::span<const MdsShardInfo> shards);

// One shard's samples; they point into it. Movable.
class MdsShard {
 public:
  // `packed`: the compressed one. Errors: corrupt for a size or hash that is not the index's, and as below; those of
  // MappedFile and decompress.
  MdsShard(InputFile file, bool packed, const MdsShardInfo& info);
  // The bytes of an uncompressed shard, which must outlive this; `source` stands for the path in messages.
  // Errors: corrupt for a number of samples that is not the index's, and for offsets that do not ascend to the end.
  MdsShard(std::span<const std::byte> bytes, const MdsShardInfo& info, std::string source);

  int64_t num_samples() const { return num_samples_; }
  // The values' bytes, in the order of the columns. REQUIRES 0 <= index < num_samples(). Errors: corrupt, naming file
  // and sample, for sizes that do not add up to the sample's.
  std::vector<std::string_view> sample(int64_t index) const;

 private:
  void open(std::span<const std::byte> bytes, const MdsShardInfo& info);

  InputFile input_;
  MappedFile file_;
  std::vector<char> unpacked_;  // of a compressed file; not a string, whose bytes may move with it
  std::string source_;
  std::vector<std::optional<uint32_t>> sizes_;  // of the columns
  std::vector<std::string> names_;
  std::span<const std::byte> bytes_;
  int64_t num_samples_ = 0;
};

// The shards of a folder, by their index.
class MdsFolder {
 public:
  // `folder`: a path, or a remote address (http(s)://, s3://). Errors: those of read_file, fetch_text and
  // parse_mds_index; corrupt for an index without samples, and for shards whose columns differ.
  explicit MdsFolder(std::filesystem::path folder);

  const std::filesystem::path& path() const { return path_; }
  const std::vector<MdsShardInfo>& shards() const { return shards_; }
  const std::vector<MdsColumn>& columns() const { return shards_.front().columns; }
  int64_t num_samples() const { return num_samples_; }
  bool remote() const { return remote_; }
  // Errors: not_found, naming the file; those of MdsShard, and of FileCache::get for a remote one. A remote one that
  // comes damaged is fetched a second time.
  MdsShard open(size_t shard) const;
  // REQUIRES remote(). What is fetched of a shard, and the shard when that has been. Of one for which the index has no
  // hash the server is asked, once, what version it has. Errors: as find_remote.
  RemoteFile remote_file(size_t shard) const;
  MdsShard open(size_t shard, FileCache::File fetched) const;

 private:
  std::filesystem::path path_;
  bool remote_ = false;
  std::vector<MdsShardInfo> shards_;
  // What the server has said, of remote shards; shared, since copies of a folder are the same folder.
  std::shared_ptr<std::deque<Guarded<std::optional<std::string>>>> versions_;
  int64_t num_samples_ = 0;
};

struct MdsWriterSettings {
  std::string compression;                                 // empty: none
  std::vector<std::string> hashes;                         // in any order
  std::optional<uint64_t> size_limit = uint64_t{1} << 26;  // bytes of a shard, as the format counts them
};

// Writes a folder of shards; index.json comes last, so that a folder without it is not complete.
//
//   MdsWriter writer(folder, {{"text", parse_mds_encoding("str")}}, {});
//   writer.write(std::array<std::string_view, 1>{text});
//   writer.finish();
class MdsWriter {
 public:
  // Makes the folder. Errors: usage when there are files in it, for no column, two of one name, a size limit of 2^32
  // or more; unsupported for a compression or hash that is not known.
  MdsWriter(std::filesystem::path folder, std::vector<MdsColumn> columns, const MdsWriterSettings& settings);

  const std::vector<MdsColumn>& columns() const { return next_.columns; }  // sorted by name: the order of values
  int64_t num_samples() const { return num_samples_; }
  int64_t num_shards() const { return std::ssize(shards_); }  // written so far

  // One value a column, as encoded. Errors: corrupt, naming the column, for a value that is none of the encoding;
  // resource for a shard beyond 4 GiB; those of write_file.
  void write(std::span<const std::string_view> values);
  // Errors: usage without samples; those of write_file.
  void finish();

 private:
  void flush();

  std::filesystem::path path_;
  MdsShardInfo next_;
  std::string config_;  // JSON in each shard
  std::vector<MdsShardInfo> shards_;
  std::vector<uint32_t> sizes_;  // of the samples of the next shard
  std::string samples_;
  int64_t num_samples_ = 0;
};

}  // namespace ingot::formats
