#include "base/file.h"

#include <fcntl.h>
#include <openssl/evp.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "base/descriptor.h"
#include "base/error.h"
#include "base/path.h"

namespace ingot {
namespace {

namespace fs = std::filesystem;

bool is_out_of_space(int code) { return code == ENOSPC || code == EDQUOT || code == EFBIG; }

[[noreturn]] void throw_write(const fs::path& path, int code, uint64_t bytes, uint64_t offset) {
  if (!is_out_of_space(code)) {
    throw_hint(ErrorKind::unavailable, "check that the folder exists and may be written to",
               "{}: writing {} bytes at byte {} failed: {}", path.string(), bytes, offset, errno_message(code));
  }
  std::string hint = "free some space, or write to another disk";
  if (const std::optional<uint64_t> free = free_disk_bytes(path.parent_path())) {
    hint += fmt::format(" (this one has {} bytes free)", *free);
  }
  throw_hint(ErrorKind::resource, hint, "{}: no room to write {} bytes at byte {}: {}", path.string(), bytes, offset,
             errno_message(code));
}

// Called when write(2) could not read `bytes`: throws corrupt, naming the file, if they are of a mapped file that was
// truncated.
void require_readable(std::span<const std::byte> bytes) {
  constexpr size_t page = 4096;  // the real page size, or a fraction of it
  for (size_t i = 0; i < bytes.size(); i += page) static_cast<void>(*static_cast<const volatile std::byte*>(&bytes[i]));
  static_cast<void>(*static_cast<const volatile std::byte*>(&bytes.back()));
  check_mapped_files();
}

}  // namespace

MappedFile::MappedFile(const fs::path& path) : path_(path) {
  struct stat info{};
  const Descriptor file = open_regular_file(path, &info);
  if (info.st_size > 0) range_ = std::make_shared<MappedRange>(file.fd, info, path);
}

std::string read_file(const fs::path& path, uint64_t limit) {
  struct stat info{};
  const Descriptor file = open_regular_file(path, &info);
  const auto size = static_cast<uint64_t>(info.st_size);
  // Files under /proc report a size of 0, so the loop reads until the end whatever the size.
  std::string text;
  if (size > limit) {
    throw_error(ErrorKind::resource, "{}: is {} bytes long; at most {} are read", path.string(), size, limit);
  }
  constexpr size_t piece = size_t{1} << 16;
  text.reserve(static_cast<size_t>(size) + piece);  // the last read returns nothing
  for (size_t used = 0;;) {
    const size_t want = std::max<size_t>(piece, static_cast<size_t>(size) - std::min(used, static_cast<size_t>(size)));
    text.resize(used + want);
    const ssize_t got = ::read(file.fd, text.data() + used, want);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      throw_error(ErrorKind::unavailable, "{}: reading at byte {} failed: {}", path.string(), used,
                  errno_message(errno));
    }
    used += static_cast<size_t>(got);
    text.resize(used);
    if (used > limit) {
      throw_error(ErrorKind::resource, "{}: is longer than {} bytes; at most that is read", path.string(), limit);
    }
    if (got == 0) return text;
  }
}

FileWriter::FileWriter(fs::path path, WriteMode mode) : path_(std::move(path)), partial_(path_), mode_(mode) {
  partial_ += ".partial";
  open();
}

void FileWriter::open() {
  const int how = mode_ == WriteMode::resume ? O_APPEND : O_TRUNC;
  // publish() will replace whatever has this name, so it must not be a device, a pipe or a folder.
  struct stat former{};
  if (::stat(path_.c_str(), &former) == 0 && !S_ISREG(former.st_mode)) {
    throw_hint(ErrorKind::unavailable, "give the name of a file", "{}: is {}, not a file", path_.string(),
               S_ISDIR(former.st_mode) ? "a folder" : "a device or pipe");
  }
  fd_ = ::open(partial_.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | how, 0666);
  if (fd_ < 0) {
    const int code = errno;
    if (is_out_of_space(code)) throw_write(path_, code, 0, 0);
    throw_hint(ErrorKind::unavailable, "check that the folder exists and may be written to",
               "{}: cannot be created: {}", path_.string(), errno_message(code));
  }
  if (mode_ == WriteMode::fresh) return;
  Descriptor guard(std::exchange(fd_, -1));
  struct stat info{};
  if (::flock(guard.fd, LOCK_EX | LOCK_NB) != 0 || ::fstat(guard.fd, &info) != 0) {
    throw_hint(ErrorKind::unavailable, "wait for it to end", "{}: another process is writing this file",
               path_.string());
  }
  // The former holder of the lock may have renamed or removed the file, which is then no longer PATH.partial.
  struct stat named{};
  if (::stat(partial_.c_str(), &named) != 0 || named.st_ino != info.st_ino || named.st_dev != info.st_dev) {
    return open();
  }
  offset_ = static_cast<uint64_t>(info.st_size);
  fd_ = std::exchange(guard.fd, -1);
}

