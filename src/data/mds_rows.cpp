#include "data/mds_rows.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "data/source.h"
#include "formats/npy_dtype.h"
#include "storage/uri.h"

namespace ingot::data {

namespace fs = std::filesystem;

namespace {

using EncodingKind = formats::MdsEncoding::Kind;

bool holds_tokens(const formats::MdsColumn& column) {
  if (column.name != "tokens") return false;
  const formats::MdsEncoding& encoding = column.encoding;
  return encoding.kind == EncodingKind::bytes ||
         (encoding.kind == EncodingKind::array && (encoding.dtype.empty() || encoding.dtype[0] != 'f') &&
          encoding.shape.size() <= 1);
}

bool holds_text(const formats::MdsColumn& column) {
  return column.name == "text" && column.encoding.kind == EncodingKind::text;
}

std::string list(const std::vector<formats::MdsColumn>& columns) {
  std::string text;
  for (const formats::MdsColumn& column : columns) {
    text += fmt::format("{}{} ({})", text.empty() ? "" : ", ", column.name, column.encoding.name);
  }
  return text;
}

std::vector<int64_t> numbers(const formats::MdsEncoding& encoding, std::string_view value) {
  if (encoding.kind == EncodingKind::bytes) {
    if (value.size() % 8 != 0) {
      throw_error(ErrorKind::corrupt, "its tokens have {} bytes, which is not a whole number of int64", value.size());
    }
    return formats::npy_integers("i8", value);
  }
  const formats::MdsArray array = formats::read_mds_array(encoding, value);
  if (array.dtype[0] == 'f' || array.shape.size() != 1) {
    throw_error(ErrorKind::corrupt, "its tokens are an array of dtype {} and {} dimensions, not a list of integers",
                array.dtype, array.shape.size());
  }
  return formats::npy_integers(array.dtype, array.bytes);
}

}  // namespace

bool is_mds_folder(const fs::path& path) {
  std::error_code ignored;
  if (!is_remote(path.string())) return fs::is_directory(path, ignored) && fs::exists(path / "index.json", ignored);
  return !is_remote_file(path) && input_exists(uri_below(path.string(), "index.json"));
}

MdsRows::MdsRows(const fs::path& folder, Format format) : folder_(folder) {
  if (format != Format::automatic && format != Format::tokens && format != Format::text) {
    throw_hint(ErrorKind::usage, "give the format auto, tokens or text",
               "{}: is a folder of MDS shards, but the requested format is {}", shown(folder.string()), name(format));
  }
  const std::vector<formats::MdsColumn>& columns = folder_.columns();
  auto found = columns.end();
  if (format != Format::text) found = std::find_if(columns.begin(), columns.end(), holds_tokens);
  tokens_ = found != columns.end();
  if (!tokens_ && format != Format::tokens) found = std::find_if(columns.begin(), columns.end(), holds_text);
  if (found == columns.end()) {
    throw_hint(ErrorKind::unsupported,
               "supported columns: tokens (bytes, which are int64, or an ndarray of integers) or text (str)",
               "{}: its columns are {}", shown(folder.string()), list(columns));
  }
  column_ = static_cast<size_t>(found - columns.begin());
}

bool MdsRows::advance() {
  ++sample_;
  while (!shard_ || sample_ == shard_->num_samples()) {
    shard_.reset();
    if (next_shard_ == folder_.shards().size()) return false;
    if (folder_.remote()) {
      shard_.emplace(folder_.open(next_shard_, prefetched()));
    } else {
      shard_.emplace(folder_.open(next_shard_));
    }
    ++next_shard_;
    sample_ = 0;
  }
  ++row_;
  return true;
}

// Returns the next remote shard; those after it are fetched meanwhile.
FileCache::File MdsRows::prefetched() {
  if (!prefetch_) {
    prefetch_ = std::make_unique<FilePrefetch>(FileCache(FileCache::from_environment()), folder_.shards().size(),
                                               [folder = folder_](size_t shard) { return folder.remote_file(shard); });
  }
  try {
    return prefetch_->next();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::not_found) throw;
    throw Error(error.kind(), error.message(), "the index lists this shard: upload it, or write the data set again");
  }
}

Document MdsRows::read() const {
  const std::string_view value = shard_->sample(sample_)[column_];
  const formats::MdsEncoding& encoding = folder_.columns()[column_].encoding;
  Document document;
  document.format = format();
  document.line = row_;
  if (!tokens_) {
    formats::check_mds_value(encoding, value);
    document.text = value;
    return document;
  }
  for (const int64_t id : numbers(encoding, value)) {
    if (id < 0 || !std::in_range<int32_t>(id)) throw_error(ErrorKind::corrupt, "{} is not a token id", id);
    document.ids.push_back(static_cast<int32_t>(id));
  }
  if (document.ids.empty()) throw_error(ErrorKind::corrupt, "it has no tokens");
  document.loss_mask.assign(document.ids.size(), 1);
  document.splittable = true;
  return document;
}

}  // namespace ingot::data
