#include "infer/follower.h"

#include "base/error.h"
#include "infer/engine_link.h"
#include "infer/forward.h"

namespace ingot::infer {

void follow_engine(Device& device, const ops::Registry& registry, ThreadPool& threads,
                   const models::InferenceModel& model, const comm::Group& ranks, const FileWatch* files) {
  const EngineLink link(ranks);
  const EngineLink::Received first = link.receive();
  if (first.message == EngineMessage::end) return;
  if (first.message != EngineMessage::settings)
    throw_error(ErrorKind::internal, "rank 0's engine has not sent its settings");
  std::span<const std::byte> bytes(first.bytes);
  EngineSettings settings = take<EngineSettings>(bytes);
  settings.shard = model.shard();
  Forward forward(device, registry, threads, model, settings, ranks);
  for (;;) {
    const EngineLink::Received received = link.receive();
    switch (received.message) {
      case EngineMessage::adapter: forward.follow_adapter(received.bytes); break;
      case EngineMessage::batch:
        forward.follow_batch(received.bytes);
        if (const std::optional<FileFault> fault = files != nullptr ? files->fault() : std::nullopt)
          throw_error(ErrorKind::corrupt, "model file {}: {}", fault->file.string(), fault->what);
        break;
      case EngineMessage::idle: link.barrier(); break;
      case EngineMessage::end: return;
      case EngineMessage::settings: throw_error(ErrorKind::internal, "rank 0's engine has sent its settings twice");
    }
  }
}

void release_followers(const comm::Group& ranks) { EngineLink(ranks).send(EngineMessage::end); }

}  // namespace ingot::infer
