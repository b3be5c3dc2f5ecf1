// The folder a run leaves its files in.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "app/run_plan.h"
#include "base/folder_lock.h"
#include "tensor/weight_set.h"

namespace ingot::app {

// What a start does with what an earlier one left: refuses it, continues from its newest checkpoint, or, where there is
// no checkpoint, begins the run again.
enum class Resume { no, yes, fresh };

// Owns a run's folder while the run goes: nobody else may run there (base/folder_lock.h).
class RunFolder {
 public:
  // Makes the folder. ErrorKind::usage when it holds a run and `resume` is no, or a checkpoint and it is fresh;
  // not_found for a resume without a checkpoint; unavailable when another process runs there, and when the folder
  // cannot be made or written. `elsewhere`: the address where the run has checkpoints besides, as if they were here;
  // empty without any.
  RunFolder(std::filesystem::path path, Resume resume, const std::string& elsewhere = {});
  // The same errors, as far as they are certain without holding the folder, for before anything is read.
  static void check(const std::filesystem::path& path, Resume resume, const std::string& elsewhere);
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  // Whose lock was taken over, because they are gone; empty without one.
  const std::string& taken_over() const { return lock_->taken_over(); }
  // ErrorKind::unavailable when another process has taken the folder over: nothing more may be written to it.
  void require_held() const;
  void write_recipe(const std::string& resolved) const;

 private:
  std::filesystem::path path_;
  std::optional<FolderLock> lock_;
};

// What a checkpoint must agree with to be continued, as a JSON object: the model's shape, the adapter, data, order and
// seeds. Length, learning rate, batch.micro, recompute, evaluation and the device may change.
std::string run_identity(const RunPlan& plan, const std::string& data_hash, const std::string& base);

// SHA-256 over the first and last 4 KiB of every parameter in the device's memory: tells models apart without reading
// all of them.
std::string weights_fingerprint(const WeightSet& weights, Device& device);

}  // namespace ingot::app
