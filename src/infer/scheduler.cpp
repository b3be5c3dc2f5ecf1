#include "infer/scheduler.h"

#include <algorithm>

namespace ingot::infer {

Scheduler::Scheduler(PagePool& pool, int64_t batch_tokens, int64_t sequences)
    : pool_(pool), batch_tokens_(batch_tokens), most_running_(sequences) {}

void Scheduler::add(SequenceState* sequence) { waiting_.push_back(sequence); }

void Scheduler::remove(SequenceState* sequence) {
  pool_.release(sequence->table);
  std::erase(running_, sequence);
  std::erase(waiting_, sequence);
}

// Pages for the sequence's first `tokens` tokens, taken from later arrivals if need be. False when it is itself the
// last.
bool Scheduler::make_room(SequenceState* sequence, int64_t tokens) {
  while (!pool_.extend(sequence->table, tokens)) {
    SequenceState* last = running_.back();
    if (last == sequence) return false;
    pool_.release(last->table);
    last->cached = 0;
    running_.pop_back();
    waiting_.push_front(last);
    ++preemptions_;
  }
  return true;
}

std::vector<Piece> Scheduler::next() {
  std::vector<Piece> batch;
  int64_t left = batch_tokens_;
  // make_room may shorten running_ behind the place we are at, never before it: nobody in the batch loses pages.
  for (size_t i = 0; i < running_.size() && left > 0; ++i) {
    SequenceState* sequence = running_[i];
    const int64_t end = std::min(sequence->tokens, sequence->cached + left);
    if (!make_room(sequence, end)) continue;
    batch.push_back({sequence, sequence->cached, end});
    left -= end - sequence->cached;
  }
  while (!waiting_.empty() && left > 0 && running() < most_running_) {
    SequenceState* sequence = waiting_.front();
    const int64_t end = std::min(sequence->tokens, sequence->cached + left);
    if (!pool_.extend(sequence->table, end)) break;
    waiting_.pop_front();
    running_.push_back(sequence);
    batch.push_back({sequence, sequence->cached, end});
    left -= end - sequence->cached;
  }
  return batch;
}

void Scheduler::done(const std::vector<Piece>& batch) {
  for (const Piece& piece : batch) piece.sequence->cached = piece.end;
}

}  // namespace ingot::infer
