// A cache of remote files on local disk, shared by all processes. Its size is bounded; least recently used files are
// evicted first.
//
// All state is in the folder. Each entry is one file, complete or absent. A process that uses an entry holds a shared
// lock on it; a process that fetches one holds an exclusive lock file beside it. Only entries that nobody uses are
// removed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "storage/fetch.h"

namespace ingot {

struct RemoteFile {
  std::string uri;      // http(s):// or s3://
  std::string version;  // identifies the contents (an ETag, a time, a digest): another version is another file
  uint64_t bytes = 0;   // 0: unknown
  bool lasting = true;  // false: the server reports no version, so the entry is for this process alone
};

// The server's data about a file; nothing when the file does not exist. If the server refuses HEAD requests or reports
// no version, the version is unique to this process. Errors: as fetch.
std::optional<RemoteFile> find_remote(const std::string& uri, const FetchOptions& options = {});

class FileCache {
 public:
  struct Settings {
    std::filesystem::path folder;
    uint64_t limit = uint64_t{64} << 30;  // bytes
    FetchOptions attempts;
  };
  // Settings from INGOT_CACHE (a folder; default: `cache` in INGOT_HOME, which is ~/.ingot by default) and
  // INGOT_CACHE_BYTES (a number, optionally with a suffix K, M, G or T, powers of 1024). Errors: usage for any other
  // size, and when there is no folder.
  static Settings from_environment();

  explicit FileCache(Settings settings);

  // A file that is not evicted while this object lives. Movable.
  class File {
   public:
    File() = default;
    File(std::filesystem::path path, int descriptor) : path_(std::move(path)), descriptor_(descriptor) {}
    File(File&& other) noexcept;
    File& operator=(File&& other) noexcept;
    ~File();
    const std::filesystem::path& path() const { return path_; }
    uint64_t bytes() const;
    File shared() const;  // another handle of the same file

   private:
    friend class FileCache;
    std::filesystem::path path_;
    int descriptor_ = -1;
  };

  // The cached file, which is fetched first if it is missing. Waits while another process fetches it, and while there
  // is no room for it until the fetches of others are done. Errors: as fetch; resource, naming the limit, when evicting
  // everything that is not in use leaves too little room.
  File get(const RemoteFile& file) const;
  // `get` polls `wanted` and ends (unavailable) when it returns false.
  void go_on_while(std::function<bool()> wanted);
  // Removes a damaged entry. A file that another process has put in its place meanwhile stays.
  static void drop(const File& file);

 private:
  std::filesystem::path entry_of(const RemoteFile& file) const;
  std::optional<File> open(const std::filesystem::path& entry) const;
  bool make_room(const RemoteFile& file, const std::function<void()>& reserve) const;

  Settings settings_;
};

// An input file, local or remote. Its bytes are at `path` as long as this object lives.
struct InputFile {
  std::string shown;           // for messages
  std::filesystem::path path;  // local path
  FileCache::File held;        // of a remote file: keeps it in the cache
};
// `path` is a local path, or the address of a remote file, which is fetched into the cache of
// FileCache::from_environment. Errors: for a remote file those of find_remote and FileCache::get, and not_found; for a
// local path none, since it is not checked.
InputFile input_file(const std::filesystem::path& path);
// Whether the file exists. A server that refuses to say (S3 answers 403 to those who may not list the bucket) counts as
// no. Errors: for a remote file those of find_remote.
bool input_exists(const std::filesystem::path& path);

// Returns files in a fixed order; its own threads fetch the next ones while the caller works on the current one.
class FilePrefetch {
 public:
  // `file(i)` returns the address of the i-th of `files`. Any thread may call it until this object is destroyed; an
  // exception that it throws is that file's error. `ahead`: how many files may be fetched in advance; `threads`:
  // concurrent fetches.
  FilePrefetch(const FileCache& cache, size_t files, std::function<RemoteFile(size_t)> file, int ahead = 8,
               int threads = 4);
  FilePrefetch(const FilePrefetch&) = delete;
  FilePrefetch& operator=(const FilePrefetch&) = delete;
  ~FilePrefetch();  // stops fetches in progress

  // The next file, in order. Release the previous one first: there may be room for only one. Errors: as FileCache::get,
  // for the file whose turn it is. REQUIRES that a file is left.
  FileCache::File next();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ingot
