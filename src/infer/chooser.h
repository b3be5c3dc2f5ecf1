// Chooses the next tokens of a batch on the device: what ops/sampling.h is given, made of what requests ask for.
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

// One token that is wanted. What it points to stays until the choice is made.
struct Wanted {
  const Sampling* sampling = nullptr;
  int64_t position = 0;                  // of a draw: the number of ids before it, prompt and output
  std::vector<LogitEdit> edits = {};     // in the order of ids, each id once
  bool masked = false;                   // Chooser::mask gives the bits
  std::optional<int32_t> known = {};     // this token is `chosen`, whatever else is said here, for its log-probability
  std::string error = {};                // not empty: nothing is wanted, and this is why
  ErrorKind kind = ErrorKind::internal;  // of `error`
};

struct Chosen {
  Choice choice;
  std::string error;                     // not empty: there is no choice, and this is why
  ErrorKind kind = ErrorKind::internal;  // of `error`
};

class Chooser {
 public:
  // Bytes of device memory for so many rows.
  static size_t bytes(int64_t rows, int64_t vocab);
  // Takes them from `arena`.
  Chooser(Device& device, Arena& arena, int64_t rows, int64_t vocab);

  // The bits of row `row`, [(V + 31) / 32], to be assigned before `run` where Wanted::masked says so. Rows of
  // `known` tokens have none.
  std::span<uint32_t> mask(int64_t row);

  // For row r of logits [R, V] what wanted[r] asks for; the logits are used up. Behind what the compute stream was
  // given; returns when the choices are here.
  std::vector<Chosen> run(ops::Context& context, const Tensor& logits, std::span<const Wanted> wanted);

 private:
  void choose(ops::Context& context, const Tensor& logits, std::span<const Wanted> wanted, int64_t first,
              int64_t num_top);
  void upload(const Tensor& tensor, int64_t elements);
  template <class T>
  T* on_host(const Tensor& tensor) const;

  Device& device_;
  int64_t vocab_;
  Tensor scales_, cuts_, offsets_, edit_ids_, edit_values_, masks_;  // of the most rows, one after another
  Tensor chosen_, logprobs_;                                         // [R, 1 + most_top_logprobs]
  HostBuffer up_, down_;
  std::unique_ptr<Event> done_;
};

}  // namespace ingot::infer
