#include "server/body_budget.h"

namespace ingot::server {

bool BodyBudget::Share::grow(size_t bytes) {
  const size_t counted = bytes > budget_.uncounted_ ? bytes - budget_.uncounted_ : 0;
  const size_t more = counted - counted_;
  if (more == 0) return true;
  // Never more than there is, not even for a moment: another body, for which there is room, would be refused.
  size_t held = budget_.held_;
  do {
    if (more > budget_.most_ - held) return false;
  } while (!budget_.held_.compare_exchange_weak(held, held + more));
  counted_ = counted;
  return true;
}

void BodyBudget::Share::release() {
  budget_.held_ -= counted_;
  counted_ = 0;
}

}  // namespace ingot::server
