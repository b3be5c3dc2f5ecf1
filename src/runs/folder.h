// The folder for a run's files.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "base/folder_lock.h"
#include "comm/group.h"
#include "runs/plan.h"
#include "tensor/weight_set.h"

namespace ingot::runs {

// How a start treats an existing run in the folder: no: refuse; yes: continue from its newest checkpoint; fresh: begin
// the run again, which requires that it has no checkpoint; automatic: continue from its newest checkpoint, or begin
// where there is none.
enum class Resume { no, yes, fresh, automatic };

// Holds the lock of a run's folder: no other process may run there (base/folder_lock.h).
class RunFolder {
 public:
  // Creates the folder. ErrorKind::usage when it holds a run and `resume` is no, or a checkpoint and it is fresh;
  // not_found for a resume without a checkpoint; unavailable when another process runs there, and when the folder
  // cannot be created or written; unsupported (from check) for a run whose events are of a newer version. `elsewhere`:
  // the address of a store that also has checkpoints of the run, which count as if they were in the folder; empty when
  // there are none.
  RunFolder(std::filesystem::path path, Resume resume, const std::string& elsewhere = {});
  // The same errors, as far as they can be determined without the lock; called before anything is read.
  static void check(const std::filesystem::path& path, Resume resume, const std::string& elsewhere);
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  // The dead lock holder from whom the lock was taken over; empty when there was none.
  const std::string& taken_over() const { return lock_->taken_over(); }
  // ErrorKind::unavailable when another process has taken over the lock: nothing more may be written to the folder.
  void require_lock() const;
  void write_recipe(const std::string& resolved) const;

 private:
  std::filesystem::path path_;
  std::optional<FolderLock> lock_;
};

// The settings that a checkpoint must agree with to be continued, as a JSON object: the model's shape, the adapter,
// data, order, seeds, global batch, precision, determinism and
// its parallel.units, the optimizer and its 8-bit states. Length, learning rate,
// batch.micro, recompute, evaluation and the device may change.
std::string run_identity(const RunPlan& plan, const std::string& data_hash, const std::string& base);

// SHA-256 over the first and last 4 KiB of every parameter in the device's memory: identifies a model without reading
// all weights. `weights`: those of `shards`; if `kept` is not empty, this rank has only these bytes of each. Collective
// over `ranks`, which together have one copy of the model: the same on all of them, and for any of their numbers.
std::string weights_fingerprint(const spec::ModelSpec& model, std::span<const spec::ModelShard> shards,
                                const WeightSet& weights, Device& device, const comm::Group& ranks = {},
                                std::span<const checkpoint::KeptBytes> kept = {});

}  // namespace ingot::runs
