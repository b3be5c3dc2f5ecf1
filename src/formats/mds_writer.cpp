#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/path.h"
#include "formats/compression.h"
#include "formats/digest.h"
#include "formats/mds.h"
#include "formats/mds_json.h"
#include "formats/printable.h"

namespace ingot::formats {
namespace {

constexpr uint64_t max_bytes = std::numeric_limits<uint32_t>::max();  // per shard: offsets are 32-bit

void append(std::string& bytes, uint64_t value) {
  const auto number = static_cast<uint32_t>(value);
  bytes.append(reinterpret_cast<const char*>(&number), sizeof(number));
}

MdsFileInfo describe(std::string_view bytes, std::string basename, const std::vector<std::string>& hashes) {
  MdsFileInfo info{std::move(basename), bytes.size(), {}};
  for (const std::string& name : hashes) info.hashes[name] = digest_hex(name, std::as_bytes(std::span(bytes)));
  return info;
}

}  // namespace

MdsWriter::MdsWriter(std::filesystem::path folder, std::vector<MdsColumn> columns, const MdsWriterSettings& settings)
    : path_(std::move(folder)) {
  std::sort(columns.begin(), columns.end(), [](const MdsColumn& a, const MdsColumn& b) { return a.name < b.name; });
  const auto twice = std::adjacent_find(columns.begin(), columns.end(),
                                        [](const MdsColumn& a, const MdsColumn& b) { return a.name == b.name; });
  if (columns.empty() || twice != columns.end()) {
    throw_error(ErrorKind::usage, "{}: shards need at least one column, and unique column names", path_.string());
  }
  if (settings.size_limit && *settings.size_limit > max_bytes) {
    throw_error(ErrorKind::usage, "a shard must be smaller than 4 GiB, but the size limit is {} bytes",
                *settings.size_limit);
  }
  next_.columns = std::move(columns);
  next_.compression = settings.compression;
  if (!next_.compression.empty()) compression_name(next_.compression);  // throws if not supported
  next_.hashes = settings.hashes;
  std::sort(next_.hashes.begin(), next_.hashes.end());
  next_.hashes.erase(std::unique(next_.hashes.begin(), next_.hashes.end()), next_.hashes.end());
  for (const std::string& name : next_.hashes) digest_hex(name, {});  // throws if not supported
  next_.size_limit = settings.size_limit;
  config_ = python_json(mds_config_json(next_));

  make_folders(path_);
  if (!list_folder(path_).empty()) {
    throw_hint(ErrorKind::usage, "give a new folder, or empty this one", "{}: is not empty", path_.string());
  }
}

void MdsWriter::write(std::span<const std::string_view> values) {
  if (values.size() != next_.columns.size()) {
    throw_error(ErrorKind::internal, "{} values for {} columns", values.size(), next_.columns.size());
  }
  uint64_t size = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const MdsColumn& column = next_.columns[i];
    try {
      check_mds_value(column.encoding, values[i]);
    } catch (const Error& error) {
      throw_error(error.kind(), "column {}: {}", printable(column.name), error.message());
    }
    size += values[i].size() + (column.encoding.size() ? 0 : 4);
  }
  const auto shard_size = [this](uint64_t samples, uint64_t bytes) { return 8 + config_.size() + 4 * samples + bytes; };
  const uint64_t larger = shard_size(sizes_.size() + 1, samples_.size() + size);
  if (next_.size_limit && larger > *next_.size_limit && !sizes_.empty()) flush();
  if (shard_size(sizes_.size() + 1, samples_.size() + size) > max_bytes) {
    throw_hint(ErrorKind::resource, "set a size limit", "{}: a shard would exceed 4 GiB", path_.string());
  }
  for (size_t i = 0; i < values.size(); ++i) {
    if (!next_.columns[i].encoding.size()) append(samples_, values[i].size());
  }
  for (const std::string_view value : values) samples_ += value;
  sizes_.push_back(static_cast<uint32_t>(size));
  ++num_samples_;
}

void MdsWriter::flush() {
  std::string bytes;
  append(bytes, sizes_.size());
  uint64_t offset = 4 + 4 * (sizes_.size() + 1) + config_.size();
  append(bytes, offset);
  for (const uint32_t size : sizes_) append(bytes, offset += size);
  bytes += config_;
  bytes += samples_;

  MdsShardInfo shard = next_;
  shard.samples = std::ssize(sizes_);
  shard.raw = describe(bytes, fmt::format("shard.{:05}.mds", shards_.size()), shard.hashes);
  if (!shard.compression.empty()) {
    bytes = compress(shard.compression, std::as_bytes(std::span(bytes)));
    shard.zip =
        describe(bytes, fmt::format("{}.{}", shard.raw.basename, compression_name(shard.compression)), shard.hashes);
  }
  write_file(path_ / (shard.zip ? shard.zip->basename : shard.raw.basename), bytes);
  shards_.push_back(std::move(shard));
  sizes_.clear();
  samples_.clear();
}

void MdsWriter::finish() {
  if (num_samples_ == 0) throw_error(ErrorKind::usage, "{}: no samples to write", path_.string());
  if (!sizes_.empty()) flush();
  write_file(path_ / "index.json", mds_index_text(shards_));
}

}  // namespace ingot::formats
