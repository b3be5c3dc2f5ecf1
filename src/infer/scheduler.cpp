#include "infer/scheduler.h"

#include <algorithm>

namespace ingot::infer {

bool goes_before(const SequenceState* a, const SequenceState* b) {
  return a->priority != b->priority ? a->priority > b->priority : a->id < b->id;
}

namespace {

void put(std::vector<SequenceState*>& list, SequenceState* sequence) {
  list.insert(std::upper_bound(list.begin(), list.end(), sequence, goes_before), sequence);
}

}  // namespace

Scheduler::Scheduler(PagePool& pool, int64_t batch_tokens, int64_t sequences)
    : pool_(pool), batch_tokens_(batch_tokens), most_running_(sequences) {}

void Scheduler::add(SequenceState* sequence) { put(waiting_, sequence); }

void Scheduler::remove(SequenceState* sequence) {
  pool_.release(sequence->table);
  std::erase(running_, sequence);
  std::erase(waiting_, sequence);
}

void Scheduler::preempt(SequenceState* sequence) {
  if (std::erase(running_, sequence) == 0) return;
  pool_.release(sequence->table);
  sequence->cached = 0;
  sequence->guesses = 0;  // they were behind the tokens known then
  put(waiting_, sequence);
  ++preemptions_;
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

// Takes places and pages from running sequences for waiting ones of higher priority.
void Scheduler::yield_to_priority() {
  int64_t places = most_running_ - running();
  int64_t pages = pool_.free_pages();
  for (size_t i = 0; i < waiting_.size(); ++i) {  // who is preempted comes behind i
    const SequenceState& next = *waiting_[i];
    if (next.blocked) continue;
    const int64_t needed = pool_.pages_for(std::min(next.tokens, batch_tokens_));
    while ((places < 1 || pages < needed) && !running_.empty() && running_.back()->priority < next.priority) {
      const int64_t before = pool_.free_pages();
      preempt(running_.back());
      ++places;
      pages += pool_.free_pages() - before;
    }
    if (places < 1 || pages < needed) return;
    --places;
    pages -= needed;
  }
}

std::vector<Piece> Scheduler::next() {
  std::vector<Piece> batch;
  int64_t left = batch_tokens_;
  bool full = false;
  yield_to_priority();
  // make_room may shorten running_ behind the place we are at, never before it: nobody in the batch loses pages.
  for (size_t i = 0; i < running_.size() && left > 0; ++i) {
    SequenceState* sequence = running_[i];
    const int64_t end = std::min(sequence->tokens, sequence->cached + left);
    full = !make_room(sequence, end);
    if (full) break;
    batch.push_back({sequence, sequence->cached, end});
    left -= end - sequence->cached;
  }
  for (size_t i = 0; !full && i < waiting_.size() && left > 0 && running() < most_running_;) {
    SequenceState* sequence = waiting_[i];
    if (sequence->blocked) {
      ++i;
      continue;
    }
    sequence->cached = sequence->found =
        sequence->ids.empty() ? 0 : pool_.find(sequence->table, sequence->ids, sequence->owner);
    const int64_t end = std::min(sequence->tokens, sequence->cached + left);
    if (!pool_.extend(sequence->table, end)) {
      pool_.release(sequence->table);
      sequence->cached = sequence->found = 0;
      break;
    }
    waiting_.erase(waiting_.begin() + static_cast<int64_t>(i));
    put(running_, sequence);
    batch.push_back({sequence, sequence->cached, end});
    left -= end - sequence->cached;
  }
  // What is left of the batch, and of the pages, is for guesses.
  for (Piece& piece : batch) {
    const int64_t more = std::min(piece.sequence->guesses, left);
    if (piece.end < piece.sequence->tokens || more < 1 || !pool_.extend(piece.sequence->table, piece.end + more))
      continue;
    piece.end += more;
    left -= more;
  }
  return batch;
}

}  // namespace ingot::infer
