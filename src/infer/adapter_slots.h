// The adapters that the engine can compute with at the moment: slots of ops::lora's table of entries. Where the device
// does not see the host's memory a slot has memory of its own there, which weights are uploaded to beside everything
// else: a thread copies them to where the device's copies reach them, and who uses the slots hands them on. Elsewhere a
// slot points to the host's. One thread uses the slots, the device's.
#pragma once

#include <cstdint>
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
  // Bytes on the device of `slots` slots for adapters of rank up to `rank` on all linear layers.
  static size_t bytes(const spec::ModelSpec& model, int64_t slots, int64_t rank, DType activation, bool host_visible);

  // Takes them from `arena`. At least one slot.
  AdapterSlots(Device& device, Arena& arena, const spec::ModelSpec& model, int64_t slots, int64_t rank,
               DType activation);
  ~AdapterSlots();

  // ErrorKind::usage, saying what is too large or of the wrong type, for an adapter that no slot can hold.
  void check(const HostAdapter& adapter) const;

  // The adapter's slot, and one more user of it; -1 when every slot is in use. Of those that nobody uses the one that
  // was used last longest ago gives way. A slot that is new to the adapter is being filled when this returns.
  int64_t acquire(const std::shared_ptr<const HostAdapter>& adapter);
  // One user less. An adapter whose weights are still being read is dropped with its last one, so that nobody reads
  // them when this has returned.
  void release(int64_t slot);

  // Whether the slot is filled, which goes on while this is asked for; `wait` returns when it is.
  bool ready(int64_t slot);
  void wait(int64_t slot);

  const Tensor& entries() const { return entries_; }  // [slots, parameters, 3] i64
  const HostAdapter& adapter(int64_t slot) const { return *slots_[static_cast<size_t>(slot)].adapter; }
  int64_t uploads() const { return uploads_; }

 private:
  struct Slot {
    std::shared_ptr<const HostAdapter> adapter;  // null: empty
    int64_t users = 0;
    uint64_t used = 0;                               // when last
    Tensor memory;                                   // bytes on the device; absent where it sees the host's
    HostBuffer staging;                              // the row of entries, then the weights
    size_t staged = 0;                               // bytes of it
    std::shared_ptr<CopyThread::Copy> staging_copy;  // while weights are read; nothing was sent to the device then
    std::unique_ptr<Event> filled;
  };

  size_t row_bytes() const { return static_cast<size_t>(entries_.shape[1]) * sizeof(ops::LoraEntry); }
  void fill(size_t slot, const HostAdapter& adapter);
  void send(size_t slot);

  Device& device_;
  int64_t rank_;
  DType activation_;
  Tensor entries_;
  std::vector<Slot> slots_;
  uint64_t clock_ = 0;
  int64_t uploads_ = 0;
  std::optional<CopyThread> copies_;  // where the device does not see the host's memory; ends before what it copies to
};

}  // namespace ingot::infer
