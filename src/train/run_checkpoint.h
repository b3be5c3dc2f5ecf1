// A training run's checkpoint: trained weights, optimizer state (moments, number of updates) and progress
// (checkpoint/native.h keeps the files).
#pragma once

#include <filesystem>
#include <future>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/native.h"
#include "train/trained.h"

namespace ingot::train {

struct RunProgress {
  int64_t step = 0;       // steps done
  int64_t tokens = 0;     // in them
  std::string arch = {};  // when read: Device::arch() of the device that wrote it
};

// Writes folder/step-N, complete or absent, and removes all but the newest `keep`. Returns its bytes. Errors: resource
// for a full disk, unavailable for a folder that cannot be written; earlier checkpoints stay.
uint64_t write_run_checkpoint(const std::filesystem::path& folder, const RunProgress& progress,
                              const std::string& identity, const Trained& trained, Device& device, int64_t keep);

// Reads the newest one into `trained` (masters, moments, number of updates); nothing when there is none. It may have
// been written on any device. Errors: corrupt, naming file and what is wrong; usage when `identity` (JSON) is another,
// naming the first key that differs.
std::optional<RunProgress> read_run_checkpoint(const std::filesystem::path& folder, const std::string& identity,
                                               Trained& trained, Device& device);
// That of step `step`; the folder, which another process may be writing to, is left as it is. Errors: not_found too.
RunProgress read_run_checkpoint(const std::filesystem::path& folder, int64_t step, const std::string& identity,
                                Trained& trained, Device& device);

// Names of the tensors of the state that differ, in any bit, from those of the checkpoint of step `step`. Errors: as
// read_run_checkpoint's of a step.
std::vector<std::string> tensors_that_differ(const std::filesystem::path& folder, int64_t step, const Trained& trained,
                                             Device& device);

// The same checkpoints, written by a thread of its own from a copy of the state while training goes on; one at a time.
class BackgroundCheckpoint {
 public:
  struct Written {
    int64_t step = 0;
    uint64_t bytes = 0;
    double seconds = 0;  // from begin() until it was published
  };

  // Returns when the state is copied to host memory; the copy's memory is kept for the next. Errors: internal before
  // wait() has told of the one before; resource when there is no memory.
  void begin(const std::filesystem::path& folder, const RunProgress& progress, const std::string& identity,
             const Trained& trained, Device& device, int64_t keep);
  bool begun() const { return writing_.valid(); }
  bool done() const;  // whether wait() returns at once
  // What begin() began, when it is there. Errors as write_run_checkpoint's.
  Written wait() { return writing_.get(); }

 private:
  checkpoint::Snapshot snapshot_;
  std::future<Written> writing_;  // waits when it is destroyed
};

}  // namespace ingot::train
