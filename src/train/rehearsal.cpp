#include "train/rehearsal.h"

#include <algorithm>

#include "base/error.h"

namespace ingot::train {

Rehearsed rehearse(Device& device, const ops::Registry& registry, ThreadPool& threads, models::Model& model,
                   Trained& trained, StepSettings settings, bool decoded,
                   std::span<const data::PackedSequence> sequences, std::span<const int64_t> samples) {
  Rehearsed found;
  while (true) {
    try {
      found.step = std::make_unique<Step>(device, registry, threads, model, trained, settings, decoded);
      const size_t count = std::min(static_cast<size_t>(settings.micro * settings.unit), sequences.size());
      found.step->rehearse(sequences.first(count), samples.first(count));
      return found;
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::resource || settings.micro == 1) throw;
      found.shortage = error.what();
    }
    found.step.reset();
    settings.micro = std::max<int64_t>(1, settings.micro * 3 / 4);
  }
}

}  // namespace ingot::train
