#include "infer/scheduler.h"

#include <algorithm>
#include <set>

namespace ingot::infer {

bool has_precedence(const SequenceState* a, const SequenceState* b) {
  return a->priority != b->priority ? a->priority > b->priority : a->id < b->id;
}

namespace {

// Tokens of a tenant per round. Few, so that a tenant with one short request waits for few tokens of the others.
constexpr int64_t round_tokens = 16;
constexpr int64_t max_debt_tokens = 4096;  // a tenant is skipped for at most this many tokens of others

void put(std::vector<SequenceState*>& list, SequenceState* sequence) {
  list.insert(std::upper_bound(list.begin(), list.end(), sequence, has_precedence), sequence);
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

// Gives a waiting sequence a batch slot and the cached pages of its prefix.
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
  sequence->draft_tokens = 0;  // they followed the tokens known then
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
    if (!of.last || has_precedence(of.last, each)) of.last = each;
  }
  return all;
}

namespace {

// The share of the tenant with the most running sequences; of equals, the one whose last sequence arrived last.
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

// The running sequence of the same tenant that is preempted for `next`: of those of a lower priority, the last by
// has_precedence. Null when there is none.
SequenceState* Scheduler::lower_priority_victim(const SequenceState& next) const {
  SequenceState* last = nullptr;
  for (SequenceState* each : running_) {
    if (each->tenant != next.tenant || each->priority >= next.priority) continue;
    if (!last || has_precedence(last, each)) last = each;
  }
  return last;
}

// The running sequence that is preempted when the running sequence `next` needs pages; may be `next` itself.
SequenceState* Scheduler::victim_of(const SequenceState& next) const {
  if (SequenceState* outranked = lower_priority_victim(next)) return outranked;
  const std::map<uint64_t, Share> all = shares();
  const Share& requesting = all.at(next.tenant);
  const Share largest = largest_of(all);
  return largest.count > 1 && largest.pages <= requesting.pages ? requesting.last : largest.last;
}

// Allocates pages for the first `tokens` tokens of a running sequence, by preemption if needed. Returns how many tokens
// it has pages for: fewer when the sequence itself would be preempted.
int64_t Scheduler::make_room(SequenceState* sequence, int64_t tokens, Batch& batch) {
  while (!pool_.extend(sequence->table, tokens)) {
    SequenceState* victim = victim_of(*sequence);
    if (victim == sequence) {
      const int64_t pages = std::ssize(sequence->table.pages) + pool_.free_pages();
      tokens = std::min(tokens, pages * pool_.page_tokens());
      pool_.extend(sequence->table, tokens);
      break;
    }
    const auto chunk = std::ranges::find(batch.chunks, victim, &ScheduledChunk::sequence);
    if (chunk != batch.chunks.end()) {
      batch.left += chunk->end - chunk->begin;
      turns_.charge(victim->tenant, chunk->begin - chunk->end);
      batch.chunks.erase(chunk);
    }
    preempt(victim);
    batch.pages_taken = true;
  }
  return tokens;
}

// Preempts running sequences for batch slots, as described at `next`.
void Scheduler::preempt_for_slots() {
  if (running() < max_running_ || waiting_.empty()) return;
  std::vector<uint64_t> tenants;
  for (const auto& [tenant, list] : waiting_) tenants.push_back(tenant);
  for (const uint64_t tenant : tenants) {
    for (;;) {
      SequenceState* next = next_ready(tenant);
      SequenceState* outranked = next ? lower_priority_victim(*next) : nullptr;
      if (!outranked) break;
      preempt(outranked);
      start(next);
    }
  }
  std::map<uint64_t, Share> running_of = shares();
  const auto has_none = [&](uint64_t tenant) { return !running_of.contains(tenant) && next_ready(tenant) != nullptr; };
  if (std::ranges::none_of(tenants, has_none)) return;
  DeficitRoundRobin turns = turns_;  // a copy: starting is not charged
  for (;;) {
    const Share largest = largest_of(running_of);
    const std::optional<uint64_t> tenant = largest.count > 1 ? turns.next(has_none) : std::nullopt;
    if (!tenant) return;
    preempt(largest.last);
    start(next_ready(*tenant));
    running_of = shares();
  }
}

void Scheduler::append_chunk(Batch& batch, SequenceState* sequence, int64_t end) {
  batch.chunks.push_back({sequence, sequence->cached, end});
  batch.left -= end - sequence->cached;
  turns_.charge(sequence->tenant, end - sequence->cached);
}

// Adds prompt chunks to the batch, in turns between tenants.
void Scheduler::fill_prompts(Batch& batch) {
  std::map<uint64_t, Waiting> filling;  // running sequences in prefill, by tenant
  for (SequenceState* each : running_) {
    if (!decodes(*each) && !each->blocked) put(filling[each->tenant], each);
  }
  std::set<const SequenceState*> tried;
  std::set<uint64_t> served;
  bool full = batch.pages_taken;  // no pages for waiting sequences
  // A waiting sequence may preempt for pages if its tenant has nothing running, or if it outranks a running one.
  const auto may_take = [&](const SequenceState& next) {
    const bool none = std::ranges::none_of(running_, [&](const auto* each) { return each->tenant == next.tenant; });
    return none || lower_priority_victim(next) != nullptr;
  };
  const auto next_of = [&](uint64_t tenant) {
    SequenceState* next = nullptr;
    if (const auto found = filling.find(tenant); found != filling.end()) {
      const auto first = std::ranges::find_if(
          found->second, [&](const SequenceState* each) { return !tried.contains(each) && runs(each); });
      if (first != found->second.end()) next = *first;
    }
    SequenceState* waits = running() < max_running_ ? next_ready(tenant) : nullptr;
    if (!waits || tried.contains(waits) || (next && has_precedence(next, waits))) return next;
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
    const int64_t max_chunk = shared ? (batch.left + 1) / 2 : batch.left;
    tried.insert(sequence);
    served.insert(*tenant);
    const bool takes = runs(sequence) || may_take(*sequence);
    if (!runs(sequence)) start(sequence);
    int64_t end = std::min(sequence->tokens, sequence->cached + max_chunk);
    if (takes) {
      end = make_room(sequence, end, batch);
      full = full || batch.pages_taken;
    } else if (!pool_.extend(sequence->table, end)) {
      stop(sequence);
      full = true;
      continue;
    }
    if (end > sequence->cached) append_chunk(batch, sequence, end);
  }
}

bool Scheduler::has_decoding_pages() const {
  int64_t missing = 0;
  for (const SequenceState* each : running_) {
    if (!decodes(*each) || each->blocked) continue;
    missing += std::max<int64_t>(0, pool_.pages_for(each->tokens) - std::ssize(each->table.pages));
  }
  return missing <= pool_.free_pages();
}

bool Scheduler::can_start() const {
  return running() < max_running_ &&
         std::ranges::any_of(waiting_, [&](const auto& of) { return next_ready(of.first) != nullptr; });
}

std::vector<ScheduledChunk> Scheduler::next() {
  preempt_for_slots();
  Batch batch{.chunks = {}, .left = batch_tokens_};
  for (SequenceState* sequence : std::vector(running_)) {
    if (batch.left < 1) break;
    if (!runs(sequence) || !decodes(*sequence) || sequence->blocked) continue;
    if (make_room(sequence, sequence->tokens, batch) == sequence->tokens)
      append_chunk(batch, sequence, sequence->tokens);
  }
  fill_prompts(batch);
  // Draft tokens get what is left of the batch and of the free pages.
  for (ScheduledChunk& chunk : batch.chunks) {
    const int64_t more = std::min(chunk.sequence->draft_tokens, batch.left);
    if (chunk.end < chunk.sequence->tokens || more < 1 || !pool_.extend(chunk.sequence->table, chunk.end + more))
      continue;
    chunk.end += more;
    batch.left -= more;
    turns_.charge(chunk.sequence->tenant, more);
  }
  return std::move(batch.chunks);
}

}  // namespace ingot::infer
