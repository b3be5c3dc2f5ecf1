// A training run's checkpoint: trainable parameters, optimizer state (with the number of updates) and progress.
// checkpoint/native.h defines the files.
#pragma once

#include <filesystem>
#include <future>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/native.h"
#include "comm/group.h"
#include "ops/context.h"
#include "train/optimizer_state.h"

namespace ingot::train {

struct RunProgress {
  int64_t step = 0;       // completed steps
  int64_t tokens = 0;     // trained on in these steps
  std::string arch = {};  // set when read: Device::arch() of the device that wrote the checkpoint
};

// Writes folder/step-N, complete or not at all, and removes all but the newest `keep` checkpoints. Returns its size in
// bytes. Ranks call it together; each writes its part. Errors: resource for a full disk; unavailable for a folder that
// cannot be written; earlier checkpoints stay.
uint64_t write_run_checkpoint(const std::filesystem::path& folder, const RunProgress& progress,
                              const std::string& identity, const OptimizerState& optimizer_state, Device& device,
                              int64_t keep, const comm::Group& ranks = {});

// Bytes of the tensors in a checkpoint. Ranks call it together.
uint64_t checkpoint_bytes(const OptimizerState& optimizer_state, const comm::Group& ranks = {});

// Checks that a checkpoint with this metadata belongs to the run that `identity` (JSON) describes; `shown` is its name
// in messages. Errors: corrupt for metadata that is not a training run's; usage for another run's, naming the first key
// that differs.
void require_same_run(const std::string& shown, const std::string& metadata, const std::string& identity);

// Reads the newest checkpoint into `optimizer_state` (masters, optimizer state, number of updates); nullopt when there
// is none. It may have been written on any kind of device and by any number of ranks. Ranks call it together. Errors:
// corrupt, naming the file and what is wrong; usage when its `identity` (JSON) differs, naming the first key that
// differs.
std::optional<RunProgress> read_run_checkpoint(const std::filesystem::path& folder, const std::string& identity,
                                               OptimizerState& optimizer_state, Device& device,
                                               const comm::Group& ranks = {});
// Reads the checkpoint of step `step`. Does not modify the folder, which another process may be writing to. Errors:
// also not_found.
RunProgress read_run_checkpoint(const std::filesystem::path& folder, int64_t step, const std::string& identity,
                                OptimizerState& optimizer_state, Device& device);

// Names of the state tensors that differ in any bit from the checkpoint of step `step`. Errors: as reading that
// checkpoint.
std::vector<std::string> tensors_that_differ(const std::filesystem::path& folder, int64_t step,
                                             const OptimizerState& optimizer_state, Device& device);

// Writes the same checkpoints on a background thread, from a copy of the state, while training goes on; one at a time.
// Each rank writes its files independently; when all have finished, rank 0 publishes the checkpoint, also on a
// background thread.
class BackgroundCheckpoint {
 public:
  struct Written {
    int64_t step = 0;
    uint64_t bytes = 0;
    double seconds = 0;  // from begin() until it was published
  };

  explicit BackgroundCheckpoint(comm::Group ranks = {}) : ranks_(std::move(ranks)) {}
  BackgroundCheckpoint(const BackgroundCheckpoint&) = delete;
  BackgroundCheckpoint& operator=(const BackgroundCheckpoint&) = delete;
  // Waits for this rank's writing to end; rank 0 removes a checkpoint that will not be published.
  ~BackgroundCheckpoint();

  // Allocates the memory for the copy before the first begin(), so that the first begin() blocks no longer than later
  // ones. ErrorKind::resource when there is not enough memory.
  void reserve(const OptimizerState& optimizer_state, const ops::Context& context);
  // Ranks call it together. Returns when the state has been copied to host memory by the context's threads; this memory
  // is reused for the next checkpoint. Errors: internal while an earlier checkpoint is being written; resource when
  // there is not enough memory.
  void begin(const std::filesystem::path& folder, const RunProgress& progress, const std::string& identity,
             const OptimizerState& optimizer_state, const ops::Context& context, int64_t keep);
  // Ranks call it together: makes the progress that is possible without waiting for files. True on rank 0 when the
  // checkpoint has been published; wait() then returns it.
  bool advance();
  // Ranks call it together: waits for the checkpoint of begin() to be published; on ranks other than 0, only for all
  // parts to be written. Errors: as write_run_checkpoint.
  Written wait();
  bool is_writing() const { return writing_.valid() || publishing_.valid(); }

 private:
  void publish();

  comm::Group ranks_;
  checkpoint::Snapshot snapshot_;
  std::filesystem::path folder_;
  int64_t step_ = 0;
  int64_t keep_ = 0;
  double from_ = 0;
  std::string metadata_;
  bool unpublished_ = false;          // a folder for step_ may exist for which publish() was not called
  std::future<std::string> writing_;  // this rank's part; its destructor waits
  std::future<Written> publishing_;   // on rank 0
};

}  // namespace ingot::train
