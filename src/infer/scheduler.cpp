#include "infer/scheduler.h"

#include <algorithm>

namespace ingot::infer {

bool goes_before(const SequenceState* a, const SequenceState* b) {
  return a->priority != b->priority ? a->priority > b->priority : a->id < b->id;
}

namespace {

// Tokens that a tenant is given in a round. Few, so that who has one short request waits for few of the others'.
constexpr int64_t round_tokens = 16;

void put(std::vector<SequenceState*>& list, SequenceState* sequence) {
  list.insert(std::upper_bound(list.begin(), list.end(), sequence, goes_before), sequence);
}

}  // namespace

Scheduler::Scheduler(PagePool& pool, int64_t batch_tokens, int64_t sequences)
    : pool_(pool), batch_tokens_(batch_tokens), most_running_(sequences), turns_(round_tokens) {}

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
  if (std::erase(running_, sequence) == 0) return;
  pool_.release(sequence->table);
  sequence->cached = 0;
  sequence->guesses = 0;  // they were behind the tokens known then
  wait(sequence);
  ++preemptions_;
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

// Pages for the sequence's first `tokens` tokens, taken from those behind it if need be. False when it is itself the
// last.
bool Scheduler::make_room(SequenceState* sequence, int64_t tokens) {
  while (!pool_.extend(sequence->table, tokens)) {
    if (running_.back() == sequence) return false;
    preempt(running_.back());
  }
  return true;
}

// The running one that gives way to it: its tenant's of the lowest priority that came last. Null when there is none.
SequenceState* Scheduler::outranked_by(const SequenceState& next) const {
  const auto found = std::find_if(running_.rbegin(), running_.rend(), [&](const SequenceState* each) {
    return each->tenant == next.tenant && each->priority < next.priority;
  });
  return found == running_.rend() ? nullptr : *found;
}

// Takes places and pages from running sequences for waiting ones of the same tenant and a higher priority.
void Scheduler::yield_to_priority() {
  const bool any = std::any_of(waiting_.begin(), waiting_.end(), [&](const auto& each) {
    const SequenceState* first = next_ready(each.first);
    return first != nullptr && outranked_by(*first) != nullptr;
  });
  if (!any) return;
  int64_t places = most_running_ - running();
  int64_t pages = pool_.free_pages();
  for (const SequenceState* next : next_waiting(most_running_)) {
    if (next->blocked) continue;
    const int64_t needed = pool_.pages_for(std::min(next->tokens, batch_tokens_));
    while (places < 1 || pages < needed) {
      SequenceState* outranked = outranked_by(*next);
      if (outranked == nullptr) return;
      const int64_t before = pool_.free_pages();
      preempt(outranked);
      ++places;
      pages += pool_.free_pages() - before;
    }
    --places;
    pages -= needed;
  }
}

std::vector<Piece> Scheduler::next() {
  std::vector<Piece> batch;
  int64_t left = batch_tokens_;
  bool full = false;
  const auto take = [&](SequenceState* sequence, int64_t end) {
    batch.push_back({sequence, sequence->cached, end});
    left -= end - sequence->cached;
    turns_.charge(sequence->tenant, end - sequence->cached);
  };
  yield_to_priority();
  // make_room may shorten running_ behind the place we are at, never before it: nobody in the batch loses pages.
  for (size_t i = 0; i < running_.size() && left > 0; ++i) {
    SequenceState* sequence = running_[i];
    const int64_t end = std::min(sequence->tokens, sequence->cached + left);
    full = !make_room(sequence, end);
    if (full) break;
    take(sequence, end);
  }
  while (!full && left > 0 && running() < most_running_) {
    const std::optional<uint64_t> tenant = turns_.next([&](uint64_t each) { return next_ready(each) != nullptr; });
    if (!tenant) break;
    SequenceState* sequence = next_ready(*tenant);
    sequence->cached = sequence->found =
        sequence->ids.empty() ? 0 : pool_.find(sequence->table, sequence->ids, sequence->owner);
    const int64_t end = std::min(sequence->tokens, sequence->cached + left);
    if (!pool_.extend(sequence->table, end)) {
      pool_.release(sequence->table);
      sequence->cached = sequence->found = 0;
      break;
    }
    put(running_, sequence);
    stop_waiting(sequence);
    take(sequence, end);
  }
  // What is left of the batch, and of the pages, is for guesses.
  for (Piece& piece : batch) {
    const int64_t more = std::min(piece.sequence->guesses, left);
    if (piece.end < piece.sequence->tokens || more < 1 || !pool_.extend(piece.sequence->table, piece.end + more))
      continue;
    piece.end += more;
    left -= more;
    turns_.charge(piece.sequence->tenant, more);
  }
  return batch;
}

}  // namespace ingot::infer
