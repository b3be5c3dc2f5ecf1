#include "server/body_budget.h"

namespace ingot::server {

void BodyBudget::Share::set_owner(uint64_t owner) { owner_ = owner; }

bool BodyBudget::Share::grow(size_t bytes) {
  const size_t counted = bytes > budget_.uncounted_ ? bytes - budget_.uncounted_ : 0;
  const size_t more = counted - counted_;
  if (more == 0) return true;
  const auto held = budget_.held_.lock();
  if (more > budget_.max_bytes_ - held->bytes) return false;
  if (owner_ != 0) {
    const auto found = held->of.find(owner_);
    const size_t owner_bytes = found == held->of.end() ? 0 : found->second;
    if (owner_bytes + more > budget_.max_bytes_ / 2) return false;
    held->of[owner_] = owner_bytes + more;
  }
  held->bytes += more;
  counted_ = counted;
  return true;
}

void BodyBudget::Share::release() {
  if (counted_ == 0) return;
  const auto held = budget_.held_.lock();
  held->bytes -= counted_;
  if (const auto found = held->of.find(owner_); found != held->of.end()) {
    found->second -= counted_;
    if (found->second == 0) held->of.erase(found);
  }
  counted_ = 0;
}

}  // namespace ingot::server