void FileWriter::cut(uint64_t bytes) {
  if (offset_ == bytes) return;
  const auto length = static_cast<off_t>(bytes);
  if (::ftruncate(fd_, length) != 0 || ::lseek(fd_, length, SEEK_SET) < 0) throw_write(path_, errno, 0, bytes);
  offset_ = bytes;
}

FileWriter::~FileWriter() {
  if (mode_ == WriteMode::fresh || offset_ == 0) {
    remove();
  } else if (fd_ >= 0) {
    ::close(fd_);
  }
}

// Unlinks the file while it is locked, so that it cannot be another writer's.
void FileWriter::remove() {
  if (fd_ < 0) return;
  ::unlink(partial_.c_str());
  ::close(std::exchange(fd_, -1));
}

void FileWriter::write(std::span<const std::byte> bytes) {
  if (fd_ < 0) throw_error(ErrorKind::internal, "{}: written to after publish", path_.string());
  while (!bytes.empty()) {
    const ssize_t done = ::write(fd_, bytes.data(), bytes.size());
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) {
      const int code = errno;
      if (code == EFAULT) require_readable(bytes);
      throw_write(path_, code, bytes.size(), offset_);
    }
    offset_ += static_cast<uint64_t>(done);
    bytes = bytes.subspan(static_cast<size_t>(done));
  }
}

void FileWriter::publish() {
  if (fd_ < 0) throw_error(ErrorKind::internal, "{}: published twice", path_.string());
  check_mapped_files();
  // Pipes and devices cannot be flushed; fsync fails with EINVAL or ENOTSUP.
  if (::fsync(fd_) != 0 && errno != EINVAL && errno != ENOTSUP) throw_write(path_, errno, offset_, 0);
  // Renamed while still open, so that a lock on it is held until it has its final name.
  if (::rename(partial_.c_str(), path_.c_str()) != 0) throw_write(path_, errno, offset_, 0);
  ::close(std::exchange(fd_, -1));
  sync_folder(path_.parent_path().empty() ? fs::path(".") : path_.parent_path());
}

void write_file(const fs::path& path, std::string_view text) {
  FileWriter writer(path);
  writer.write(text);
  writer.publish();
}

void sync_folder(const fs::path& folder) {
  const Descriptor opened(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  // Some file systems (FUSE, some NFS servers) cannot sync folders and fail with EINVAL; nothing more can be done
  // there.
  if (opened.fd < 0 || (::fsync(opened.fd) != 0 && errno != EINVAL && errno != ENOTSUP)) {
    throw_error(ErrorKind::unavailable, "{}: the folder cannot be synced: {}", folder.string(), errno_message(errno));
  }
}

Sha256::Sha256() : context_(EVP_MD_CTX_new()) {
  if (context_ == nullptr || EVP_DigestInit_ex(static_cast<EVP_MD_CTX*>(context_), EVP_sha256(), nullptr) != 1) {
    EVP_MD_CTX_free(static_cast<EVP_MD_CTX*>(context_));
    throw_error(ErrorKind::unavailable, "OpenSSL offers no SHA-256");
  }
}

Sha256::~Sha256() { EVP_MD_CTX_free(static_cast<EVP_MD_CTX*>(context_)); }

void Sha256::update(std::span<const std::byte> bytes) {
  if (EVP_DigestUpdate(static_cast<EVP_MD_CTX*>(context_), bytes.data(), bytes.size()) != 1) {
    throw_error(ErrorKind::internal, "SHA-256: update failed");
  }
}

std::string Sha256::hex() {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int size = 0;
  if (EVP_DigestFinal_ex(static_cast<EVP_MD_CTX*>(context_), digest.data(), &size) != 1) {
    throw_error(ErrorKind::internal, "SHA-256: the digest was already finalised");
  }
  std::string text;
  for (unsigned int i = 0; i < size; ++i) text += fmt::format("{:02x}", digest[i]);
  return text;
}

std::string sha256_hex(std::span<const std::byte> bytes) {
  Sha256 digest;
  digest.update(bytes);
  return digest.hex();
}

}  // namespace ingot
