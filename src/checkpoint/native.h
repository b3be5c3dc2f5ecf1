// Training checkpoints: RUN/checkpoints/step-N/ with safetensors shards and manifest.json; complete or absent.
//
// Files go to step-N.partial/, each is synced, the manifest is written last, the folder is renamed to step-N and its
// parent synced: after a crash there is either the whole checkpoint or a *.partial folder that the next start removes.
// One of the same step is exchanged in one go; where the file system cannot (NFS), it is called
// step-N.replaced.partial between two renames, and a start after a crash just there gives it its name back.
//
// Several ranks write a checkpoint together, each its files ("rank-2-of-3.safetensors"), with whole tensors under their
// names and parts of a tensor, flat elements [a, b), as "NAME[a:b]". However it was written, any rank reads what it
// wants of it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/function_ref.h"
#include "base/host_memory.h"
#include "formats/safetensors_set.h"
#include "tensor/tensor.h"

namespace ingot {
class ThreadPool;
}

namespace ingot::checkpoint {

// What `tensor`, flat, is a part of.
struct PartOf {
  Shape whole;
  int64_t begin = 0;  // its first element there
};

struct NamedTensor {
  std::string name;
  Tensor tensor;  // on the writer's device
  std::optional<PartOf> part = {};
};

// What tensors were at one moment, in host memory of its own.
class Snapshot {
 public:
  // Takes the host memory that take() of the same tensors needs and touches it, by `threads` (null: alone): the system
  // gives memory when it is first written, which lasts longer than the copy. ErrorKind::resource when there is none.
  void reserve(std::span<const NamedTensor> tensors, ThreadPool* threads = nullptr);
  // Returns when all is copied, behind what the device's compute stream was given, by `threads` (null: alone).
  // Memory that is there is used again. ErrorKind::resource when there is none.
  void take(std::span<const NamedTensor> tensors, Device& device, ThreadPool* threads = nullptr);
  std::span<const NamedTensor> tensors() const { return tensors_; }  // in host memory

 private:
  std::vector<NamedTensor> tensors_;
  HostMemory memory_;
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

// The same in the steps in which several ranks take it, with their errors:
// 1. One rank, before the others go on: makes the folder for files.
void begin_checkpoint(const std::filesystem::path& folder, int64_t step);
// 2. Every rank: writes its tensors and parts; no two ranks write the same. Returns what to tell the one that
// publishes.
std::string write_part(const std::filesystem::path& folder, int64_t step, std::span<const NamedTensor> tensors,
                       Device* device, int rank, int ranks, const NativeOptions& options = {});
// 3. One rank, with what all returned: publishes it.
uint64_t publish_checkpoint(const std::filesystem::path& folder, int64_t step, std::span<const std::string> parts,
                            std::string_view metadata, const NativeOptions& options = {});
// Instead, after an error: removes what was written.
void discard_checkpoint(const std::filesystem::path& folder, int64_t step) noexcept;

// Makes folder/step-`step` of a checkpoint that lies elsewhere, complete or absent: `bring` puts each file that its
// manifest names into the folder it is given, and vouches for it. REQUIRES that there is none of this step. Errors:
// those of `bring`; resource, unavailable as write_checkpoint.
void receive_checkpoint(const std::filesystem::path& folder, int64_t step, const std::string& manifest_text,
                        FunctionRef<void(const std::filesystem::path& folder)> bring);

// The step of a name "step-N".
std::optional<int64_t> step_of(std::string_view name);
// Steps of the folders step-N, ascending; whether they are whole is not looked at. Empty for a missing folder.
std::vector<int64_t> list_checkpoints(const std::filesystem::path& folder);

// Removes what a killed run left (*.partial), or brings back what it was about to replace; returns how many folders
// there were. For the start of a run, before any writer.
int64_t remove_leftovers(const std::filesystem::path& folder);

struct NativeCheckpoint {
  int64_t step = 0;
  std::filesystem::path path;
  std::string metadata;  // JSON text of the object that was written
  std::unique_ptr<formats::SafetensorsSet> tensors;
};

// One of several ranks that open a checkpoint together: each checks some of the files.
struct Reader {
  int rank = 0;
  int ranks = 1;
};

// Opens step `step`, or the latest one when it is not given; every size and SHA-256 in the manifest is checked.
// `model`: as in NativeOptions; empty: not compared.
// Errors: not_found when there is none; corrupt, naming the file and what is wrong with it, for a half-written or
// changed checkpoint (an earlier one is never taken instead: the hint names it); usage for one of another model.
NativeCheckpoint open_checkpoint(const std::filesystem::path& folder, std::optional<int64_t> step,
                                 std::string_view model = {}, const Reader& reader = {});

// Copies tensors of an open checkpoint, or parts of them, to where `tensors` say, on `device`. Errors: corrupt for
// another type or shape, naming both, and for elements that are not there.
void restore_tensors(const NativeCheckpoint& checkpoint, std::span<const NamedTensor> tensors, Device& device);

}  // namespace ingot::checkpoint
