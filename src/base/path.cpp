#include "base/path.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "base/error.h"

namespace ingot {
namespace {

namespace fs = std::filesystem;

bool is_short_of(int code) { return code == ENOMEM || code == EMFILE || code == ENFILE; }

// The type of what is at `path`; not_found when nothing is.
fs::file_type type_of(const fs::path& path) {
  std::error_code failed;
  const fs::file_status status = fs::status(path, failed);
  // Where the file is missing or a parent is not a folder, `failed` is set too, but not_found is a valid result.
  if (failed && status.type() != fs::file_type::not_found) throw_unreadable(path, "cannot be examined", failed.value());
  return status.type();
}

}  // namespace

void throw_unreadable(const fs::path& path, const char* what, int code) {
  const std::string words = errno_message(code);
  if (is_short_of(code)) throw_error(ErrorKind::resource, "{}: {}: {}", path.string(), what, words);
  if (code == EIO || code == ESTALE) {
    throw_hint(ErrorKind::unavailable, "check the disk it is on", "{}: {}: {}", path.string(), what, words);
  }
  throw_hint(ErrorKind::not_found, "check the path and its permissions", "{}: {}: {}", path.string(), what, words);
}

void throw_unwritable(const fs::path& path, const char* what, int code) {
  const std::string words = errno_message(code);
  if (is_short_of(code)) throw_error(ErrorKind::resource, "{}: {}: {}", path.string(), what, words);
  if (code == ENOSPC || code == EDQUOT || code == EFBIG) {
    throw_hint(ErrorKind::resource, "free some space, or write to another disk", "{}: {}: {}", path.string(), what,
               words);
  }
  throw_hint(ErrorKind::unavailable, "check the path, and that its folder may be written to", "{}: {}: {}",
             path.string(), what, words);
}

bool path_exists(const fs::path& path) { return type_of(path) != fs::file_type::not_found; }

bool name_exists(const fs::path& path) {
  std::error_code failed;
  const fs::file_status status = fs::symlink_status(path, failed);
  if (failed && status.type() != fs::file_type::not_found) throw_unwritable(path, "cannot be examined", failed.value());
  return status.type() != fs::file_type::not_found;
}

bool is_folder(const fs::path& path) { return type_of(path) == fs::file_type::directory; }

bool regular_file_exists(const fs::path& path) { return type_of(path) == fs::file_type::regular; }

uint64_t regular_file_bytes(const fs::path& path) {
  std::error_code failed;
  const uintmax_t bytes = fs::file_size(path, failed);
  if (failed) throw_unreadable(path, "its size cannot be read", failed.value());
  return bytes;
}

Descriptor open_regular_file(const fs::path& path, struct stat* found) {
  // Without O_NONBLOCK, opening a pipe blocks until somebody writes; regular files ignore the flag.
  Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (file.fd < 0) {
    if (errno == ENOENT) throw_hint(ErrorKind::not_found, "check the path", "{}: there is no such file", path.string());
    throw_unreadable(path, "cannot be opened", errno);
  }
  struct stat info{};
  if (::fstat(file.fd, &info) != 0) throw_unreadable(path, "cannot be examined", errno);
  if (!S_ISREG(info.st_mode)) {
    throw_hint(ErrorKind::not_found, "give the path of a file", "{}: is {}, not a file", path.string(),
               S_ISDIR(info.st_mode) ? "a folder" : "a device or pipe");
  }
  if (found != nullptr) *found = info;
  return file;
}

std::vector<fs::path> list_folder(const fs::path& folder) {
  std::vector<fs::path> found;
  std::error_code failed;
  fs::directory_iterator each(folder, failed);
  for (; !failed && each != fs::directory_iterator(); each.increment(failed)) found.push_back(each->path());
  if (failed) throw_unreadable(folder, "cannot be listed", failed.value());
  std::sort(found.begin(), found.end());
  return found;
}

void make_folders(const fs::path& folder) {
  std::error_code failed;
  fs::create_directories(folder, failed);
  if (failed) throw_unwritable(folder, "the folder cannot be created", failed.value());
}

void remove_path(const fs::path& path) {
  std::error_code failed;
  fs::remove(path, failed);
  if (failed) throw_unwritable(path, "cannot be removed", failed.value());
}

void remove_tree(const fs::path& path) {
  std::error_code failed;
  fs::remove_all(path, failed);
  if (failed) throw_unwritable(path, "cannot be removed", failed.value());
}

void rename_path(const fs::path& from, const fs::path& to) {
  std::error_code failed;
  fs::rename(from, to, failed);
  if (failed) throw_unwritable(from, "cannot be renamed", failed.value());
}

fs::path absolute_path(const fs::path& path) {
  std::error_code failed;
  fs::path absolute = path.empty() ? fs::current_path(failed) : fs::absolute(path, failed);
  if (failed) {
    throw_hint(ErrorKind::unavailable, "change to a folder that exists", "the working folder cannot be read: {}",
               failed.message());
  }
  return absolute;
}

fs::path resolved_path(const fs::path& path) {
  std::error_code failed;
  fs::path resolved = fs::weakly_canonical(absolute_path(path), failed);
  if (failed) throw_unreadable(path, "cannot be followed", failed.value());
  return resolved;
}

std::optional<uint64_t> free_disk_bytes(const fs::path& folder) {
  std::error_code failed;
  const fs::space_info disk = fs::space(folder.empty() ? "." : folder, failed);
  // FUSE file systems without statfs answer zeros.
  return failed || disk.capacity == 0 ? std::nullopt : std::optional<uint64_t>(disk.available);
}

fs::path executable_path() {
  std::error_code failed;
  fs::path path = fs::read_symlink("/proc/self/exe", failed);
  if (failed) throw_unreadable("/proc/self/exe", "cannot be read", failed.value());
  return path;
}

}  // namespace ingot
