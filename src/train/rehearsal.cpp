#include "train/rehearsal.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>

#include "base/error.h"
#include "base/function_ref.h"

namespace ingot::train {

namespace {

struct Shortage {
  std::string text;        // of the first rank that has one
  std::exception_ptr own;  // this rank's
};

// What `work`, which all ranks do, has no memory for.
Shortage shortage_of(const comm::Group& ranks, FunctionRef<void()> work) {
  Shortage found;
  std::string own;
  try {
    work();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::resource) throw;
    own = error.what();
    found.own = std::current_exception();
  }
  const std::vector<std::string> all = ranks.gather(own);
  for (size_t rank = 0; rank < all.size() && found.text.empty(); ++rank) {
    if (!all[rank].empty()) found.text = ranks.size() > 1 ? fmt::format("rank {}: {}", rank, all[rank]) : all[rank];
  }
  return found;
}

}  // namespace

Rehearsed rehearse(Device& device, const ops::Registry& registry, ThreadPool& threads, models::Model& model,
                   Trained& trained, StepSettings settings, bool decoded,
                   std::span<const data::PackedSequence> sequences, std::span<const int64_t> samples,
                   const comm::Group& ranks) {
  Rehearsed found;
  while (true) {
    Shortage shortage = shortage_of(ranks, [&] {
      found.step = std::make_unique<Step>(device, registry, threads, model, trained, settings, decoded, ranks);
    });
    if (shortage.text.empty()) {
      const size_t count = std::min(static_cast<size_t>(settings.micro * settings.unit), sequences.size());
      shortage = shortage_of(ranks, [&] { found.step->rehearse(sequences.first(count), samples.first(count)); });
    }
    if (shortage.text.empty()) return found;
    if (settings.micro == 1 && shortage.own) std::rethrow_exception(shortage.own);
    if (settings.micro == 1) throw_error(ErrorKind::resource, "{}", shortage.text);
    found.step.reset();
    found.shortage = std::move(shortage.text);
    settings.micro = std::max<int64_t>(1, settings.micro * 3 / 4);
  }
}

}  // namespace ingot::train
