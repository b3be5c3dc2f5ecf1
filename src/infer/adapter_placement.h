// Which sequences have their adapters on the device: they wait for slots in the order in which they wait for places.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "infer/adapter_slots.h"
#include "infer/scheduler.h"

namespace ingot::infer {

// The engine's thread alone.
class AdapterPlacement {
 public:
  // Both outlive it. `slots`: null where no request has an adapter. `sequences`: most that run at once.
  AdapterPlacement(AdapterSlots* slots, Scheduler& scheduler, int64_t sequences)
      : slots_(slots), scheduler_(scheduler), sequences_(sequences) {}

  // A sequence whose adapter is not on the device: it is blocked until it is.
  void add(SequenceState* sequence, std::shared_ptr<const HostAdapter> adapter);
  // It ends, or was never added: its slot is free for others.
  void remove(int64_t id);

  // Those that are next get their adapters into slots, in turn: the next slot that is free belongs to the first that
  // waits for one. Where none is free, one whose users are all of one tenant is taken for it: from those below it in
  // priority of its own tenant's; where that has no slot, from the tenant that has the most, and more than one. Those
  // wait for a slot again. Sequences without adapters go on meanwhile.
  void place();
  // Waits until the first adapter that is on its way is there. False when none is.
  bool wait();

  int64_t slot(int64_t id) const;  // -1: none

 private:
  struct Use {
    SequenceState* sequence = nullptr;
    std::shared_ptr<const HostAdapter> adapter;
    int64_t slot = -1;
  };
  void release(Use& use);
  bool take_slot(const SequenceState& next);

  AdapterSlots* slots_;
  Scheduler& scheduler_;
  int64_t sequences_;
  std::map<int64_t, Use> uses_;  // by the sequence's id
  std::vector<Use*> holders_;    // those that have a slot
  std::vector<Use*> loading_;    // of them, those whose adapters are on their way there
};

}  // namespace ingot::infer
