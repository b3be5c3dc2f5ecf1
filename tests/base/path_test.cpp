#include "base/path.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <array>
#include <fstream>
#include <functional>

#include "base/append_file.h"
#include "base/error.h"
#include "base/file.h"
#include "tests/base/error_of.h"
#include "tests/base/nobody.h"
#include "tests/base/scratch.h"

namespace ingot {
namespace {

namespace fs = std::filesystem;

struct PathTestFolder {
  PathTestFolder() {
    write_file(scratch / "file", "12345");
    fs::create_directory(scratch / "folder");
    write_file(scratch / "folder" / "b", "1");
    write_file(scratch / "folder" / "a", "2");
    fs::create_symlink("file", scratch / "link");
    fs::create_symlink("folder", scratch / "folder-link");
    fs::create_symlink("nothing", scratch / "dangling");
    fs::create_symlink("loop", scratch / "loop");
    EXPECT_EQ(::mkfifo((scratch / "pipe").c_str(), 0666), 0);
  }
  fs::path operator/(const std::string& name) const { return scratch / name; }

  Scratch scratch;
};

TEST(Path, ReportsKindSizeAndContents) {
  const PathTestFolder at;
  for (const char* name : {"file", "folder", "link", "folder-link", "pipe"}) {
    EXPECT_TRUE(path_exists(at / name)) << name;
    EXPECT_TRUE(name_exists(at / name)) << name;
  }
  for (const char* name : {"none", "none/x", "file/x"}) {
    EXPECT_FALSE(path_exists(at / name)) << name;
    EXPECT_FALSE(name_exists(at / name)) << name;
    EXPECT_FALSE(is_folder(at / name)) << name;
    EXPECT_FALSE(regular_file_exists(at / name)) << name;
  }
  EXPECT_FALSE(path_exists(at / "dangling"));
  EXPECT_TRUE(name_exists(at / "dangling"));
  EXPECT_TRUE(name_exists(at / "loop"));
  EXPECT_TRUE(is_folder(at / "folder-link"));
  EXPECT_FALSE(is_folder(at / "file"));
  EXPECT_TRUE(regular_file_exists(at / "link"));
  EXPECT_FALSE(regular_file_exists(at / "pipe"));
  EXPECT_FALSE(regular_file_exists("/dev/zero"));
  EXPECT_EQ(regular_file_bytes(at / "link"), 5U);
  EXPECT_EQ(list_folder(at / "folder-link"),
            (std::vector<fs::path>{at / "folder-link" / "a", at / "folder-link" / "b"}));
  EXPECT_EQ(resolved_path(at / "folder-link" / ".." / "link"), resolved_path(at / "file"));
  EXPECT_TRUE(path_exists(executable_path()));
}

TEST(Path, FailingQueriesNameThePath) {
  const PathTestFolder at;
  for (const fs::path& path : {at / "loop", at / "loop" / "x", at / std::string(300, 'n')}) {
    for (const auto& query : std::array<std::function<void()>, 7>{
             [&] { path_exists(path); }, [&] { is_folder(path); }, [&] { regular_file_exists(path); },
             [&] { regular_file_bytes(path); }, [&] { list_folder(path); }, [&] { open_regular_file(path); },
             [&] { read_file(path); }}) {
      const Error error = error_of(query);
      EXPECT_EQ(error.kind(), ErrorKind::not_found) << error.message();
      EXPECT_TRUE(error.message().starts_with(path.string() + ": ")) << error.message();
      EXPECT_FALSE(error.hint().empty());
    }
  }
  for (const char* name : {"none", "file", "dangling"}) {
    EXPECT_EQ(error_of([&] { list_folder(at / name); }).kind(), ErrorKind::not_found) << name;
  }
  for (const char* name : {"none", "folder"}) {
    EXPECT_EQ(error_of([&] { regular_file_bytes(at / name); }).kind(), ErrorKind::not_found) << name;
  }
}

TEST(Path, FailingChangesNameThePath) {
  const PathTestFolder at;
  const std::string longest(300, 'n');
  for (const auto& change : std::array<std::function<void()>, 8>{
           [&] { make_folders(at / "file" / "x"); }, [&] { make_folders(at / longest); },
           [&] { make_folders(at / "loop" / "x"); }, [&] { make_folders(at / "file"); },
           [&] { remove_path(at / "folder"); }, [&] { rename_path(at / "none", at / "x"); },
           [&] { name_exists(at / longest); }, [&] { name_exists(at / "loop" / "x"); }}) {
    const Error error = error_of(change);
    EXPECT_EQ(error.kind(), ErrorKind::unavailable) << error.message();
    EXPECT_TRUE(error.message().starts_with(at.scratch.folder().string())) << error.message();
  }
  make_folders(at / "folder" / "c" / "d");
  rename_path(at / "folder", at / "moved");
  remove_tree(at / "moved");
  remove_tree(at / "moved");
  remove_path(at / "none");
  EXPECT_FALSE(path_exists(at / "moved"));
}

TEST(Path, MissingPermissionIsAnError) {
  const PathTestFolder at;
  const Locked locked(at / "folder");
  const Nobody nobody;
  if (nobody.is_root()) return;  // root without the right to change its user
  for (const auto& query : std::array<std::function<void()>, 4>{
           [&] { path_exists(at / "folder" / "a"); }, [&] { is_folder(at / "folder" / "a"); },
           [&] { list_folder(at / "folder"); }, [&] { read_file(at / "folder" / "a"); }}) {
    const Error error = error_of(query);
    EXPECT_EQ(error.kind(), ErrorKind::not_found);
    EXPECT_NE(error.message().find("Permission denied"), std::string::npos) << error.message();
    EXPECT_NE(error.hint().find("permissions"), std::string::npos);
  }
  EXPECT_EQ(error_of([&] { make_folders(at / "folder" / "x"); }).kind(), ErrorKind::unavailable);
}

// Opening a pipe blocks until there is a writer, and reading a device may never end.
TEST(Path, OnlyRegularFilesAreOpened) {
  const PathTestFolder at;
  for (const fs::path& path : {at / "pipe", fs::path("/dev/zero"), at / "folder"}) {
    for (const auto& reader : std::array<std::function<void()>, 3>{
             [&] { open_regular_file(path); }, [&] { read_file(path); }, [&] { MappedFile file(path); }}) {
      const Error error = error_of(reader);
      EXPECT_EQ(error.kind(), ErrorKind::not_found);
      EXPECT_NE(error.message().find("not a file"), std::string::npos) << error.message();
    }
    // Publishing does not replace a pipe or device either, though root could.
    if (path == "/dev/zero") continue;
    EXPECT_EQ(error_of([&] { write_file(path, "x"); }).kind(), ErrorKind::unavailable) << path;
  }
  EXPECT_EQ(error_of([&] { AppendFile log(at / "pipe"); }).kind(), ErrorKind::unavailable);  // the pipe has no reader
  EXPECT_TRUE(fs::is_fifo(at / "pipe"));
}

}  // namespace
}  // namespace ingot
