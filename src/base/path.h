// What stands at a path, and folders. Each function here is one of std::filesystem's without its exceptions: what the
// system refuses is an Error that names the path and says what to do, so no other file calls what throws
// std::filesystem::filesystem_error (tools/check_symbols.py).
//
// Errors of a question: not_found where the system does not answer (no permission on a folder above, a name too long, a
// loop of links), unavailable for a device that fails, resource for want of memory or descriptors. Errors of a change:
// resource for a full disk, unavailable for anything else.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

#include "base/descriptor.h"

struct stat;

namespace ingot {

// Throws the error of a question about `path` that ended with this errno; `what` is a verb: "cannot be opened".
[[noreturn]] void throw_unreadable(const std::filesystem::path& path, const char* what, int code);
// Throws the error of a change of `path` that ended with this errno.
[[noreturn]] void throw_unwritable(const std::filesystem::path& path, const char* what, int code);

// Whether something is there. Links are followed: one that leads nowhere is nothing.
bool path_exists(const std::filesystem::path& path);
// Whether the name is in use, be it by a link that leads nowhere: for what is about to be written there. Errors: those
// of a change.
bool path_taken(const std::filesystem::path& path);
bool is_folder(const std::filesystem::path& path);
// A regular file, which alone has an end and a size: no pipe, no device, no socket.
bool regular_file_exists(const std::filesystem::path& path);

// Bytes of a regular file. Errors: also not_found for what is not there or is none.
uint64_t regular_file_bytes(const std::filesystem::path& path);
// The file, opened for reading, and in `found` what fstat says of it. Never waits for a writer, as opening a pipe
// would, and starts no device. Errors: also not_found for what is not there or is no regular file.
Descriptor open_regular_file(const std::filesystem::path& path, struct stat* found = nullptr);
// What lies in a folder (folder / name), by name. Errors: also not_found for what is no folder.
std::vector<std::filesystem::path> list_folder(const std::filesystem::path& folder);

// The folder and those above it, where they are not there yet.
void make_folders(const std::filesystem::path& folder);
// One file, link or empty folder, if it is there.
void remove_path(const std::filesystem::path& path);
// All of it, if it is there.
void remove_tree(const std::filesystem::path& path);
void rename_path(const std::filesystem::path& from, const std::filesystem::path& to);

// Behind the working folder unless it is absolute. Errors: unavailable when the working folder is gone.
std::filesystem::path absolute_path(const std::filesystem::path& path);
// The same without links, "." and "..", as far as it is there.
std::filesystem::path resolved_path(const std::filesystem::path& path);
// What may still be written to the disk that a folder is on; nothing where the system does not tell.
std::optional<uint64_t> free_disk_bytes(const std::filesystem::path& folder);
// The file that this process executes.
std::filesystem::path executable_path();

}  // namespace ingot
