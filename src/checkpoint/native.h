// Training checkpoints: RUN/checkpoints/step-N/ with safetensors shards and manifest.json; complete or absent.
//
// Files are written to step-N.partial/ and synced, the manifest last; then the folder is renamed to step-N and its
// parent synced. After a crash there is either the whole checkpoint or a *.partial folder that the next start removes.
// A checkpoint of the same step is replaced by one atomic exchange of the two names. Where the file system has no such
// exchange (NFS), the old checkpoint is called step-N.replaced.partial between two renames, and a start after a crash
// at that point restores its name.
//
// Several ranks write a checkpoint together, each its own files ("rank-2-of-3.safetensors"). Whole tensors are stored
// under their names, and parts of a tensor under one of
//   NAME[a:b]              the flat elements [a, b)
//   NAME[r:s,c:d]          of a matrix the columns [c, d) of the rows [r, s); several ranges of rows as "r:s+t:u"
//   NAME[r:s,c:d][a:b]     of those the flat elements [a, b)
// Any rank can read any tensor or part, whatever parts the ranks had that wrote the checkpoint.
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
#include "spec/slice.h"
#include "tensor/tensor.h"

namespace ingot {
class ThreadPool;
}

namespace ingot::checkpoint {

// The tensor of which a flat `tensor` is a part: consecutive elements of the flattened slice.
struct PartOf {
  Shape whole;
  int64_t begin = 0;                      // index of the part's first element in the slice
  std::optional<spec::Slice> slice = {};  // of the whole, which has one or two dimensions; absent: all of it
};

struct NamedTensor {
  std::string name;
  Tensor tensor;  // on the device that is passed to the writer, or on one whose memory is the host's
  std::optional<PartOf> part = {};
};

// A copy of tensors at one point in time, in its own host memory.
class Snapshot {
 public:
  // Allocates the host memory that take() needs for the same tensors and touches every page with `threads` (null: on
  // the calling thread), because first-touch page faults take longer than the copy. ErrorKind::resource when memory
  // runs out.
  void reserve(std::span<const NamedTensor> tensors, ThreadPool* threads = nullptr);
  // Copies the tensors after all work queued on the device's compute stream, with `threads` (null: on the calling
  // thread), and returns when the copy is complete. Reuses memory that is already allocated. ErrorKind::resource when
  // memory runs out.
  void take(std::span<const NamedTensor> tensors, Device& device, ThreadPool* threads = nullptr);
  std::span<const NamedTensor> tensors() const { return tensors_; }  // in host memory

 private:
  std::vector<NamedTensor> tensors_;
  HostMemory memory_;
};

struct NativeOptions {
  int64_t keep = 0;                      // number of newest checkpoints to retain; 0: all
  uint64_t shard_bytes = 2'000'000'000;  // max bytes per file
  std::string model;                     // identifies the model; open_checkpoint can compare it
};

// Publishes `folder`/step-`step`, replacing a checkpoint of the same step, then removes older checkpoints beyond
// `keep`. `metadata`: the text of a JSON object, stored verbatim. `device` null: the tensors are in host memory.
// Returns the bytes of its files.
// Errors: resource for a full disk, unavailable for one that cannot be written: nothing partial remains and earlier
// checkpoints are unchanged; internal for metadata that is not a JSON object.
uint64_t write_checkpoint(const std::filesystem::path& folder, int64_t step, std::span<const NamedTensor> tensors,
                          std::string_view metadata, Device* device, const NativeOptions& options = {});

// The same in separate steps, for several ranks, with the same errors:
// 1. One rank, before the others continue: creates the folder for files.
void begin_checkpoint(const std::filesystem::path& folder, int64_t step);
// 2. Every rank: writes its tensors and parts; no two ranks write the same. Returns text to pass to the rank that
// publishes.
std::string write_part(const std::filesystem::path& folder, int64_t step, std::span<const NamedTensor> tensors,
                       Device* device, int rank, int ranks, const NativeOptions& options = {});
// 3. One rank, with the texts returned by all ranks: publishes the checkpoint.
uint64_t publish_checkpoint(const std::filesystem::path& folder, int64_t step, std::span<const std::string> parts,
                            std::string_view metadata, const NativeOptions& options = {});
// Instead of 3, after an error: removes the files written so far.
void discard_checkpoint(const std::filesystem::path& folder, int64_t step) noexcept;

// Creates folder/step-`step` from a checkpoint stored elsewhere, complete or absent. `fetch_files` must put each file
// that the manifest names into the folder passed to it, and is responsible for verifying it. REQUIRES that no
// checkpoint of this step exists. Errors: those of `fetch_files`; resource, unavailable as write_checkpoint.
void import_checkpoint(const std::filesystem::path& folder, int64_t step, const std::string& manifest_text,
                       FunctionRef<void(const std::filesystem::path& folder)> fetch_files);

// Parses N from a name "step-N".
std::optional<int64_t> step_of(std::string_view name);
// Steps of the folders step-N, ascending, without checking that they are complete. Empty for a missing folder.
std::vector<int64_t> list_checkpoints(const std::filesystem::path& folder);

// Removes the *.partial folders of a killed run, or restores a checkpoint that was being replaced; returns the number
// of such folders. To be called at the start of a run, before any writer.
int64_t remove_leftovers(const std::filesystem::path& folder);

struct NativeCheckpoint {
  int64_t step = 0;
  std::filesystem::path path;
  std::string metadata;  // JSON text of the metadata object
  std::unique_ptr<formats::SafetensorsSet> tensors;
};

// One of several ranks that open a checkpoint together: each verifies some of the files.
struct Reader {
  int rank = 0;
  int ranks = 1;
};

// Opens step `step`, or the latest one when it is not given; every size and SHA-256 in the manifest is checked.
// `model`: as in NativeOptions; empty: not compared.
// Errors: not_found when there is none; corrupt, naming the file and what is wrong with it, for an incomplete or
// modified checkpoint (never falls back to an earlier one: the hint names it); usage for a checkpoint of another model.
NativeCheckpoint open_checkpoint(const std::filesystem::path& folder, std::optional<int64_t> step,
                                 std::string_view model = {}, const Reader& reader = {});

// Copies tensors of an open checkpoint, or parts of them, to the memory of `tensors` on `device`. Errors: corrupt for
// another type or shape, naming both, and for missing elements.
void restore_tensors(const NativeCheckpoint& checkpoint, std::span<const NamedTensor> tensors, Device& device);

}  // namespace ingot::checkpoint
