#include "app/run_store.h"

#include <filesystem>

#include "base/error.h"
#include "base/function_ref.h"
#include "base/path.h"
#include "base/uri.h"

namespace ingot::app {

std::optional<checkpoint::RemoteCheckpoints> remote_checkpoints(const train::Recipe& r) {
  if (!r.checkpoint.store) return std::nullopt;
  const std::filesystem::path folder = parse_uri(*r.checkpoint.store).path;  // empty of an address
  if (!folder.empty() && resolved_path(folder / r.name) == resolved_path(std::filesystem::path(r.run_dir) / r.name)) {
    throw_hint(ErrorKind::usage, "give another folder, or an s3:// address",
               "checkpoint.store {}: the checkpoints are there already, it is run_dir", *r.checkpoint.store);
  }
  return checkpoint::RemoteCheckpoints(uri_below(*r.checkpoint.store, r.name + "/checkpoints"));
}

void remove_leftovers(const checkpoint::RemoteCheckpoints& remote, const Log& log) {
  const auto attempt = [&](const char* what, FunctionRef<int64_t()> remove) {
    try {
      const int64_t removed = remove();
      if (removed > 0)
        log.warning("{}: {} {} of uploads that never ended were removed", remote.address(), removed, what);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::unavailable && error.kind() != ErrorKind::not_found) throw;
      log.warning("{}: {} of uploads that never ended stay there: {}", remote.address(), what, error.message());
    }
  };
  attempt("parts", [&] { return remote.drop_unfinished(); });
  attempt("objects", [&] { return remote.remove_half_written(); });
}

void require_stored(const train::Trainer& trainer) {
  if (trainer.not_stored().empty()) return;
  throw_hint(ErrorKind::unavailable, "mend that and go on with --resume, which uploads it",
             "the last checkpoint is in the run's folder, but not in checkpoint.store: {}", trainer.not_stored());
}

}  // namespace ingot::app
