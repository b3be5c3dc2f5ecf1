// Training checkpoints: RUN/checkpoints/step-N/ with safetensors shards and manifest.json; complete or absent.
//
// Files go to step-N.partial/, each is synced, the manifest is written last, the folder is renamed to step-N and its
// parent synced: after a crash there is either the whole checkpoint or a *.partial folder that the next start removes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "formats/safetensors_set.h"
#include "tensor/tensor.h"

namespace ingot::checkpoint {

struct NamedTensor {
  std::string name;
  Tensor tensor;  // on the writer's device
};

// What tensors were at one moment, in host memory of its own.
class Snapshot {
 public:
  // Returns when all is copied, behind what the device's compute stream was given. Memory of the take() before is used
  // again. ErrorKind::resource when there is none.
  void take(std::span<const NamedTensor> tensors, Device& device);
  std::span<const NamedTensor> tensors() const { return tensors_; }  // in host memory

 private:
  std::vector<NamedTensor> tensors_;
  std::unique_ptr<std::byte[]> memory_;
  size_t bytes_ = 0;
};

struct NativeOptions {
  int64_t keep = 0;                      // newest checkpoints that stay; 0: all
  uint64_t shard_bytes = 2'000'000'000;  // most bytes a file
  std::string model;                     // identity of what is trained; open_checkpoint compares it
};

// Publishes `folder`/step-`step`, replacing one of the same step, then removes what is older than `keep`. `metadata`:
// the text of a JSON object, kept as it is. Without a device the tensors are in host memory. Returns the bytes of its
// files.
// Errors: resource for a full disk, unavailable for one that cannot be written: nothing partial stays and earlier
// checkpoints are as before; internal for metadata that is no JSON object.
uint64_t write_checkpoint(const std::filesystem::path& folder, int64_t step, std::span<const NamedTensor> tensors,
                          std::string_view metadata, Device* device, const NativeOptions& options = {});

// Steps of the folders step-N, ascending; whether they are whole is not looked at. Empty for a missing folder.
std::vector<int64_t> list_checkpoints(const std::filesystem::path& folder);

// Removes what a killed run left (*.partial); returns how many there were. For the start of a run, before any writer.
int64_t remove_leftovers(const std::filesystem::path& folder);

struct NativeCheckpoint {
  int64_t step = 0;
  std::filesystem::path path;
  std::string metadata;  // JSON text of the object that was written
  std::unique_ptr<formats::SafetensorsSet> tensors;
};

// Opens step `step`, or the latest one when it is not given; every size and SHA-256 in the manifest is checked.
// `model`: as in NativeOptions; empty: not compared.
// Errors: not_found when there is none; corrupt, naming the file and what is wrong with it, for a half-written or
// changed checkpoint (an earlier one is never taken instead: the hint names it); usage for one of another model.
NativeCheckpoint open_checkpoint(const std::filesystem::path& folder, std::optional<int64_t> step,
                                 std::string_view model = {});

// Copies tensors of an open checkpoint to where `tensors` say, on `device`. Errors: corrupt for another type or shape,
// naming both.
void restore_tensors(const NativeCheckpoint& checkpoint, std::span<const NamedTensor> tensors, Device& device);

}  // namespace ingot::checkpoint
