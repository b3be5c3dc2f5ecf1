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

  // The next batch; empty when nothing waits or runs. Sequences that decode come first, in order of arrival, one token
  // each; what is left is for pieces of prompts, in turns between tenants by the tokens that were computed for each
  // (deficit round robin), of one tenant by priority and arrival. While others wait for their first piece of the batch,
  // one tenant's takes at most half of what is left. Prompts that run go on; waiting ones begin while there are places
  // and pages. Then, where there is none left:
  // - a place: of a tenant's running sequences one of a lower priority waits again for a higher one that is ready; for
  //   a tenant of which nothing runs, the last (`goes_before`) of the tenant with the most running, if it has several;
  // - pages: for what runs, and for such waiting ones, first a sequence of a lower priority of the same tenant gives
  //   all of its pages back and waits again, to be filled anew (recompute), then the last of the tenant with the most
  //   running; while that tenant has several, only as long as it holds more pages than the one that asks, whose own
  //   last gives way otherwise.
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

  struct Batch {
    std::vector<Piece> pieces;
    int64_t left = 0;          // tokens
    bool pages_taken = false;  // of a running sequence
  };
  struct Share {
    int64_t count = 0;              // of a tenant's running sequences
    int64_t pages = 0;              // in their tables; one that several share counts for each
    SequenceState* last = nullptr;  // of them, by goes_before
  };

  int64_t make_room(SequenceState* sequence, int64_t tokens, Batch& batch);
  void take(Batch& batch, SequenceState* sequence, int64_t end);
  void fill_prompts(Batch& batch);
  std::map<uint64_t, Share> shares() const;
  SequenceState* outranked_by(const SequenceState& next) const;
  SequenceState* victim_of(const SequenceState& next) const;
  void yield_places();
  SequenceState* next_ready(uint64_t tenant) const;
  void start(SequenceState* sequence);
  void stop(SequenceState* sequence);
  bool runs(const SequenceState* sequence) const;
  void wait(SequenceState* sequence);
  bool stop_waiting(SequenceState* sequence);

  PagePool& pool_;
  int64_t batch_tokens_;
  int64_t max_running_;
  std::map<uint64_t, Waiting> waiting_;  // by tenant; none is empty
  std::vector<SequenceState*> running_;  // by arrival
  DeficitRoundRobin turns_;              // between tenants, in tokens
  int64_t preemptions_ = 0;
};

}  // namespace ingot::infer
