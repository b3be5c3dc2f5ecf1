// A training run's checkpoint: trained weights, optimizer state (moments, number of updates) and progress
// (checkpoint/native.h keeps the files).
#pragma once

#include <filesystem>
#include <future>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/native.h"
#include "comm/group.h"
#include "ops/context.h"
#include "train/trained.h"

namespace ingot::train {

struct RunProgress {
  int64_t step = 0;       // steps done
  int64_t tokens = 0;     // in them
  std::string arch = {};  // when read: Device::arch() of the device that wrote it
};

// Writes folder/step-N, complete or absent, and removes all but the newest `keep`. Returns its bytes. Ranks call it
// together, each writes its part. Errors: resource for a full disk, unavailable for a folder that cannot be written;
// earlier checkpoints stay.
uint64_t write_run_checkpoint(const std::filesystem::path& folder, const RunProgress& progress,
                              const std::string& identity, const Trained& trained, Device& device, int64_t keep,
                              const comm::Group& ranks = {});

// Bytes of the tensors in a checkpoint. Ranks call it together.
uint64_t checkpoint_bytes(const Trained& trained, const comm::Group& ranks = {});

// Whether a checkpoint, `shown`, of this metadata is of the run that `identity` (JSON) says. Errors: corrupt for one
// that is no training run's; usage for another's, naming the first key that differs.
void require_same_run(const std::string& shown, const std::string& metadata, const std::string& identity);

// Reads the newest one into `trained` (masters, moments, number of updates); nothing when there is none. It may have
// been written on any device, by any number of ranks. Ranks call it together. Errors: corrupt, naming file and what is
// wrong; usage when `identity` (JSON) is another, naming the first key that differs.
std::optional<RunProgress> read_run_checkpoint(const std::filesystem::path& folder, const std::string& identity,
                                               Trained& trained, Device& device, const comm::Group& ranks = {});
// That of step `step`; the folder, which another process may be writing to, is left as it is. Errors: not_found too.
RunProgress read_run_checkpoint(const std::filesystem::path& folder, int64_t step, const std::string& identity,
                                Trained& trained, Device& device);

// Names of the tensors of the state that differ, in any bit, from those of the checkpoint of step `step`. Errors: as
// read_run_checkpoint's of a step.
std::vector<std::string> tensors_that_differ(const std::filesystem::path& folder, int64_t step, const Trained& trained,
                                             Device& device);

// The same checkpoints, written by a thread of its own from a copy of the state while training goes on; one at a time.
// Ranks write their files each for itself and meet when all have: then one publishes them, by a thread of its own too.
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
  // Waits for what this rank is writing; rank 0 removes what was begun and will not be published.
  ~BackgroundCheckpoint();

  // Takes the memory of the copy before the first begin(), which then pauses its caller no longer than later ones.
  // ErrorKind::resource when there is none.
  void reserve(const Trained& trained, const ops::Context& context);
  // Together. Returns when the state is copied to host memory, by the context's threads; the copy's memory is kept for
  // the next. Errors: internal before what was begun before is over; resource when there is no memory.
  void begin(const std::filesystem::path& folder, const RunProgress& progress, const std::string& identity,
             const Trained& trained, const ops::Context& context, int64_t keep);
  // Together: does what can be done without waiting. True on rank 0 when a checkpoint has been published: wait() tells.
  bool advance();
  // Together: what begin() began, when it is there; of ranks other than 0, when this rank's part is. Errors as
  // write_run_checkpoint's.
  Written wait();
  bool begun() const { return writing_.valid() || publishing_.valid(); }

 private:
  void publish();

  comm::Group ranks_;
  checkpoint::Snapshot snapshot_;
  std::filesystem::path folder_;
  int64_t step_ = 0;
  int64_t keep_ = 0;
  double from_ = 0;
  std::string metadata_;
  bool unpublished_ = false;          // the folder for step_ may be there, and publish() was not called
  std::future<std::string> writing_;  // this rank's part; waits when it is destroyed
  std::future<Written> publishing_;   // on rank 0
};

}  // namespace ingot::train
