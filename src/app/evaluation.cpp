#include "app/evaluation.h"

#include "base/error.h"

namespace ingot::app {

namespace {

// ids, positions, targets and losses; offsets of sub-sequences, at most one a token and one.
size_t batch_bytes(int64_t tokens) {
  const size_t count = static_cast<size_t>(tokens);
  return 4 * Arena::footprint(count * 4) + Arena::footprint((count + 1) * 4);
}

}  // namespace

Evaluation::Evaluation(Session& session, int64_t sequence_length, int64_t micro)
    : session_(session), batch_(*session.runtime.device, batch_bytes(sequence_length * micro), "batch") {
  models::PassShape shape = session.shape(sequence_length * micro, 0);
  shape.longest = sequence_length;
  scratch_ = Arena(*session.runtime.device, models::pass_bytes(session.loaded.spec, shape).loss, "scratch");
}

Evaluation::Loss Evaluation::run(std::span<const data::PackedSequence> sequences) {
  std::vector<int32_t> ids, places, targets, offsets{0};
  Loss loss;
  for (const data::PackedSequence& sequence : sequences) {
    const int32_t base = static_cast<int32_t>(ids.size());
    ids.insert(ids.end(), sequence.ids.begin(), sequence.ids.end());
    targets.insert(targets.end(), sequence.targets.begin(), sequence.targets.end());
    const std::vector<int32_t> positions = data::positions(sequence);
    places.insert(places.end(), positions.begin(), positions.end());
    for (size_t s = 1; s < sequence.offsets.size(); ++s) offsets.push_back(base + sequence.offsets[s]);
    loss.counted += sequence.counted;
  }

  Device& device = *session_.runtime.device;
  const Arena::Scope scope(batch_);
  const auto upload = [&](const std::vector<int32_t>& values) {
    const Tensor tensor = batch_.take(DType::i32, Shape{static_cast<int64_t>(values.size())});
    device.copy_from_host(tensor.data, values.data(), tensor.bytes());
    return tensor;
  };
  nn::TokenBatch flat;
  flat.ids = upload(ids);
  flat.positions = upload(places);
  flat.offsets = upload(offsets);
  const Tensor wanted = upload(targets);
  const Tensor losses = batch_.take(DType::f32, Shape{flat.tokens()});

  ops::Context context{device, session_.runtime.registry, scratch_, session_.runtime.threads.get()};
  nn::Pass pass{context, flat, session_.activation, session_.segments(flat.tokens())};
  session_.model->loss(pass, losses, wanted);
  std::vector<float> host(static_cast<size_t>(losses.elements()));
  device.copy_to_host(host.data(), losses.data, losses.bytes());
  for (float each : host) loss.sum += static_cast<double>(each);
  return loss;
}

}  // namespace ingot::app
