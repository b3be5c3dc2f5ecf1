// Uploads beside the training.
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

// Uploads what a run has published, one at a time, by a thread of its own while training goes on. The newest waits for
// its turn; one that was waiting when a newer came is left out. Used by one thread.
class BackgroundUpload {
 public:
  struct Ended {
    int64_t step = 0;
    uint64_t bytes = 0;
    double seconds = 0;
    std::string fault;     // why it is not there; empty: it is
    std::string untidied;  // as upload() returns it
  };

  // `remote` outlives it.
  BackgroundUpload(const RemoteCheckpoints& remote, std::filesystem::path folder, int64_t keep)
      : remote_(remote), folder_(std::move(folder)), keep_(keep) {}
  BackgroundUpload(const BackgroundUpload&) = delete;
  BackgroundUpload& operator=(const BackgroundUpload&) = delete;
  ~BackgroundUpload();  // stops what is under way

  // folder/step-`step` was published; it may go again. Returns the step that is left out for its sake.
  std::optional<int64_t> add(int64_t step);
  // What has ended, waited for at most `seconds`; then begins what waits for its turn.
  std::optional<Ended> ended(double seconds);
  bool busy() const { return now_.valid() || next_.has_value(); }

 private:
  struct Waiting {
    int64_t step = 0;
    std::shared_ptr<const OpenFiles> files;  // none: they could not be opened
    std::string fault;
  };
  void begin_next();

  const RemoteCheckpoints& remote_;
  std::filesystem::path folder_;
  int64_t keep_;
  std::optional<Waiting> next_;
  std::atomic<bool> stop_ = false;
  std::future<Ended> now_;  // last: its thread uses the others
};

}  // namespace ingot::checkpoint
