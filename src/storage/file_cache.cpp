#include "storage/file_cache.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <map>
#include <system_error>
#include <thread>

#include "base/descriptor.h"
#include "base/environment.h"
#include "base/error.h"
#include "base/file.h"
#include "base/mutex.h"
#include "base/path.h"
#include "base/threads.h"
#include "storage/http_attempts.h"
#include "storage/path_lock.h"
#include "storage/s3_store.h"
#include "storage/uri.h"

namespace ingot {

namespace {

namespace fs = std::filesystem;

constexpr double hours_of_partials = 24;  // partial files of interrupted transfers are kept this long, to be continued

std::string digest_of(const std::string& text) { return sha256_hex(std::as_bytes(std::span(text))); }

uint64_t bytes_of(const char* text) {
  char* end = nullptr;
  errno = 0;
  const unsigned long long number = std::strtoull(text, &end, 10);
  const std::string unit(end);
  const size_t shift = unit.empty() ? 0
                       : std::string("KMGT").find(unit) == std::string::npos
                           ? 99
                           : 10 * (1 + std::string("KMGT").find(unit));
  if (end == text || *text == '-' || errno != 0 || unit.size() > 1 || shift > 40 || number > (~uint64_t{0} >> shift) ||
      number == 0) {
    throw_hint(ErrorKind::usage, "give a number of bytes, such as 20G", "INGOT_CACHE_BYTES '{}' is not a size", text);
  }
  return uint64_t{number} << shift;
}

std::optional<S3Bucket> bucket_of(const Uri& uri) {
  if (uri.scheme != UriScheme::s3) return std::nullopt;
  return S3Bucket(read_s3_config(), uri.bucket);
}

// The server's answer to a HEAD request for a file.
AttemptsResult ask(const Uri& uri, const std::optional<S3Bucket>& bucket, const FetchOptions& options) {
  Attempts attempts;
  attempts.size = [] { return uint64_t{0}; };
  attempts.total = attempts.size;
  attempts.once = [&] {
    HttpRequest request{
        .method = "HEAD", .connect_timeout_s = options.connect_timeout_s, .stall_timeout_s = options.stall_timeout_s};
    request.keep_going = [&] { return !options.progress || options.progress(0, 0); };
    if (bucket) {
      bucket->address(request, uri.key);
    } else {
      request.url = uri.text;
      request.headers = options.headers;
    }
    return http_perform(request);
  };
  return attempt(uri.shown, options, attempts);
}

[[noreturn]] void fail(const Uri& uri, const std::optional<S3Bucket>& bucket, const AttemptsResult& failed) {
  if (bucket) bucket->fail(uri.shown, failed);
  throw_http(uri.shown, failed);
}

}  // namespace

std::optional<RemoteFile> find_remote(const std::string& text, const FetchOptions& options) {
  const Uri uri = parse_uri(text);
  const std::optional<S3Bucket> bucket = bucket_of(uri);
  const AttemptsResult found = ask(uri, bucket, options);
  const HttpResult& result = found.result;
  if (result.outcome == HttpOutcome::missing) return std::nullopt;
  std::string version = result.etag;
  if (version.empty() && !result.last_modified.empty()) {
    version = fmt::format("{} {}", result.last_modified, result.length);  // the time has a resolution of seconds
  }
  if (result.outcome == HttpOutcome::done && !version.empty()) return RemoteFile{text, version, result.length};
  const bool unasked = result.outcome == HttpOutcome::done || (!bucket && result.status >= 400 && result.status < 500);
  if (unasked) {
    const auto now = std::chrono::system_clock::now().time_since_epoch().count();
    return RemoteFile{text, fmt::format("{}-{}", ::getpid(), now),
                      result.outcome == HttpOutcome::done ? result.length : 0, false};
  }
  fail(uri, bucket, found);
}

FileCache::Settings FileCache::from_environment() {
  Settings settings;
  const auto value = [](const char* name) {
    const char* text = environment(name);
    return std::string(text == nullptr ? "" : text);
  };
  if (const std::string folder = value("INGOT_CACHE"); !folder.empty()) {
    settings.folder = folder;
  } else if (const std::string home = value("INGOT_HOME"); !home.empty()) {
    settings.folder = fs::path(home) / "cache";
  } else if (const std::string home_of_user = value("HOME"); !home_of_user.empty()) {
    settings.folder = fs::path(home_of_user) / ".ingot" / "cache";
  } else {
    throw_hint(ErrorKind::usage, "set INGOT_CACHE to a folder",
               "remote files need a cache folder, but none of INGOT_CACHE, INGOT_HOME and HOME is set");
  }
  if (const std::string bytes = value("INGOT_CACHE_BYTES"); !bytes.empty()) settings.limit = bytes_of(bytes.c_str());
  return settings;
}

FileCache::FileCache(Settings settings) : settings_(std::move(settings)) {
  try {
    make_folders(settings_.folder);
  } catch (const Error& error) {
    throw Error(error.kind(), error.message(), "set INGOT_CACHE to another folder");
  }
}

FileCache::File::File(File&& other) noexcept
    : path_(std::move(other.path_)), descriptor_(std::exchange(other.descriptor_, -1)) {}

FileCache::File& FileCache::File::operator=(File&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

FileCache::File::~File() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

uint64_t FileCache::File::bytes() const {
  struct stat opened{};
  if (::fstat(descriptor_, &opened) != 0) {
    throw_error(ErrorKind::unavailable, "{}: {}", path_.string(), errno_message(errno));
  }
  return static_cast<uint64_t>(opened.st_size);
}

FileCache::File FileCache::File::shared() const {
  const int descriptor = ::fcntl(descriptor_, F_DUPFD_CLOEXEC, 0);
  if (descriptor < 0) throw_error(ErrorKind::resource, "{}: {}", path_.string(), errno_message(errno));
  return {path_, descriptor};
}

fs::path FileCache::entry_of(const RemoteFile& file) const {
  std::string name = parse_uri(file.uri).file_name;
  for (char& c : name) {
    const bool plain = std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '.' || c == '-' || c == '_';
    if (!plain) c = '_';
  }
  if (name.size() > 80) name = name.substr(name.size() - 80);
  return settings_.folder / (digest_of(file.uri + "\n" + file.version).substr(0, 40) + "-" + name);
}

// Nothing when the entry does not exist.
std::optional<FileCache::File> FileCache::open(const fs::path& entry) const {
  const int descriptor = ::open(entry.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) return std::nullopt;
  File file(entry, descriptor);
  struct stat opened{}, named{};
  // An exclusive lock is held only by processes that are removing the file.
  if (::flock(descriptor, LOCK_SH | LOCK_NB) != 0 || ::fstat(descriptor, &opened) != 0 ||
      ::stat(entry.c_str(), &named) != 0 || opened.st_ino != named.st_ino) {
    return std::nullopt;
  }
  ::futimens(descriptor, nullptr);  // sets the time of last use
  return file;
}

FileCache::File FileCache::get(const RemoteFile& file) const {
  const fs::path entry = entry_of(file);
  for (;;) {
    if (std::optional<File> found = open(entry)) return std::move(*found);
    const PathLock lock(entry.string() + ".lock", settings_.attempts);
    if (std::optional<File> found = open(entry)) return std::move(*found);
    while (!make_room(file, [&] { lock.reserve(file.bytes); })) {
      if (settings_.attempts.progress && !settings_.attempts.progress(0, 0)) throw_stopped(parse_uri(file.uri).shown);
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    fetch(file.uri, entry, settings_.attempts);
    std::optional<File> fetched = open(entry);
    if (!fetched) continue;  // another process has removed it
    const uint64_t bytes = fetched->bytes();
    if (file.bytes == 0 || bytes == file.bytes) return std::move(*fetched);
    drop(*fetched);
    throw_hint(ErrorKind::corrupt, "try again if the file has just changed; otherwise upload the right file",
               "{}: downloaded {} bytes, expected {}", parse_uri(file.uri).shown, bytes, file.bytes);
  }
}

void FileCache::go_on_while(std::function<bool()> wanted) {
  settings_.attempts.progress = [wanted = std::move(wanted)](uint64_t, uint64_t) { return wanted(); };
}

void FileCache::drop(const File& file) {
  struct stat opened{}, named{};
  if (::fstat(file.descriptor_, &opened) == 0 && ::stat(file.path_.c_str(), &named) == 0 &&
      opened.st_ino == named.st_ino && opened.st_dev == named.st_dev) {
    ::unlink(file.path_.c_str());
  }
}

// Evicts the least recently used files that are not in use until `file` fits, then calls `reserve`. False when it will
// fit only after other processes have finished their fetches.
bool FileCache::make_room(const RemoteFile& file, const std::function<void()>& reserve) const {
  const PathLock lock(settings_.folder / "room.lock", settings_.attempts);
  struct Entry {
    fs::path path;
    uint64_t bytes = 0;
    fs::file_time_type used;
  };
  const fs::path own_entry = entry_of(file);
  // What others are fetching, with the full size of each file.
  std::map<std::string, uint64_t> reserved;
  for (const fs::path& path : list_folder(settings_.folder)) {
    if (path.extension() != ".lock" || path.stem() == "room" || path.stem() == own_entry.filename()) continue;
    if (const std::optional<uint64_t> bytes = PathLock::reserved(path)) reserved[path.stem().string()] = *bytes;
  }
  std::vector<Entry> entries;
  uint64_t others = 0, total = file.bytes;
  for (const auto& [name, bytes] : reserved) others += bytes;
  for (const fs::path& path : list_folder(settings_.folder)) {
    std::error_code gone, unknown;
    Entry entry{path, fs::file_size(path, gone), fs::last_write_time(path, unknown)};
    const std::string extension = entry.path.extension().string();
    if (gone || unknown || extension == ".lock" || extension == ".origin") continue;
    const bool partial = extension == ".partial";
    const fs::path name = partial ? entry.path.stem() : entry.path.filename();
    if (name == own_entry.filename()) continue;
    if (const auto fetching = reserved.find(name.string()); fetching != reserved.end()) {
      others += entry.bytes > fetching->second ? entry.bytes - fetching->second : 0;
      continue;
    }
    total += entry.bytes;
    // Another process may continue a partial file.
    const auto age = fs::file_time_type::clock::now() - entry.used;
    if (partial && std::chrono::duration<double, std::ratio<3600>>(age).count() < hours_of_partials) continue;
    entries.push_back(std::move(entry));
  }
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) { return a.used < b.used; });
  for (const Entry& entry : entries) {
    if (total + others <= settings_.limit) break;
    const Descriptor descriptor(
        ::open(entry.path.c_str(), O_RDWR | O_CLOEXEC));  // NFS gives an exclusive lock only for writing
    if (descriptor.fd < 0) continue;
    if (::flock(descriptor.fd, LOCK_EX | LOCK_NB) == 0 && ::unlink(entry.path.c_str()) == 0) total -= entry.bytes;
  }
  if (total + others <= settings_.limit) {
    reserve();
    return true;
  }
  if (total > settings_.limit) {
    throw_hint(ErrorKind::resource,
               fmt::format("raise INGOT_CACHE_BYTES (it is {} bytes), or set INGOT_CACHE to a folder on another disk",
                           settings_.limit),
               "{}: the cache {} has no room for its {} bytes: {} bytes are in use", parse_uri(file.uri).shown,
               settings_.folder.string(), file.bytes, total - file.bytes);
  }
  return false;
}

InputFile input_file(const fs::path& path) {
  if (!is_remote(path.string())) return {path.string(), path, {}};
  const std::string shown = parse_uri(path.string()).shown;
  const std::optional<RemoteFile> found = find_remote(path.string());
  if (!found) throw_hint(ErrorKind::not_found, "check the address", "{}: there is no such file", shown);
  FileCache::File held = FileCache(FileCache::from_environment()).get(*found);
  fs::path here = held.path();
  return {shown, std::move(here), std::move(held)};
}

bool input_exists(const fs::path& path) {
  std::error_code ignored;
  if (!is_remote(path.string())) return fs::is_regular_file(path, ignored);
  const Uri uri = parse_uri(path.string());
  const std::optional<S3Bucket> bucket = bucket_of(uri);
  const AttemptsResult found = ask(uri, bucket, {});
  if (found.result.outcome == HttpOutcome::done) return true;
  const long status = found.result.status;
  if (found.result.outcome == HttpOutcome::missing || status == 401 || status == 403 || status == 405) return false;
  fail(uri, bucket, found);
}

struct FilePrefetch::State {
  struct Slot {
    bool taken = false;  // by a thread that fetches it
    bool ready = false;
    bool waiting = false;  // for its turn, because there is no room
    FileCache::File file;
    std::exception_ptr error;
  };
  struct Queue {
    std::vector<Slot> slots;
    size_t next = 0;       // to be returned
    bool alone = false;    // only the next file is fetched, because there is little room
    bool awaited = false;  // by next(), whose caller has released the previous file
    bool stop = false;
  };

