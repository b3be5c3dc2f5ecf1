// checkpoint.store: where a run's checkpoints are kept besides its folder.
#pragma once

#include <optional>

#include "base/log.h"
#include "checkpoint/remote.h"
#include "train/recipe.h"
#include "train/trainer.h"

namespace ingot::app {

// Nothing when the recipe names no store. Errors: usage when that is the run's folder.
std::optional<checkpoint::RemoteCheckpoints> remote_checkpoints(const train::Recipe& recipe);

// Removes what uploads that never ended have left. A store may let one write and not list what is half-written, or not
// know uploads in parts: that is a warning, no reason to stop.
void remove_leftovers(const checkpoint::RemoteCheckpoints& remote, const Log& log);

// ErrorKind::unavailable when the last checkpoint is not in the store.
void require_stored(const train::Trainer& trainer);

}  // namespace ingot::app
