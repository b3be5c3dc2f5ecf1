// Samples the next tokens of a batch on the device: turns the requests' settings into the inputs of ops/sampling.h.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "infer/sampler.h"
#include "infer/token_mask.h"
#include "ops/context.h"
#include "ops/sampling.h"
#include "tensor/staging.h"

namespace ingot::infer {

// How to sample one token. What it points to must stay valid until `start` returns.
struct SampleRequest {
  const SamplingParams* sampling = nullptr;
  int64_t position = 0;                  // for the random number: the number of ids before the token, prompt and output
  std::vector<LogitEdit> edits = {};     // sorted by id, each id once
  bool masked = false;                   // TokenSampler::mask has the bits
  std::optional<int32_t> known = {};     // returned, with its log-probability, whatever the settings say
  std::string error = {};                // not empty: no token is sampled, and this is why
  ErrorKind kind = ErrorKind::internal;  // of `error`
};

struct SampleResult {
  SampledToken choice;
  std::string error;                     // not empty: there is no token, and this is why
  ErrorKind kind = ErrorKind::internal;  // of `error`
};

class TokenSampler {
 public:
  // Bytes of device memory for `rows` rows.
  static size_t bytes(int64_t rows, int64_t vocab);
  // Takes the memory from `arena`.
  TokenSampler(Device& device, Arena& arena, int64_t rows, int64_t vocab);

  // The mask of row `row`, [(V + 31) / 32], to be assigned before `start` if SampleRequest::masked is set, and not
  // between `start` and `finish`. Rows of `known` tokens need none.
  std::span<uint32_t> mask(int64_t row);

  // Queues the sampling of row r of logits [R, V], or with padding (ops/sampling.h), as wanted[r] says in the compute
  // stream, with the copy of the results to the host; the logits are overwritten. R at least 1. `finish` must be called
  // before the next start.
  void start(ops::Context& context, const Tensor& logits, std::span<const SampleRequest> wanted);
  // The results of the last start, by row; waits until they are on the host, and for nothing that was queued later.
  std::vector<SampleResult> finish();
  // Both.
  std::vector<SampleResult> run(ops::Context& context, const Tensor& logits, std::span<const SampleRequest> wanted);

  // [R, 1 + number of top log-probabilities] i32 on the device: `chosen` of ops/sampling.h of the last start, for work
  // that is queued after it and before the next one.
  const Tensor& chosen() const { return started_.chosen; }

 private:
  struct Results {
    Tensor chosen, logprobs;  // [R, 1 + number of top log-probabilities], i32 and f32
  };
  // What `finish` needs of a SampleRequest.
  struct Expected {
    int64_t num_top = 0;  // log-probabilities to return
    std::string error;
    ErrorKind kind = ErrorKind::internal;
  };

  void sample_rows(ops::Context& context, const Tensor& logits, std::span<const SampleRequest> wanted, int64_t first,
                   const Results& results);
  void upload(const Tensor& tensor, int64_t elements);
  template <class T>
  T* on_host(const Tensor& tensor) const;

  Device& device_;
  int64_t vocab_;
  Tensor scales_, cuts_, offsets_, edit_ids_, edit_values_, masks_;  // sized for the max rows, contiguous
  void* results_ = nullptr;         // of a run, one table after the other: they are downloaded together
  Results started_;                 // of the last start
  std::vector<Expected> expected_;  // by row of the last start
  PinnedBuffer upload_staging_, download_staging_;
  std::unique_ptr<Event> done_;
};

}  // namespace ingot::infer
