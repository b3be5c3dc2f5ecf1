#include "server/body_budget.h"

namespace ingot::server {

bool BodyBudget::Share::grow(size_t bytes) {
  const size_t more = bytes - bytes_;
  if (more == 0) return true;
  if (budget_.held_.fetch_add(more) + more > budget_.most_) {
    budget_.held_ -= more;
    return false;
  }
  bytes_ = bytes;
  return true;
}

void BodyBudget::Share::release() {
  budget_.held_ -= bytes_;
  bytes_ = 0;
}

}  // namespace ingot::server
