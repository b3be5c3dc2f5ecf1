// The folder a run leaves its files in.
#pragma once

#include <filesystem>
#include <string>

#include "app/run_plan.h"
#include "tensor/weight_set.h"

namespace ingot::app {

// Owns a run's folder while the run goes: nobody else may run there (a lock on it, given back when the process ends
// however it ends).
class RunFolder {
 public:
  // Makes the folder. ErrorKind::usage when it holds a run and `resume` is false, or another process runs there;
  // not_found for a resume where there is nothing; unavailable when the folder cannot be made or written.
  RunFolder(std::filesystem::path path, bool resume);
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;
  ~RunFolder();

  const std::filesystem::path& path() const { return path_; }
  void write_recipe(const std::string& resolved) const;

 private:
  std::filesystem::path path_;
  int lock_ = -1;
};

// What a checkpoint must agree with to be continued, as a JSON object: the model's shape, the adapter, data, order and
// seeds. Length, learning rate, batch.micro, recompute, evaluation and the device may change.
std::string run_identity(const RunPlan& plan, const std::string& data_hash, const std::string& base);

// SHA-256 over the first and last 4 KiB of every parameter in the device's memory: tells models apart without reading
// all of them.
std::string weights_fingerprint(const WeightSet& weights, Device& device);

}  // namespace ingot::app
