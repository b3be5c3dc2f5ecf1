// Checkpoint uploads in the background, during training.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <future>
#include <memory>
#include <optional>
#include <string>

#include "checkpoint/remote.h"

namespace ingot::checkpoint {

// Uploads published checkpoints one at a time on its own thread while training continues. At most one checkpoint waits,
// the newest; adding another drops the waiting one. Not thread-safe.
class BackgroundUpload {
 public:
  struct Result {
    int64_t step = 0;
    uint64_t bytes = 0;
    double seconds = 0;
    std::string fault;  // why the upload failed; empty when it succeeded
    std::string
        cleanup_error;  // why tidying up after a complete upload failed (see RemoteCheckpoints::upload); else empty
  };

  // `remote` must outlive this object.
  BackgroundUpload(const RemoteCheckpoints& remote, std::filesystem::path folder, int64_t keep)
      : remote_(remote), folder_(std::move(folder)), keep_(keep) {}
  BackgroundUpload(const BackgroundUpload&) = delete;
  BackgroundUpload& operator=(const BackgroundUpload&) = delete;
  ~BackgroundUpload();  // cancels a running upload

  // Queues the published checkpoint folder/step-`step`. Opens its files, so that the folder may be removed afterwards.
  // Returns the step of the waiting checkpoint that this one replaces, if any.
  std::optional<int64_t> add(int64_t step);
  // Waits at most `seconds` for the running upload to end, starts the next one and returns the result; nullopt when no
  // upload is running or it has not ended.
  std::optional<Result> poll(double seconds);
  bool busy() const { return running_.valid() || next_.has_value(); }

 private:
  struct Waiting {
    int64_t step = 0;
    std::shared_ptr<const OpenFiles> files;  // null when they could not be opened
    std::string fault;
  };
  void begin_next();

  const RemoteCheckpoints& remote_;
  std::filesystem::path folder_;
  int64_t keep_;
  std::optional<Waiting> next_;
  std::atomic<bool> stop_ = false;
  std::future<Result> running_;  // declared last: its thread uses the other members
};

}  // namespace ingot::checkpoint
