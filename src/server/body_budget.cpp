#include "server/body_budget.h"

namespace ingot::server {

bool BodyBudget::Share::grow(size_t bytes) {
  const size_t counted = bytes > budget_.uncounted_ ? bytes - budget_.uncounted_ : 0;
  const size_t more = counted - counted_;
  if (more == 0) return true;
  if (budget_.held_.fetch_add(more) + more > budget_.most_) {
    budget_.held_ -= more;
    return false;
  }
  counted_ = counted;
  return true;
}

void BodyBudget::Share::release() {
  budget_.held_ -= counted_;
  counted_ = 0;
}

}  // namespace ingot::server