  FileCache cache;
  std::function<RemoteFile(size_t)> file;
  size_t ahead = 1;
  std::atomic<bool> stop = false;
  Guarded<Queue> queue;
  std::vector<std::thread> threads;

  explicit State(const FileCache& from) : cache(from) {
    cache.go_on_while([this] { return !stop; });
  }

  void end() {
    stop = true;
    queue.lock()->stop = true;
    queue.notify_all();
    for (std::thread& thread : threads) thread.join();
  }

  // The file, or its error. A file for which there is no room waits for its turn, and is then fetched alone.
  Slot fetch_one(size_t index) {
    Slot slot;
    for (bool alone = false;; alone = true) {
      try {
        slot.file = cache.get(file(index));
        return slot;
      } catch (const Error& error) {
        if (alone || error.kind() != ErrorKind::resource) {
          slot.error = std::current_exception();
          return slot;
        }
      } catch (...) {
        slot.error = std::current_exception();
        return slot;
      }
      wait_alone(index);
    }
  }

  // Waits until it is the file's turn, and no other file is ready or being fetched.
  void wait_alone(size_t index) {
    auto held = queue.lock();
    held->slots[index].waiting = true;
    queue.notify_all();
    held.wait([&](const Queue& q) { return q.stop || (q.next == index && q.awaited); });
    held->alone = true;
    for (size_t i = index + 1; i < held->slots.size(); ++i) {
      Slot& slot = held->slots[i];
      if (slot.ready) slot = Slot();  // it will be fetched again
    }
    held.wait([&](const Queue& q) {
      return q.stop || std::none_of(q.slots.begin(), q.slots.end(),
                                    [](const Slot& s) { return s.taken && !s.ready && !s.waiting; });
    });
    for (size_t i = index + 1; i < held->slots.size(); ++i) {  // those that became ready meanwhile
      Slot& slot = held->slots[i];
      if (slot.ready) slot = Slot();
    }
    held->slots[index].waiting = false;
  }

