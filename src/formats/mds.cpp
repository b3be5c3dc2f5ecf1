#include "formats/mds.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "base/error.h"
#include "base/path.h"
#include "formats/byte_reader.h"
#include "formats/compression.h"
#include "formats/digest.h"
#include "formats/printable.h"
#include "storage/fetch.h"
#include "storage/uri.h"

namespace ingot::formats {
namespace {

constexpr uint64_t max_index_bytes = uint64_t{1} << 30;

void check_file(std::span<const std::byte> bytes, const MdsFileInfo& info, const std::string& source) {
  if (bytes.size() != info.bytes) {
    throw_hint(ErrorKind::corrupt, "fetch the shard again", "{}: has {} bytes, but the index says {}", source,
               bytes.size(), info.bytes);
  }
  for (const auto& [name, hex] : info.hashes) {
    if (const std::string found = digest_hex(name, bytes); found != hex) {
      throw_hint(ErrorKind::corrupt, "fetch the shard again", "{}: its {} is {}, but the index says {}", source, name,
                 found, printable(hex));
    }
  }
}

template <class T>
T load(std::span<const std::byte> bytes, size_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof(T));
  return value;
}

}  // namespace

MdsShard::MdsShard(InputFile file, bool packed, const MdsShardInfo& info)
    : input_(std::move(file)), file_(input_.path), source_(input_.shown) {
  check_file(file_.bytes(), packed ? *info.zip : info.raw, source_);
  if (!packed) {
    open(file_.bytes(), info);
    return;
  }
  const std::string unpacked = decompress(info.compression, file_.bytes(), info.raw.bytes, source_);
  unpacked_.assign(unpacked.begin(), unpacked.end());
  file_ = MappedFile();
  input_ = InputFile();
  open(std::as_bytes(std::span(unpacked_)), info);
}

MdsShard::MdsShard(std::span<const std::byte> bytes, const MdsShardInfo& info, std::string source)
    : source_(std::move(source)) {
  open(bytes, info);
}

void MdsShard::open(std::span<const std::byte> bytes, const MdsShardInfo& info) {
  ByteReader reader(bytes, source_);
  const auto number = reader.number<uint32_t>("the number of samples");
  if (number != info.samples) {
    throw_error(ErrorKind::corrupt, "{}: holds {} samples, but the index says {}", source_, number, info.samples);
  }
  reader.take(4 * (uint64_t{number} + 1), "the samples' offsets");
  uint32_t before = static_cast<uint32_t>(std::min<size_t>(reader.position(), std::numeric_limits<uint32_t>::max()));
  for (uint64_t i = 0; i <= number; ++i) {
    const auto offset = load<uint32_t>(bytes, 4 + 4 * i);
    if (offset < before || offset > bytes.size()) {
      throw_error(ErrorKind::corrupt, "{}: sample {} begins at {}, out of order or outside the file's {} bytes",
                  source_, i, offset, bytes.size());
    }
    before = offset;
  }
  if (before != bytes.size()) {
    throw_error(ErrorKind::corrupt, "{}: its samples end at {}, the file at {}", source_, before, bytes.size());
  }
  for (const MdsColumn& column : info.columns) {
    sizes_.push_back(column.encoding.size());
    names_.push_back(column.name);
  }
  bytes_ = bytes;
  num_samples_ = number;
}

std::vector<std::string_view> MdsShard::sample(int64_t index) const {
  const size_t offset_position = 4 + 4 * static_cast<size_t>(index);
  const size_t begin = load<uint32_t>(bytes_, offset_position), end = load<uint32_t>(bytes_, offset_position + 4);
  const std::string where = fmt::format("{}: sample {}", source_, index);
  ByteReader reader(bytes_.subspan(begin, end - begin), where);
  std::vector<uint32_t> sizes;
  for (size_t i = 0; i < sizes_.size(); ++i) {
    sizes.push_back(sizes_[i] ? *sizes_[i] : reader.number<uint32_t>("a size"));
  }
  std::vector<std::string_view> values;
  for (size_t i = 0; i < sizes.size(); ++i) {
    const std::span<const std::byte> value = reader.take(sizes[i], names_[i]);
    values.emplace_back(reinterpret_cast<const char*>(value.data()), value.size());
  }
  if (reader.remaining() > 0) {
    throw_error(ErrorKind::corrupt, "{} has {} extra bytes after its columns", where, reader.remaining());
  }
  return values;
}

