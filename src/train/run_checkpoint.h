// A training run's checkpoint: trained weights, optimizer state (moments, number of updates) and progress
// (checkpoint/native.h keeps the files).
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "train/trained.h"

namespace ingot::train {

struct RunProgress {
  int64_t step = 0;       // steps done
  int64_t tokens = 0;     // in them
  std::string arch = {};  // when read: Device::arch() of the device that wrote it
};

// Writes folder/step-N, complete or absent, and removes all but the newest `keep`. Returns its bytes. Errors: resource
// for a full disk, unavailable for a folder that cannot be written; earlier checkpoints stay.
uint64_t write_run_checkpoint(const std::filesystem::path& folder, RunProgress progress, const std::string& identity,
                              const Trained& trained, Device& device, int64_t keep);

// Reads the newest one into `trained` (masters, moments, number of updates); nothing when there is none. It may have
// been written on any device. Errors: corrupt, naming file and what is wrong; usage when `identity` (JSON) is another,
// naming the first key that differs.
std::optional<RunProgress> read_run_checkpoint(const std::filesystem::path& folder, const std::string& identity,
                                               Trained& trained, Device& device);

}  // namespace ingot::train
