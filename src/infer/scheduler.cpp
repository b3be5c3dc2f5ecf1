#include "infer/scheduler.h"

#include <algorithm>
#include <set>

namespace ingot::infer {

bool goes_before(const SequenceState* a, const SequenceState* b) {
  return a->priority != b->priority ? a->priority > b->priority : a->id < b->id;
}

namespace {

// Tokens that a tenant is given in a round. Few, so that who has one short request waits for few of the others'.
constexpr int64_t round_tokens = 16;
constexpr int64_t max_debt_tokens = 4096;  // a tenant is passed over for at most so many of others'

void put(std::vector<SequenceState*>& list, SequenceState* sequence) {
  list.insert(std::upper_bound(list.begin(), list.end(), sequence, goes_before), sequence);
}

}  // namespace

Scheduler::Scheduler(PagePool& pool, int64_t batch_tokens, int64_t sequences)
    : pool_(pool), batch_tokens_(batch_tokens), max_running_(sequences), turns_(round_tokens, max_debt_tokens) {}

void Scheduler::wait(SequenceState* sequence) {
  Waiting& list = waiting_[sequence->tenant];
  try {
    put(list, sequence);
  } catch (...) {
    if (list.empty()) waiting_.erase(sequence->tenant);
    throw;
  }
}

bool Scheduler::stop_waiting(SequenceState* sequence) {
  const auto found = waiting_.find(sequence->tenant);
  if (found == waiting_.end() || std::erase(found->second, sequence) == 0) return false;
  if (found->second.empty()) waiting_.erase(found);
  return true;
}

void Scheduler::add(SequenceState* sequence) {
  turns_.enter(sequence->tenant);
  try {
    wait(sequence);
  } catch (...) {
    turns_.leave(sequence->tenant);
    throw;
  }
}

void Scheduler::remove(SequenceState* sequence) {
  pool_.release(sequence->table);
  if (std::erase(running_, sequence) > 0 || stop_waiting(sequence)) turns_.leave(sequence->tenant);
}

void Scheduler::preempt(SequenceState* sequence) {
  if (!runs(sequence)) return;
  stop(sequence);
  ++preemptions_;
}

bool Scheduler::runs(const SequenceState* sequence) const {
  return std::find(running_.begin(), running_.end(), sequence) != running_.end();
}

// A waiting sequence has a place, and those pages that are kept of its beginning.
void Scheduler::start(SequenceState* sequence) {
  sequence->cached = sequence->ids.empty() ? 0 : pool_.find(sequence->table, sequence->ids, sequence->owner);
  const auto by_arrival = [](const SequenceState* a, const SequenceState* b) { return a->id < b->id; };
  running_.insert(std::upper_bound(running_.begin(), running_.end(), sequence, by_arrival), sequence);
  stop_waiting(sequence);
}

void Scheduler::stop(SequenceState* sequence) {
  std::erase(running_, sequence);
  pool_.release(sequence->table);
  sequence->cached = 0;
  sequence->guesses = 0;  // they were behind the tokens known then
  wait(sequence);
}

int64_t Scheduler::waiting() const {
  int64_t count = 0;
  for (const auto& [tenant, list] : waiting_) count += std::ssize(list);
  return count;
}

SequenceState* Scheduler::next_ready(uint64_t tenant) const {
  const auto found = waiting_.find(tenant);
  if (found == waiting_.end()) return nullptr;
  const Waiting& list = found->second;
  const auto ready = std::find_if(list.begin(), list.end(), [](const SequenceState* s) { return !s->blocked; });
  return ready == list.end() ? nullptr : *ready;
}

std::vector<SequenceState*> Scheduler::next_waiting(int64_t count) const {
  std::vector<SequenceState*> order;
  DeficitRoundRobin turns = turns_;
  std::map<uint64_t, size_t> given;
  while (std::ssize(order) < count) {
    const std::optional<uint64_t> tenant = turns.next([&](uint64_t each) {
      const auto found = waiting_.find(each);
      return found != waiting_.end() && given[each] < found->second.size();
    });
    if (!tenant) break;
    SequenceState* sequence = waiting_.at(*tenant)[given[*tenant]++];
    turns.charge(*tenant, std::min(sequence->tokens, batch_tokens_));
    order.push_back(sequence);
  }
  return order;
}

std::map<uint64_t, Scheduler::Share> Scheduler::shares() const {
  std::map<uint64_t, Share> all;
  for (SequenceState* each : running_) {
    Share& of = all[each->tenant];
    ++of.count;
    of.pages += std::ssize(each->table.pages);
    if (!of.last || goes_before(of.last, each)) of.last = each;
  }
  return all;
}

namespace {

// The tenant with the most running; of equals the one whose last came last.
template <class Shares>
auto largest_of(const Shares& shares) {
  return std::max_element(shares.begin(), shares.end(),
                          [](const auto& a, const auto& b) {
                            return std::pair(a.second.count, a.second.last->id) <
                                   std::pair(b.second.count, b.second.last->id);
                          })
      ->second;
}

bool decodes(const SequenceState& sequence) { return sequence.cached + 1 == sequence.tokens; }

}  // namespace

// The running one that gives way to it: its tenant's of the lowest priority that came last. Null when there is none.
SequenceState* Scheduler::outranked_by(const SequenceState& next) const {
  SequenceState* last = nullptr;
  for (SequenceState* each : running_) {
    if (each->tenant != next.tenant || each->priority >= next.priority) continue;
    if (!last || goes_before(last, each)) last = each;
  }
  return last;
}

// The running one that gives its pages up for a running one, which may be that one itself.
SequenceState* Scheduler::victim_of(const SequenceState& next) const {
  if (SequenceState* outranked = outranked_by(next)) return outranked;
  const std::map<uint64_t, Share> all = shares();
  const Share& own = all.at(next.tenant);
  const Share largest = largest_of(all);
  return largest.count > 1 && largest.pages <= own.pages ? own.last : largest.last;
}

// Pages for the first `tokens` tokens of a running sequence, taken from others if need be. How many it has pages for:
// fewer when it is itself the one that would give its pages back.
int64_t Scheduler::make_room(SequenceState* sequence, int64_t tokens, Batch& batch) {
  while (!pool_.extend(sequence->table, tokens)) {
    SequenceState* victim = victim_of(*sequence);
    if (victim == sequence) {
      const int64_t pages = std::ssize(sequence->table.pages) + pool_.free_pages();
      tokens = std::min(tokens, pages * pool_.page_tokens());
      pool_.extend(sequence->table, tokens);
      break;
    }
    const auto piece = std::ranges::find(batch.pieces, victim, &Piece::sequence);
    if (piece != batch.pieces.end()) {
      batch.left += piece->end - piece->begin;
      turns_.charge(victim->tenant, piece->begin - piece->end);
      batch.pieces.erase(piece);
    }
    preempt(victim);
    batch.pages_taken = true;
  }
  return tokens;
}

// Takes places from running sequences, as `next` says.
void Scheduler::yield_places() {
  if (running() < max_running_ || waiting_.empty()) return;
  std::vector<uint64_t> tenants;
  for (const auto& [tenant, list] : waiting_) tenants.push_back(tenant);
  for (const uint64_t tenant : tenants) {
    for (;;) {
      SequenceState* next = next_ready(tenant);
      SequenceState* outranked = next ? outranked_by(*next) : nullptr;
      if (!outranked) break;
      preempt(outranked);
      start(next);
    }
  }
  std::map<uint64_t, Share> running_of = shares();
  const auto has_none = [&](uint64_t tenant) { return !running_of.contains(tenant) && next_ready(tenant) != nullptr; };
  if (std::ranges::none_of(tenants, has_none)) return;
  DeficitRoundRobin turns = turns_;  // to begin is not charged
  for (;;) {
    const Share largest = largest_of(running_of);
    const std::optional<uint64_t> tenant = largest.count > 1 ? turns.next(has_none) : std::nullopt;
    if (!tenant) return;
    preempt(largest.last);
    start(next_ready(*tenant));
    running_of = shares();
  }
}

void Scheduler::take(Batch& batch, SequenceState* sequence, int64_t end) {
  batch.pieces.push_back({sequence, sequence->cached, end});
  batch.left -= end - sequence->cached;
  turns_.charge(sequence->tenant, end - sequence->cached);
}

// Pieces of prompts, in turns between tenants.
void Scheduler::fill_prompts(Batch& batch) {
  std::map<uint64_t, Waiting> filling;  // of those that run
  for (SequenceState* each : running_) {
    if (!decodes(*each)) put(filling[each->tenant], each);
  }
  std::set<const SequenceState*> tried;
  std::set<uint64_t> served;
  bool full = batch.pages_taken;  // no pages for what waits
  // A tenant without a place, and a higher priority, may take pages from those that run.
  const auto may_take = [&](const SequenceState& next) {
    const bool none = std::ranges::none_of(running_, [&](const auto* each) { return each->tenant == next.tenant; });
    return none || outranked_by(next) != nullptr;
  };
  const auto next_of = [&](uint64_t tenant) {
    SequenceState* next = nullptr;
    if (const auto found = filling.find(tenant); found != filling.end()) {
      const auto first = std::ranges::find_if(
          found->second, [&](const SequenceState* each) { return !tried.contains(each) && runs(each); });
      if (first != found->second.end()) next = *first;
    }
    SequenceState* waits = running() < max_running_ ? next_ready(tenant) : nullptr;
    if (!waits || tried.contains(waits) || (next && goes_before(next, waits))) return next;
    return full && !may_take(*waits) ? next : waits;
  };
  while (batch.left > 0) {
    const std::optional<uint64_t> tenant =
        turns_.next([&](uint64_t each) { return next_of(each) != nullptr; },
                    [&](uint64_t each) { return filling.contains(each) || waiting_.contains(each); });
    if (!tenant) return;
    SequenceState* sequence = next_of(*tenant);
    const auto waits_too = [&](const auto& each) {
      return each.first != *tenant && !served.contains(each.first) && next_of(each.first) != nullptr;
    };
    const bool shared = std::ranges::any_of(filling, waits_too) || std::ranges::any_of(waiting_, waits_too);
    const int64_t most = shared ? (batch.left + 1) / 2 : batch.left;
    tried.insert(sequence);
    served.insert(*tenant);
    const bool takes = runs(sequence) || may_take(*sequence);
    if (!runs(sequence)) start(sequence);
    int64_t end = std::min(sequence->tokens, sequence->cached + most);
    if (takes) {
      end = make_room(sequence, end, batch);
      full = full || batch.pages_taken;
    } else if (!pool_.extend(sequence->table, end)) {
      stop(sequence);
      full = true;
      continue;
    }
    if (end > sequence->cached) take(batch, sequence, end);
  }
}

std::vector<Piece> Scheduler::next() {
  yield_places();
  Batch batch{.pieces = {}, .left = batch_tokens_};
  for (SequenceState* sequence : std::vector(running_)) {
    if (batch.left < 1) break;
    if (!runs(sequence) || !decodes(*sequence)) continue;
    if (make_room(sequence, sequence->tokens, batch) == sequence->tokens) take(batch, sequence, sequence->tokens);
  }
  fill_prompts(batch);
  // What is left of the batch, and of the pages, is for guesses.
  for (Piece& piece : batch.pieces) {
    const int64_t more = std::min(piece.sequence->guesses, batch.left);
    if (piece.end < piece.sequence->tokens || more < 1 || !pool_.extend(piece.sequence->table, piece.end + more))
      continue;
    piece.end += more;
    batch.left -= more;
    turns_.charge(piece.sequence->tenant, more);
  }
  return std::move(batch.pieces);
}

}  // namespace ingot::infer
