// Whose turn it is among owners that share something: deficit round robin (Shreedhar and Varghese, 1995).
//
// An owner has credit, of which what it uses is taken. Turns go round: an owner keeps its turn while it has credit,
// then the next has its own; when nobody who is ready has any, all who are get a quantum more. What is used may be
// known only afterwards, so a credit may be negative: such an owner is passed over for as many rounds as pay for it.
// What is used while no other owner has anything costs nothing, and a debt has a bound.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>

namespace ingot {

// Not thread-safe. A copy goes on by itself: what it gives is what would come next.
class DeficitRoundRobin {
 public:
  // `quantum`: what an owner may use in a round, in the units of `charge`; at least 1. `max_debt`: likewise.
  DeficitRoundRobin(int64_t quantum, int64_t max_debt) : quantum_(quantum), max_debt_(max_debt) {}

  // The owner has one more thing that waits or is under way, or one fewer. Who has none is forgotten.
  void enter(uint64_t owner) { ++accounts_[owner].things; }
  void leave(uint64_t owner) {
    const auto found = accounts_.find(owner);
    if (found != accounts_.end() && --found->second.things == 0) accounts_.erase(found);
  }

  // Of an owner that has something.
  void charge(uint64_t owner, int64_t used) {
    const auto found = accounts_.find(owner);
    if (found == accounts_.end()) return;
    int64_t& credit = found->second.credit;
    credit = accounts_.size() == 1 ? 0 : std::max(credit - used, -max_debt_);
  }

  // Of those for whom ready(owner) holds; nobody's when there are none. `waits`: who is ready, and who would be if
  // there were room for it: a round gives to these, too.
  template <class Ready, class Waits>
  std::optional<uint64_t> next(const Ready& ready, const Waits& waits) {
    int64_t rounds = std::numeric_limits<int64_t>::max();  // until one of them has credit
    const std::optional<uint64_t> found = first([&](uint64_t owner, const Account& account) {
      if (!ready(owner)) return false;
      if (account.credit <= 0) rounds = std::min(rounds, -account.credit / quantum_ + 1);
      return account.credit > 0;
    });
    if (found || rounds == std::numeric_limits<int64_t>::max()) return found;
    for (auto& [owner, account] : accounts_) {
      if (waits(owner)) account.credit = std::min(account.credit + rounds * quantum_, quantum_ + max_debt_);
    }
    ++turn_;  // past whose turn it was
    return first([&](uint64_t owner, const Account& account) { return account.credit > 0 && ready(owner); });
  }
  template <class Ready>
  std::optional<uint64_t> next(const Ready& ready) {
    return next(ready, ready);
  }

 private:
  struct Account {
    int64_t credit = 0;
    int64_t things = 0;
  };

  // The first owner that fits, from the one whose turn it is; it is its turn then.
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
