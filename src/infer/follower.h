// The ranks that compute a model together with rank 0's engine, which alone takes requests and schedules.
#pragma once

#include "base/file_watch.h"
#include "models/model.h"
#include "ops/registry.h"

namespace ingot {
class ThreadPool;
}

namespace ingot::infer {

// Computes this rank's share of what the engine of rank 0 of `ranks` runs, with this rank's shard of the model, until
// that engine is destroyed. Errors: the engine's, and the group's.
void follow_engine(Device& device, const ops::Registry& registry, ThreadPool& threads,
                   const models::InferenceModel& model, const comm::Group& ranks, const FileWatch* files = nullptr);

// Ends the other ranks' follow_engine() where no engine is made. On rank 0.
void release_followers(const comm::Group& ranks);

}  // namespace ingot::infer
