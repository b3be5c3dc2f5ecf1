// File-system queries and changes. Each function wraps one of std::filesystem's without its exceptions: a failure is an
// Error that names the path and says what to do. So no other file calls a function that throws
// std::filesystem::filesystem_error (tools/check_symbols.py).
//
// Errors of a query: not_found when the system cannot resolve the path (no permission on a parent folder, a name that
// is too long, a loop of links), unavailable for a failing device, resource for lack of memory or descriptors. Errors
// of a change: resource for a full disk or lack of memory or descriptors, unavailable for anything else.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

#include "base/descriptor.h"

struct stat;

namespace ingot {

// Throws the error of a query about `path` that failed with errno `code`; `what` is a verb: "cannot be opened".
[[noreturn]] void throw_unreadable(const std::filesystem::path& path, const char* what, int code);
// Throws the error of a change of `path` that failed with errno `code`.
[[noreturn]] void throw_unwritable(const std::filesystem::path& path, const char* what, int code);

// Whether something exists at `path`. Links are followed: a dangling link is nothing.
bool path_exists(const std::filesystem::path& path);
// Whether the name is in use, even by a dangling link: for names that are about to be written. Errors: those of a
// change.
bool name_exists(const std::filesystem::path& path);
bool is_folder(const std::filesystem::path& path);
// Whether there is a regular file (no pipe, device or socket): only these have an end and a size.
bool regular_file_exists(const std::filesystem::path& path);

// Bytes of a regular file. Errors: also not_found when there is none.
uint64_t regular_file_bytes(const std::filesystem::path& path);
// Opens a regular file for reading; `found` receives its fstat result. Never blocks, as opening a pipe would, and
// activates no device. Errors: also not_found when there is no regular file.
Descriptor open_regular_file(const std::filesystem::path& path, struct stat* found = nullptr);
// The contents of a folder (folder / name), sorted by name. Errors: also not_found for anything that is not a folder.
std::vector<std::filesystem::path> list_folder(const std::filesystem::path& folder);

// Creates the folder and its parents, where they do not exist.
void make_folders(const std::filesystem::path& folder);
// Removes one file, link or empty folder, if it exists.
void remove_path(const std::filesystem::path& path);
// Removes everything at and below the path, if it exists.
void remove_tree(const std::filesystem::path& path);
void rename_path(const std::filesystem::path& from, const std::filesystem::path& to);

// Relative to the working folder unless it is absolute. Errors: unavailable when the working folder is gone.
std::filesystem::path absolute_path(const std::filesystem::path& path);
// The same with links, "." and ".." resolved, as far as the path exists.
std::filesystem::path resolved_path(const std::filesystem::path& path);
// Free bytes on the disk of a folder; nothing when the system does not report them.
std::optional<uint64_t> free_disk_bytes(const std::filesystem::path& folder);
// The executable file of this process.
std::filesystem::path executable_path();

}  // namespace ingot
