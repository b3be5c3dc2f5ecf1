// The LoRA adapters that the engine can compute with at the moment: slots of ops::lora's table of entries. Where the
// device does not read host memory, each slot has device memory of its own. Weights are uploaded to it while batches
// run: a CopyThread copies them into staging memory, and the thread that uses the slots starts the copy to the device.
// Elsewhere a slot points to the weights in host memory. Not thread-safe: used by the thread that runs the device.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "infer/copy_thread.h"
#include "infer/host_adapter.h"
#include "ops/lora.h"
#include "spec/model.h"
#include "tensor/staging.h"

namespace ingot::infer {

class AdapterSlots {
 public:
  // What a slot takes in place of an adapter: of a model that ranks share, this rank's part. Called once when a slot
  // begins to be filled.
  using Share =
      std::function<std::shared_ptr<const HostAdapter>(int64_t slot, const std::shared_ptr<const HostAdapter>& whole)>;

  // Device memory in bytes for `slots` slots of adapters of at most rank `rank` on all linear layers. `shard`: which
  // part of the model they adapt.
  static size_t bytes(const spec::ModelSpec& whole, const spec::ModelShard& shard, int64_t slots, int64_t rank,
                      DType activation, bool host_visible);

  // Takes the memory from `arena`. At least one slot.
  AdapterSlots(Device& device, Arena& arena, const spec::ModelSpec& whole, const spec::ModelShard& shard, int64_t slots,
               int64_t rank, DType activation, Share share = {});
  ~AdapterSlots();

  // ErrorKind::usage for an adapter that fits no slot, saying what is too large or of the wrong dtype.
  void check(const HostAdapter& adapter) const;

  // Returns the adapter's slot and adds a user to it; -1 when every slot is in use. An adapter that has no slot yet
  // gets the least recently used slot without users, and filling it is started: see `ready`.
  int64_t acquire(const std::shared_ptr<const HostAdapter>& adapter);
  // Fills this slot with the adapter, and waits until that is done. For ranks that receive adapters from rank 0.
  void place(int64_t slot, std::shared_ptr<const HostAdapter> adapter);
  // Removes a user. If it was the last one and the weights are still being copied to staging memory, the copy is
  // cancelled and the adapter dropped: nothing reads its weights after this returns.
  void release(int64_t slot);

  // Whether the slot is filled. Filling it makes progress only when this or `wait` is called; `wait` blocks until it is
  // filled.
  bool ready(int64_t slot);
  void wait(int64_t slot);

  const Tensor& entries() const { return entries_; }  // [slots, parameters, 3] i64
  const HostAdapter& adapter(int64_t slot) const { return *slots_[static_cast<size_t>(slot)].adapter; }
  int64_t uploads() const { return uploads_; }

 private:
  struct Slot {
    std::shared_ptr<const HostAdapter> adapter;  // null: empty
    int64_t users = 0;
    uint64_t used = 0;                               // `clock_` at the last acquire
    Tensor memory;                                   // device memory; absent where the device reads host memory
    PinnedBuffer staging;                            // the slot's row of `entries_`, then the weights
    size_t staged = 0;                               // bytes used in `staging`
    std::shared_ptr<CopyThread::Copy> staging_copy;  // while weights are copied to `staging`, before they are sent
    std::unique_ptr<Event> filled;
  };

  size_t row_bytes() const { return static_cast<size_t>(entries_.shape[1]) * sizeof(ops::LoraEntry); }
  void fill(size_t slot, const HostAdapter& adapter);
  void send(size_t slot);

  Device& device_;
  int64_t rank_;
  DType activation_;
  Share share_;
  Tensor entries_;
  std::vector<Slot> slots_;
  std::unique_ptr<Event> computed_;
  uint64_t clock_ = 0;
  int64_t uploads_ = 0;
  std::optional<CopyThread> copies_;  // if the device does not read host memory; destroyed before what it writes to
};

}  // namespace ingot::infer
