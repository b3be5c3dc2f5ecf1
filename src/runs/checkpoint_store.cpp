#include "runs/checkpoint_store.h"

#include <filesystem>

#include "base/error.h"
#include "base/function_ref.h"
#include "base/path.h"
#include "storage/uri.h"

namespace ingot::runs {

std::optional<checkpoint::RemoteCheckpoints> remote_checkpoints(const train::Recipe& r) {
  if (!r.checkpoint.store) return std::nullopt;
  const std::filesystem::path folder = parse_uri(*r.checkpoint.store).path;  // empty for a remote address
  if (!folder.empty() && resolved_path(folder / r.name) == resolved_path(std::filesystem::path(r.run_dir) / r.name)) {
    throw_hint(ErrorKind::usage, "give another folder, or an s3:// address",
               "checkpoint.store {}: is the same folder as run_dir, where checkpoints are already written",
               *r.checkpoint.store);
  }
  return checkpoint::RemoteCheckpoints(uri_below(*r.checkpoint.store, r.name + "/checkpoints"));
}

void remove_leftovers(const checkpoint::RemoteCheckpoints& remote, const Log& log) {
  const auto attempt = [&](const char* what, FunctionRef<int64_t()> remove) {
    try {
      const int64_t removed = remove();
      if (removed > 0) log.warning("{}: removed {} {} of incomplete uploads", remote.address(), removed, what);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::unavailable && error.kind() != ErrorKind::not_found) throw;
      log.warning("{}: {} of incomplete uploads could not be removed: {}", remote.address(), what, error.message());
    }
  };
  attempt("parts", [&] { return remote.abort_unfinished_uploads(); });
  attempt("objects", [&] { return remote.remove_incomplete(); });
}

void require_stored(const std::string& upload_error) {
  if (upload_error.empty()) return;
  throw_hint(ErrorKind::unavailable, "fix this and continue with --resume, which uploads it",
             "the last checkpoint is in the run folder, but was not uploaded to checkpoint.store: {}", upload_error);
}

}  // namespace ingot::runs
