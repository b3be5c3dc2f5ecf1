#include "train/memory_probe.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>

#include "base/error.h"
#include "base/function_ref.h"

namespace ingot::train {

namespace {

struct Shortage {
  std::string text;          // message of the first rank that ran out of memory
  std::exception_ptr local;  // this rank's exception
};

// Runs `work` on all ranks together. If any of them ran out of memory, `text` says for what; else it is empty.
Shortage shortage_of(const comm::Group& ranks, FunctionRef<void()> work) {
  Shortage found;
  std::string message;
  try {
    work();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::resource) throw;
    message = error.what();
    found.local = std::current_exception();
  }
  const std::vector<std::string> all = ranks.gather(message);
  for (size_t rank = 0; rank < all.size() && found.text.empty(); ++rank) {
    if (!all[rank].empty()) found.text = ranks.size() > 1 ? fmt::format("rank {}: {}", rank, all[rank]) : all[rank];
  }
  return found;
}

}  // namespace

ProbedStep probe_memory(Device& device, const ops::Registry& registry, ThreadPool& threads, const TrainedModel& model,
                        OptimizerState& optimizer_state, StepSettings settings, bool decoded,
                        std::span<const data::PackedSequence> sequences, std::span<const int64_t> samples,
                        const comm::Grid& grid) {
  ProbedStep found;
  while (true) {
    Shortage shortage = shortage_of(grid.world, [&] {
      found.step = std::make_unique<Step>(device, registry, threads, model, optimizer_state, settings, decoded, grid);
    });
    if (shortage.text.empty()) {
      const size_t count = std::min(static_cast<size_t>(settings.micro * settings.accumulation_unit), sequences.size());
      shortage =
          shortage_of(grid.world, [&] { found.step->probe_memory(sequences.first(count), samples.first(count)); });
    }
    if (shortage.text.empty()) return found;
    if (settings.micro == 1 && shortage.local) std::rethrow_exception(shortage.local);
    if (settings.micro == 1) throw_error(ErrorKind::resource, "{}", shortage.text);
    found.step.reset();
    found.shortage = std::move(shortage.text);
    settings.micro = std::max<int64_t>(1, settings.micro * 3 / 4);
  }
}

}  // namespace ingot::train
