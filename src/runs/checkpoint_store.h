// checkpoint.store: the object store for a run's checkpoints, in addition to its folder.
#pragma once

#include <optional>

#include "base/log.h"
#include "checkpoint/remote.h"
#include "train/recipe.h"
#include "train/trainer.h"

namespace ingot::runs {

// Absent when the recipe names no store. Errors: usage when the store is the run's folder.
std::optional<checkpoint::RemoteCheckpoints> remote_checkpoints(const train::Recipe& recipe);

// Removes leftovers of unfinished uploads. A store may allow writing without allowing to list unfinished uploads, or
// not support multipart uploads: that is only a warning.
void remove_leftovers(const checkpoint::RemoteCheckpoints& remote, const Log& log);

// ErrorKind::unavailable when the last checkpoint was not uploaded to the store.
void require_stored(const std::string& upload_error);

}  // namespace ingot::runs