MdsFolder::MdsFolder(std::filesystem::path folder) : path_(std::move(folder)), remote_(is_remote(path_.string())) {
  const std::string index = remote_ ? uri_below(path_.string(), "index.json") : (path_ / "index.json").string();
  const std::string name = shown(index);
  shards_ = parse_mds_index(remote_ ? fetch_text(index, max_index_bytes) : read_file(index, max_index_bytes), name);
  for (const MdsShardInfo& shard : shards_) {
    num_samples_ += shard.samples;
    const bool same = std::equal(
        shard.columns.begin(), shard.columns.end(), columns().begin(), columns().end(),
        [](const MdsColumn& a, const MdsColumn& b) { return a.name == b.name && a.encoding.name == b.encoding.name; });
    if (!same) {
      throw_error(ErrorKind::corrupt, "{}: the columns of {} differ from those of the first shard", name,
                  printable(shard.raw.basename));
    }
  }
  if (remote_) versions_ = std::make_shared<std::deque<Guarded<std::optional<std::string>>>>(shards_.size());
  if (num_samples_ == 0) {
    throw_hint(ErrorKind::corrupt, "give a folder with at least one sample", "{}: has no samples", name);
  }
}

MdsShard MdsFolder::open(size_t shard) const {
  if (remote_) return open(shard, FileCache(FileCache::from_environment()).get(remote_file(shard)));
  const MdsShardInfo& info = shards_[shard];
  const std::filesystem::path raw = path_ / info.raw.basename;
  const bool packed = info.zip && !path_exists(raw);
  return {input_file(packed ? path_ / info.zip->basename : raw), packed, info};
}

RemoteFile MdsFolder::remote_file(size_t shard) const {
  const MdsShardInfo& info = shards_[shard];
  const MdsFileInfo& file = info.zip ? *info.zip : info.raw;
  RemoteFile found{uri_below(path_.string(), file.basename), fmt::format("{} bytes", file.bytes), file.bytes};
  for (const auto& [name, hex] : file.hashes) found.version += fmt::format(" {}:{}", name, hex);
  if (!file.hashes.empty()) return found;
  auto known = (*versions_)[shard].lock();
  if (!*known) {
    const std::optional<RemoteFile> now = find_remote(found.uri);
    if (!now) throw_hint(ErrorKind::not_found, "check the address", "{}: there is no such file", shown(found.uri));
    *known = now->version;
  }
  found.version += " " + **known;
  return found;
}

MdsShard MdsFolder::open(size_t shard, FileCache::File fetched) const {
  const MdsShardInfo& info = shards_[shard];
  const RemoteFile file = remote_file(shard);
  const auto read = [&](FileCache::File from) {
    const FileCache::File held = from.shared();
    const std::filesystem::path path = from.path();
    try {
      return MdsShard(InputFile{shown(file.uri), path, std::move(from)}, info.zip.has_value(), info);
    } catch (const Error& error) {
      if (error.kind() == ErrorKind::corrupt) FileCache::drop(held);
      throw;
    }
  };
  try {
    return read(std::move(fetched));
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::corrupt) throw;
  }
  const FileCache cache(FileCache::from_environment());
  try {
    return read(cache.get(file));
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::corrupt) throw;
    throw Error(error.kind(), error.message(),
                "it was fetched twice: the stored copy is damaged, or the index belongs to another data set; upload "
                "the right shard, or write the data set again");
  }
}

}  // namespace ingot::formats
