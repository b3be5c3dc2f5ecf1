// Which tokens of which sequences the next batch holds: per-token (Orca) continuous batching with prompts filled in
// pieces, bounded by tokens and by free pages. No tensors and no model, so that it can be tested alone.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "base/deficit_round_robin.h"
#include "infer/page_pool.h"

namespace ingot::infer {

// What the scheduler knows of a sequence.
struct SequenceState {
  int64_t id = 0;        // in order of arrival
  uint64_t tenant = 0;   // whose it is (Request::owner): tenants have equal shares
  int priority = 0;      // of those of one tenant the higher first
  int64_t tokens = 0;    // known so far: prompt and output
  int64_t cached = 0;    // of them, in the KV cache
  PageTable table;       // its pages
  int64_t guesses = 0;   // tokens behind the known ones that are to be tried with the last of these
  bool blocked = false;  // it cannot run yet; others pass it
  // For finding its beginning in kept pages; nothing is looked for where there are no ids.
  std::span<const int32_t> ids;  // the known tokens
  PrefixOwner owner;
  int64_t found = 0;  // of the tokens, when it began to run
};

// Of one tenant's: the highest priority's turn comes first, then who came first.
bool goes_before(const SequenceState* a, const SequenceState* b);

// Tokens [begin, end) of a sequence go into the batch; when end is all it has, its next token can be chosen. Beyond
// that there are guesses.
struct Piece {
  SequenceState* sequence = nullptr;
  int64_t begin = 0;
  int64_t end = 0;
};

class Scheduler {
 public:
  // `batch_tokens`: most tokens in a batch; `sequences`: most running at once.
  Scheduler(PagePool& pool, int64_t batch_tokens, int64_t sequences);

  // The sequence waits for its turn (`goes_before`). The pointer stays valid until `remove`.
  void add(SequenceState* sequence);
  // It ends: its pages are free again.
  void remove(SequenceState* sequence);
  // It waits again, to be filled anew (recompute), and if it ran its pages are free again.
  void preempt(SequenceState* sequence);

  // The next batch; empty when nothing waits or runs. Running sequences first, by priority and arrival: one token each
  // when decoding, a piece when still filling; then waiting ones while tokens, places and pages last, in turns between
  // tenants by the tokens that were computed for each (deficit round robin), and of one tenant by priority and arrival.
  // When pages run out the running sequence of the lowest priority that came last gives its pages back and waits again,
  // to be filled anew (recompute); so one does for a waiting one of the same tenant with a higher priority that finds
  // no place or no pages.
  // Who runs the batch sets what is `cached` then.
  std::vector<Piece> next();

  std::span<SequenceState* const> running_list() const { return running_; }
  // The first `count` of those that wait, or fewer, as their turns come when nobody is blocked.
  std::vector<SequenceState*> next_waiting(int64_t count) const;
  int64_t waiting() const;
  int64_t running() const { return static_cast<int64_t>(running_.size()); }
  int64_t preemptions() const { return preemptions_; }

 private:
  using Waiting = std::vector<SequenceState*>;  // of one tenant, by priority, then arrival

  bool make_room(SequenceState* sequence, int64_t tokens);
  SequenceState* outranked_by(const SequenceState& next) const;
  void yield_to_priority();
  SequenceState* next_ready(uint64_t tenant) const;
  void wait(SequenceState* sequence);
  bool stop_waiting(SequenceState* sequence);

  PagePool& pool_;
  int64_t batch_tokens_;
  int64_t most_running_;
  std::map<uint64_t, Waiting> waiting_;  // by tenant; none is empty
  std::vector<SequenceState*> running_;  // by priority, then arrival
  DeficitRoundRobin turns_;              // between tenants, in tokens
  int64_t preemptions_ = 0;
};

}  // namespace ingot::infer
