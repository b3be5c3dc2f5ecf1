#include "infer/follower.h"

#include "base/error.h"
#include "infer/engine_link.h"
#include "infer/forward.h"

namespace ingot::infer {

void follow_engine(Device& device, const ops::Registry& registry, ThreadPool& threads, const models::Model& model,
                   const nn::TensorParallel& tp) {
  const EngineLink link(tp.group);
  const EngineLink::Received first = link.receive();
  if (first.message == EngineMessage::end) return;
  if (first.message != EngineMessage::settings)
    throw_error(ErrorKind::internal, "rank 0's engine has not sent its settings");
  std::span<const std::byte> bytes(first.bytes);
  Forward forward(device, registry, threads, model, take<EngineSettings>(bytes), tp);
  for (;;) {
    const EngineLink::Received received = link.receive();
    switch (received.message) {
      case EngineMessage::adapter: forward.follow_adapter(received.bytes); break;
      case EngineMessage::batch: forward.follow_batch(received.bytes); break;
      case EngineMessage::idle: link.barrier(); break;
      case EngineMessage::end: return;
      case EngineMessage::settings: throw_error(ErrorKind::internal, "rank 0's engine has sent its settings twice");
    }
  }
}

void release_followers(const nn::TensorParallel& tp) { EngineLink(tp.group).send(EngineMessage::end); }

}  // namespace ingot::infer
