// Copies of remote files on local disk, shared by all processes: at most so many bytes, those used last kept.
//
// All state is in the folder: an entry is a file of its own, complete or absent; who uses one holds a shared lock on
// it, who fetches one an exclusive lock beside it; only entries that nobody uses are removed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/fetch.h"

namespace ingot {

struct RemoteFile {
  std::string uri;      // http(s):// or s3://
  std::string version;  // another version of the same address is another file: an ETag, a time, a digest
  uint64_t bytes = 0;   // 0: not known
  bool lasting = true;  // false: the server tells no version; this one is this process's alone
};

// What the server says of a file. Nothing when there is none. Where it does not answer such a question (HEAD), the
// version is one that no other process has. Errors: as fetch.
std::optional<RemoteFile> find_remote(const std::string& uri, const FetchOptions& options = {});

class FileCache {
 public:
  struct Settings {
    std::filesystem::path folder;
    uint64_t limit = uint64_t{64} << 30;  // bytes
    FetchOptions attempts;
  };
  // INGOT_CACHE (a folder; without: cache below INGOT_HOME, which is ~/.ingot) and INGOT_CACHE_BYTES (a number, or one
  // with K, M, G or T behind it, of 1024). Errors: usage for another size.
  static Settings from_environment();

  explicit FileCache(Settings settings);

  // A file that stays as long as this lives. Movable.
  class File {
   public:
    File() = default;
    File(std::filesystem::path path, int descriptor) : path_(std::move(path)), descriptor_(descriptor) {}
    File(File&& other) noexcept;
    File& operator=(File&& other) noexcept;
    ~File();
    const std::filesystem::path& path() const { return path_; }
    uint64_t bytes() const;
    File shared() const;  // the same once more

   private:
    friend class FileCache;
    std::filesystem::path path_;
    int descriptor_ = -1;
  };

  // Fetches it where it is not there yet; waits where another process is at it, and where others fetch so much now that
  // it has no room before they are done. Errors: as fetch; resource, naming the limit, for a file for which there is no
  // room, all that is there being used or too little.
  File get(const RemoteFile& file) const;
  // Asked now and then by `get`, which ends (unavailable) when it says no.
  void go_on_while(std::function<bool()> wanted);
  // Forgets it: it is damaged. What another process has put in its place meanwhile stays.
  static void drop(const File& file);

 private:
  std::filesystem::path entry_of(const RemoteFile& file) const;
  std::optional<File> open(const std::filesystem::path& entry) const;
  bool make_room(const RemoteFile& file, const std::function<void()>& reserve) const;

  Settings settings_;
};

// A file to be read, wherever it lies: its bytes are in `path` as long as this lives.
struct InputFile {
  std::string shown;           // for messages
  std::filesystem::path path;  // here
  FileCache::File held;        // of a remote one
};
// A path, or the address of a remote file, which is brought into the cache that the environment names. Errors: of a
// remote one, as find_remote and FileCache::get, and not_found; of a path, none: whether it can be read is not looked
// at.
InputFile input_file(const std::filesystem::path& path);
// Whether there is such a file. A server that refuses to say so (S3 answers 403 to those who may not list the bucket)
// says that there is none. Errors: of a remote one, as find_remote.
bool input_exists(const std::filesystem::path& path);

// Gives files in a fixed order, those behind fetched by threads of its own while the one before is worked on.
class FilePrefetch {
 public:
  // `file(i)` says what the i-th of `files` is, in any thread, until this has ended; what it throws is that file's
  // error. `ahead`: files that may lie ready; `threads`: fetched at once.
  FilePrefetch(const FileCache& cache, size_t files, std::function<RemoteFile(size_t)> file, int ahead = 8,
               int threads = 4);
  FilePrefetch(const FilePrefetch&) = delete;
  FilePrefetch& operator=(const FilePrefetch&) = delete;
  ~FilePrefetch();  // stops what is on its way

  // The next file, in order. Let go of the one before first: there may be room for one only. Errors: as FileCache::get,
  // in the file's place. REQUIRES that there is one.
  FileCache::File next();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ingot
