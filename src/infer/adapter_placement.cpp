#include "infer/adapter_placement.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace ingot::infer {

void AdapterPlacement::add(SequenceState* sequence, std::shared_ptr<const HostAdapter> adapter) {
  uses_.emplace(sequence->id, Use{sequence, std::move(adapter)});
  sequence->blocked = true;
}

void AdapterPlacement::remove(int64_t id) {
  const auto found = uses_.find(id);
  if (found == uses_.end()) return;
  release(found->second);
  uses_.erase(found);
}

int64_t AdapterPlacement::slot(int64_t id) const {
  const auto found = uses_.find(id);
  return found == uses_.end() ? -1 : found->second.slot;
}

void AdapterPlacement::release(Use& use) {
  if (use.slot < 0) return;
  slots_->release(use.slot);
  use.slot = -1;
  use.sequence->blocked = true;
  std::erase(holders_, &use);
  std::erase(loading_, &use);
}

// Takes a slot away from its users for `next`. Of several candidates, the one whose users are last in order. False when
// there is none.
bool AdapterPlacement::take_slot(const SequenceState& next) {
  struct Users {
    int64_t slot = 0;
    const SequenceState* first = nullptr;
    bool mixed = false;  // users of several tenants
  };
  std::map<int64_t, Users> users;  // by slot
  bool has_one = false;
  for (const Use* use : holders_) {
    Users& of = users.try_emplace(use->slot, Users{use->slot, use->sequence, false}).first->second;
    of.mixed = of.mixed || use->sequence->tenant != of.first->tenant;
    if (has_precedence(use->sequence, of.first)) of.first = use->sequence;
    has_one = has_one || use->sequence->tenant == next.tenant;
  }
  std::map<uint64_t, std::vector<Users>> slots_of;  // by tenant
  for (const auto& [slot, of] : users) {
    if (!of.mixed) slots_of[of.first->tenant].push_back(of);
  }
  const auto last = [](const std::vector<Users>& all) {
    return *std::ranges::max_element(all, has_precedence, &Users::first);
  };
  std::optional<int64_t> slot;
  if (const auto own_slots = slots_of.find(next.tenant); own_slots != slots_of.end()) {
    const Users lowest = last(own_slots->second);
    if (lowest.first->priority < next.priority) slot = lowest.slot;
  }
  if (!has_one && !slots_of.empty()) {
    const auto largest = std::ranges::max_element(slots_of, {}, [](const auto& each) { return each.second.size(); });
    if (largest->second.size() > 1) slot = last(largest->second).slot;
  }
  if (!slot) return false;
  for (Use* use : std::vector(holders_)) {
    if (use->slot != *slot) continue;
    scheduler_.preempt(use->sequence);
    release(*use);
  }
  return true;
}

void AdapterPlacement::assign() {
  if (!slots_) return;
  bool full = false;  // an earlier sequence waits for a slot
  for (const SequenceState* next : scheduler_.next_waiting(sequences_)) {
    const auto found = uses_.find(next->id);
    if (found == uses_.end() || found->second.slot >= 0) continue;
    Use& use = found->second;
    if (!full) use.slot = slots_->acquire(use.adapter);
    if (use.slot < 0 && take_slot(*next)) use.slot = slots_->acquire(use.adapter);
    if (use.slot < 0) {
      full = true;
      continue;
    }
    holders_.push_back(&use);
    loading_.push_back(&use);
  }
  std::erase_if(loading_, [&](Use* use) {
    if (!slots_->ready(use->slot)) return false;
    use->sequence->blocked = false;
    return true;
  });
}

bool AdapterPlacement::wait() {
  if (loading_.empty()) return false;
  slots_->wait(loading_.front()->slot);
  assign();
  return true;
}

}  // namespace ingot::infer
