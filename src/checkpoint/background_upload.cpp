#include "checkpoint/background_upload.h"

#include <chrono>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "base/signals.h"

namespace ingot::checkpoint {

BackgroundUpload::~BackgroundUpload() { stop_ = true; }

std::optional<int64_t> BackgroundUpload::add(int64_t step) {
  Waiting added{step, nullptr, {}};
  try {
    added.files = std::make_shared<const OpenFiles>(folder_, step);
  } catch (const std::exception& error) {
    added.fault = text_of(error);
  }
  const std::optional<Waiting> left_out = std::exchange(next_, std::move(added));
  if (!running_.valid()) begin_next();
  return left_out ? std::optional(left_out->step) : std::nullopt;
}

void BackgroundUpload::begin_next() {
  if (!next_) return;
  const Waiting next = *std::exchange(next_, std::nullopt);
  const auto failed = [step = next.step](const std::string& fault) { return Result{step, 0, 0, fault, {}}; };
  if (!next.files) {
    running_ = std::async(std::launch::deferred, failed, next.fault);
    return;
  }
  const BlockedSignals blocked;
  try {
    running_ = std::async(std::launch::async, [this, failed, files = next.files] {
      const double from = steady_seconds();
      try {
        std::string cleanup_error = remote_.upload(*files, keep_, [this] { return !stop_; });
        return Result{files->step, files->bytes, steady_seconds() - from, {}, std::move(cleanup_error)};
      } catch (const std::exception& error) {
        return failed(text_of(error));
      }
    });
  } catch (const std::exception& error) {  // no thread could be created
    running_ = std::async(std::launch::deferred, failed, text_of(error));
  }
}

std::optional<BackgroundUpload::Result> BackgroundUpload::poll(double seconds) {
  if (!running_.valid() || running_.wait_for(std::chrono::duration<double>(seconds)) == std::future_status::timeout) {
    return std::nullopt;
  }
  Result result = running_.get();
  begin_next();
  return result;
}

}  // namespace ingot::checkpoint