  void work() {
    for (;;) {
      size_t index = 0;
      {
        auto held = queue.lock();
        const auto free = [&](const Queue& q) {
          if (q.alone) return q.slots.size();
          for (size_t i = q.next; i < std::min(q.slots.size(), q.next + ahead); ++i) {
            if (!q.slots[i].taken) return i;
          }
          return q.slots.size();
        };
        held.wait([&](const Queue& q) { return q.stop || q.next == q.slots.size() || free(q) < q.slots.size(); });
        if (held->stop || held->next == held->slots.size()) return;
        index = free(*held);
        held->slots[index].taken = true;
      }
      Slot fetched = fetch_one(index);
      fetched.taken = fetched.ready = true;
      {
        auto held = queue.lock();
        held->slots[index] = std::move(fetched);
        if (index == held->next) held->alone = false;
      }
      queue.notify_all();
    }
  }
};

FilePrefetch::FilePrefetch(const FileCache& cache, size_t files, std::function<RemoteFile(size_t)> file, int ahead,
                           int threads)
    : state_(std::make_unique<State>(cache)) {
  state_->file = std::move(file);
  state_->ahead = static_cast<size_t>(ahead);
  state_->queue.lock()->slots.resize(files);
  try {
    state_->threads.reserve(static_cast<size_t>(threads));
    for (int i = 0; i < threads; ++i) {
      state_->threads.push_back(start_thread("fetching files", [state = state_.get()] { state->work(); }));
    }
  } catch (...) {
    state_->end();
    throw;
  }
}

FilePrefetch::~FilePrefetch() { state_->end(); }

FileCache::File FilePrefetch::next() {
  FileCache::File file;
  std::exception_ptr error;
  {
    auto held = state_->queue.lock();
    held->awaited = true;
    state_->queue.notify_all();
    held.wait([](const State::Queue& q) { return q.slots[q.next].ready; });
    held->awaited = false;
    State::Slot& slot = held->slots[held->next++];
    file = std::move(slot.file);
    error = slot.error;
  }
  state_->queue.notify_all();
  if (error) std::rethrow_exception(error);
  return file;
}

}  // namespace ingot
