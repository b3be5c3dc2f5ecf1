// Assigns adapter slots on the device to sequences, in the order in which the scheduler starts waiting sequences.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "infer/adapter_slots.h"
#include "infer/scheduler.h"

namespace ingot::infer {

// Not thread-safe: used by the engine's thread only.
class AdapterPlacement {
 public:
  // `slots` and `scheduler` must outlive this object. `slots`: null where no request has an adapter. `sequences`: max
  // running sequences.
  AdapterPlacement(AdapterSlots* slots, Scheduler& scheduler, int64_t sequences)
      : slots_(slots), scheduler_(scheduler), sequences_(sequences) {}

  // Registers a sequence that needs `adapter`. It is blocked (SequenceState::blocked) until the adapter is on the
  // device.
  void add(SequenceState* sequence, std::shared_ptr<const HostAdapter> adapter);
  // Unregisters a sequence and releases its slot. Does nothing for an id that was never added.
  void remove(int64_t id);

  // Assigns slots to the sequences that are next in line, in order: a free slot goes to the first one that waits for
  // it. When no slot is free, one whose users all belong to one tenant is taken away: a slot of the same tenant if all
  // of its users have a lower priority; or, if the tenant has no slot at all, a slot of the tenant with the most slots,
  // if that has more than one. The former users are preempted and wait for a slot again. Sequences without adapters are
  // not affected.
  void assign();
  // Waits for the upload that was started first, then calls assign(). False when no upload is in progress.
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
  std::map<int64_t, Use> uses_;  // by sequence id
  std::vector<Use*> holders_;    // uses that have a slot
  std::vector<Use*> loading_;    // of `holders_`, those whose adapter is still being uploaded
};

}  // namespace ingot::infer
