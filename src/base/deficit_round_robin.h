// Deficit round robin (Shreedhar and Varghese, 1995): decides which owner of a shared resource is next.
//
// Each owner has a credit, and what it uses is charged to it. An owner keeps its turn while it has credit, then the
// turn passes to the next owner with credit; when no ready owner has any, all waiting owners get as many quanta as are
// needed to give one of them credit. Usage may be known only afterwards, so a credit may become negative: such an owner
// is skipped for as many rounds as repay it. Use is free while no other owner has items, and a debt is at most
// max_debt.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>

namespace ingot {

// Not thread-safe. A copy is independent, so it can be used to look ahead.
class DeficitRoundRobin {
 public:
  // `quantum`: what an owner may use per round, in the units of `charge`; at least 1. `max_debt`: in the same units.
  DeficitRoundRobin(int64_t quantum, int64_t max_debt) : quantum_(quantum), max_debt_(max_debt) {}

  // The owner has one more item that waits or is in progress, or one fewer. An owner without items is forgotten.
  void enter(uint64_t owner) { ++accounts_[owner].items; }
  void leave(uint64_t owner) {
    const auto found = accounts_.find(owner);
    if (found != accounts_.end() && --found->second.items == 0) accounts_.erase(found);
  }

  // Charges `used` to an owner that has items; ignored for any other.
  void charge(uint64_t owner, int64_t used) {
    const auto found = accounts_.find(owner);
    if (found == accounts_.end()) return;
    int64_t& credit = found->second.credit;
    credit = accounts_.size() == 1 ? 0 : std::max(credit - used, -max_debt_);
  }

  // The next owner for which ready(owner) holds; nothing when there is none. `waits(owner)` holds for owners that are
  // ready or would be if there were room for them: these also get the quanta of new rounds.
  template <class Ready, class Waits>
  std::optional<uint64_t> next(const Ready& ready, const Waits& waits) {
    int64_t rounds = std::numeric_limits<int64_t>::max();  // until a ready owner has credit
    const std::optional<uint64_t> found = first([&](uint64_t owner, const Account& account) {
      if (!ready(owner)) return false;
      if (account.credit <= 0) rounds = std::min(rounds, -account.credit / quantum_ + 1);
      return account.credit > 0;
    });
    if (found || rounds == std::numeric_limits<int64_t>::max()) return found;
    for (auto& [owner, account] : accounts_) {
      if (waits(owner)) account.credit = std::min(account.credit + rounds * quantum_, quantum_ + max_debt_);
    }
    ++turn_;  // past the owner whose turn it was
    return first([&](uint64_t owner, const Account& account) { return account.credit > 0 && ready(owner); });
  }
  template <class Ready>
  std::optional<uint64_t> next(const Ready& ready) {
    return next(ready, ready);
  }

 private:
  struct Account {
    int64_t credit = 0;
    int64_t items = 0;
  };

  // The first owner that satisfies `fits`, starting with the one whose turn it is. It gets the turn.
  template <class Fits>
  std::optional<uint64_t> first(const Fits& fits) {
    auto at = accounts_.lower_bound(turn_);
    for (size_t i = 0; i < accounts_.size(); ++i, ++at) {
      if (at == accounts_.end()) at = accounts_.begin();
      if (!fits(at->first, at->second)) continue;
      turn_ = at->first;
      return turn_;
    }
    return std::nullopt;
  }

  int64_t quantum_;
  int64_t max_debt_;
  uint64_t turn_ = 0;
  std::map<uint64_t, Account> accounts_;
};

}  // namespace ingot
