#include "base/file.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include "base/error.h"
#include "tests/base/error_of.h"
#include "tests/base/scratch.h"

namespace ingot {
namespace {

namespace fs = std::filesystem;

// Limits the size of files that the process writes during its lifetime. To write(2) it looks like a full disk.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    handler_ = ::signal(SIGXFSZ, SIG_IGN);
    ::getrlimit(RLIMIT_FSIZE, &before_);
    rlimit limit = before_;
    limit.rlim_cur = bytes;
    EXPECT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    ::signal(SIGXFSZ, handler_);
  }

 private:
  rlimit before_{};
  void (*handler_)(int) = nullptr;
};

TEST(File, WrittenFilesAreReadAndMapped) {
  const Scratch scratch;
  const fs::path path = scratch / "a.bin";
  {
    FileWriter writer(path);
    writer.write("hello ");
    EXPECT_EQ(writer.offset(), 6U);
    writer.write("world");
    EXPECT_FALSE(fs::exists(path));
    writer.publish();
  }
  EXPECT_FALSE(fs::exists(path.string() + ".partial"));
  EXPECT_EQ(read_file(path), "hello world");
  MappedFile mapped(path);
  const MappedFile moved = std::move(mapped);
  EXPECT_EQ(std::string_view(reinterpret_cast<const char*>(moved.bytes().data()), moved.bytes().size()), "hello world");
  EXPECT_EQ(moved.path(), path);
}

TEST(File, EmptyFilesAreReadAndMapped) {
  const Scratch scratch;
  write_file(scratch / "empty", "");
  EXPECT_EQ(read_file(scratch / "empty"), "");
  EXPECT_TRUE(MappedFile(scratch / "empty").bytes().empty());
}

TEST(File, LargeFilesAndProcFilesAreReadWhole) {
  const Scratch scratch;
  std::string text;
  for (int i = 0; i < 100000; ++i) text += std::to_string(i);
  write_file(scratch / "large", text);
  EXPECT_EQ(read_file(scratch / "large"), text);
  EXPECT_FALSE(read_file("/proc/self/status").empty());
}

TEST(File, AnUnpublishedFileIsRemovedAndTheOldOneKept) {
  const Scratch scratch;
  write_file(scratch / "a", "old");
  {
    FileWriter writer(scratch / "a");
    writer.write("new");
  }
  EXPECT_EQ(read_file(scratch / "a"), "old");
  EXPECT_FALSE(fs::exists(scratch / "a.partial"));
}

TEST(File, MissingFilesAndFoldersAreErrors) {
  const Scratch scratch;
  const Error missing = error_of([&] { MappedFile(scratch / "none"); });
  EXPECT_EQ(missing.kind(), ErrorKind::not_found);
  EXPECT_NE(missing.message().find((scratch / "none").string()), std::string::npos);
  const Error folder = error_of([&] { read_file(scratch.folder()); });
  EXPECT_EQ(folder.kind(), ErrorKind::not_found);
  EXPECT_NE(folder.message().find("a folder"), std::string::npos);
  write_file(scratch / "a", "x");
  EXPECT_EQ(error_of([&] { read_file(scratch / "a" / "b"); }).kind(), ErrorKind::not_found);
}

TEST(File, ReadsUpToALimit) {
  const Scratch scratch;
  write_file(scratch / "a", "12345");
  EXPECT_EQ(read_file(scratch / "a", 5), "12345");
  EXPECT_EQ(error_of([&] { read_file(scratch / "a", 4); }).kind(), ErrorKind::resource);
  EXPECT_EQ(error_of([&] { read_file("/proc/self/status", 4); }).kind(), ErrorKind::resource);
}

// The partial file is a symbolic link to /dev/full.
TEST(File, AFullDeviceIsAnError) {
  const Scratch scratch;
  const fs::path path = scratch / "a";
  fs::create_symlink("/dev/full", path.string() + ".partial");
  const Error error = error_of([&] { write_file(path, "12345"); });
  EXPECT_EQ(error.kind(), ErrorKind::resource);
  EXPECT_NE(error.message().find(path.string()), std::string::npos);
  EXPECT_NE(error.message().find("5 bytes"), std::string::npos);
  EXPECT_FALSE(error.hint().empty());
  EXPECT_FALSE(fs::exists(path));
  EXPECT_TRUE(fs::exists("/dev/full"));
}

TEST(File, AFullDiskKeepsTheOldFile) {
  const Scratch scratch;
  const fs::path path = scratch / "a";
  write_file(path, "old");
  Error error(ErrorKind::internal, "");
  {
    const FileSizeLimit limit(4096);
    error = error_of([&] {
      FileWriter writer(path);
      writer.write(std::string(4000, 'x'));
      writer.write(std::string(1000, 'y'));
    });
  }
  EXPECT_EQ(error.kind(), ErrorKind::resource);
  EXPECT_NE(error.message().find("904 bytes at byte 4096"), std::string::npos) << error.message();
  EXPECT_EQ(read_file(path), "old");
  EXPECT_FALSE(fs::exists(path.string() + ".partial"));
}

TEST(File, AResumedWriteAppendsToThePartialFile) {
  const Scratch scratch;
  {
    FileWriter first(scratch / "a", WriteMode::resume);
    first.write("one ");
    EXPECT_EQ(error_of([&] { FileWriter(scratch / "a", WriteMode::resume); }).kind(), ErrorKind::unavailable);
  }
  FileWriter second(scratch / "a", WriteMode::resume);
  EXPECT_EQ(second.offset(), 4U);
  second.write("two");
  EXPECT_EQ(read_file(second.partial()), "one two");
  second.cut(0);
  EXPECT_EQ(second.offset(), 0U);
  second.write("three");
  second.publish();
  EXPECT_EQ(read_file(scratch / "a"), "three");
  EXPECT_FALSE(fs::exists(scratch / "a.partial"));
}

// A path below a regular file, and a folder of /proc: root cannot write to these either.
TEST(File, FoldersThatCannotBeWrittenAreNamed) {
  const Scratch scratch;
  write_file(scratch / "a", "x");
  for (const fs::path& path : {scratch / "a" / "b", scratch / "none" / "b", fs::path("/proc/none")}) {
    const Error error = error_of([&] { FileWriter writer(path); });
    EXPECT_EQ(error.kind(), ErrorKind::unavailable) << path;
    EXPECT_NE(error.message().find(path.string()), std::string::npos);
  }
}

TEST(File, PublishingOverAFolderFails) {
  const Scratch scratch;
  fs::create_directories(scratch / "a" / "b");
  EXPECT_EQ(error_of([&] { write_file(scratch / "a", "x"); }).kind(), ErrorKind::unavailable);
  EXPECT_FALSE(fs::exists(scratch / "a.partial"));
}

// The example of FIPS 180-4, and the digest of the empty message.
TEST(Sha256, HasTheKnownAnswers) {
  const std::string abc = "abc";
  EXPECT_EQ(sha256_hex(std::as_bytes(std::span(abc.data(), abc.size()))),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256_hex({}), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  Sha256 pieces;
  pieces.update(std::as_bytes(std::span(abc.data(), 1)));
  pieces.update(std::as_bytes(std::span(abc.data() + 1, 2)));
  EXPECT_EQ(pieces.hex(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

}  // namespace
}  // namespace ingot
