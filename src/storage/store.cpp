#include "storage/store.h"

#include <algorithm>
#include <fstream>
#include <system_error>

#include "base/error.h"
#include "base/file.h"
#include "base/path.h"
#include "storage/http_attempts.h"
#include "storage/s3_store.h"
#include "storage/uri.h"

namespace ingot {

namespace {

namespace fs = std::filesystem;

constexpr size_t chunk_bytes = size_t{16} << 20;  // of a file, between two calls of progress

class FolderStore : public Store {
 public:
  FolderStore(fs::path folder, StoreOptions options) : folder_(std::move(folder)), options_(std::move(options)) {
    if (!folder_.has_filename()) folder_ = folder_.parent_path();  // "folder/"
    make_folders(folder_);
  }

  std::string uri(const std::string& key) const override { return (folder_ / key).string(); }

  std::optional<StoredObject> find(const std::string& key) const override {
    const fs::path path = path_of(key);
    std::error_code error;
    if (!regular_file_exists(path)) return std::nullopt;
    const uint64_t bytes = fs::file_size(path, error);
    if (error) return std::nullopt;  // removed meanwhile
    return StoredObject{key, bytes, ""};
  }

  std::string get(const std::string& key, uint64_t first, uint64_t bytes) const override {
    const MappedFile file(path_of(key));
    const uint64_t begin = std::min<uint64_t>(first, file.bytes().size());
    const auto part = file.bytes().subspan(begin, std::min<uint64_t>(bytes, file.bytes().size() - begin));
    return {reinterpret_cast<const char*>(part.data()), part.size()};
  }

  void get_file(const std::string& key, const fs::path& out) const override {
    fetch(path_of(key).string(), out, options_.attempts);
  }

  void put(const std::string& key, std::span<const std::byte> bytes) override {
    const fs::path path = path_of(key);
    make_folders(path.parent_path());
    FileWriter writer(path);
    for (size_t at = 0; at < bytes.size(); at += chunk_bytes) {
      if (options_.attempts.progress && !options_.attempts.progress(at, bytes.size())) throw_stopped(uri(key));
      writer.write(bytes.subspan(at, std::min(chunk_bytes, bytes.size() - at)));
    }
    writer.publish();
  }

  void put_file(const std::string& key, const fs::path& file) override { put(key, MappedFile(file).bytes()); }

  std::vector<StoredObject> list(const std::string& prefix) const override {
    std::vector<StoredObject> objects;
    std::error_code failed;
    do {
      objects.clear();
      for (fs::recursive_directory_iterator at(folder_, failed), end; !failed && at != end; at.increment(failed)) {
        const std::string key = at->path().lexically_relative(folder_).generic_string();
        std::error_code gone;  // removed meanwhile
        if (!at->is_regular_file(gone) || !key.starts_with(prefix)) continue;
        const uint64_t bytes = at->file_size(gone);
        if (!gone) objects.push_back({key, bytes, ""});
      }
      // Listing ends early when a subfolder is removed meanwhile; it is then repeated.
    } while (failed == std::errc::no_such_file_or_directory && path_exists(folder_));
    if (failed) throw_error(ErrorKind::unavailable, "{}: cannot be listed: {}", folder_.string(), failed.message());
    std::sort(objects.begin(), objects.end(), [](const auto& a, const auto& b) { return a.key < b.key; });
    return objects;
  }

  void remove(const std::string& key) override {
    std::error_code error;
    const fs::path path = path_of(key);
    fs::remove(path, error);
    if (error) throw_error(ErrorKind::unavailable, "{}: cannot be removed: {}", uri(key), error.message());
    // Removes parent folders that are now empty: they exist only for their contents, as prefixes of keys do.
    for (fs::path above = path.parent_path(); above != folder_ && fs::remove(above, error);)
      above = above.parent_path();
  }

  int64_t abort_unfinished_uploads(const std::string& prefix) override {
    int64_t dropped = 0;
    for (const StoredObject& object : list(prefix)) {
      if (!object.key.ends_with(".partial")) continue;
      remove(object.key);
      ++dropped;
    }
    return dropped;
  }

 private:
  // Errors: usage for a key that leads out of the folder.
  fs::path path_of(const std::string& key) const {
    for (const fs::path& part : fs::path(key)) {
      if (part == "..") throw_error(ErrorKind::usage, "{}: the key points outside {}", key, folder_.string());
    }
    return folder_ / fs::path(key).relative_path();
  }

  fs::path folder_;
  StoreOptions options_;
};

}  // namespace

std::unique_ptr<Store> open_store(const std::string& text, const StoreOptions& options) {
  const Uri uri = parse_uri(text);
  switch (uri.scheme) {
    case UriScheme::file: return std::make_unique<FolderStore>(uri.path, options);
    case UriScheme::s3: return std::make_unique<S3Store>(read_s3_config(), uri.bucket, uri.key, options);
    case UriScheme::http:
    case UriScheme::https: break;
  }
  throw_hint(ErrorKind::usage, "give an s3:// address or a folder", "{}: cannot write to an HTTP server", uri.shown);
}

}  // namespace ingot
