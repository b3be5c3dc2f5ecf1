// Decides which tokens of which sequences are in the next batch: continuous batching (Orca) with chunked prefill,
// bounded by tokens and by free pages. No tensors and no model, so that it can be tested alone.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "base/deficit_round_robin.h"
#include "infer/page_pool.h"

namespace ingot::infer {

// What the scheduler knows about a sequence.
struct SequenceState {
  int64_t id = 0;            // in order of arrival
  uint64_t tenant = 0;       // owner (Request::owner); tenants have equal shares
  int priority = 0;          // higher first among sequences of one tenant
  int64_t tokens = 0;        // known tokens: prompt and output
  int64_t cached = 0;        // of these, in the KV cache
  PageTable table;           // its KV cache pages
  int64_t draft_tokens = 0;  // draft tokens to verify together with the last known token
  bool blocked = false;      // it cannot run yet, or its last batch is in flight; others overtake it
  // For prefix cache lookup, which is skipped if `ids` is empty.
  std::span<const int32_t> ids;  // the known tokens
  PrefixOwner owner;
};

// Order within a tenant: higher priority first, then earlier arrival.
bool has_precedence(const SequenceState* a, const SequenceState* b);

// Tokens [begin, end) of a sequence in the batch. If `end` reaches the known tokens, the next token can be sampled;
// tokens beyond the known ones are draft tokens.
struct ScheduledChunk {
  SequenceState* sequence = nullptr;
  int64_t begin = 0;
  int64_t end = 0;
};

class Scheduler {
 public:
  // `batch_tokens`: max tokens in a batch; `sequences`: max running sequences.
  Scheduler(PagePool& pool, int64_t batch_tokens, int64_t sequences);

  // Adds a waiting sequence (order: `has_precedence`). The pointer must stay valid until `remove`.
  void add(SequenceState* sequence);
  // Removes a sequence and frees its pages.
  void remove(SequenceState* sequence);
  // Preempts a sequence if it runs: frees its pages and lets it wait for a new prefill (recompute).
  void preempt(SequenceState* sequence);

  // The next batch; empty when nothing runs and nothing can start. Sequences that decode come first, in order of
  // arrival, one token each. The rest is for prompt chunks: tenants take turns by the tokens computed for each (deficit
  // round robin); within a tenant priority and arrival decide. While other tenants wait for their first chunk of the
  // batch, one chunk takes at most half of what is left. Running prompts continue; waiting sequences start while there
  // are batch slots and pages. When these run out, running sequences are preempted:
  // - for a batch slot: a sequence of a lower priority, for a ready one of a higher priority of the same tenant; or,
  //   for a tenant of which nothing runs, the last sequence (`has_precedence`) of the tenant with the most running, if
  //   it has several;
  // - for pages of running sequences, and of waiting ones that may preempt: first a sequence of a lower priority of the
  //   same tenant, then the last one of the tenant with the most running. If that tenant has several running and holds
  //   no more pages than the requesting tenant, the requesting tenant's own last sequence is preempted instead.
  // The caller sets `cached` after running the batch.
  std::vector<ScheduledChunk> next();

  // Whether there are free pages for the next token of every sequence that decodes: `next` preempts none for them.
  bool has_decoding_pages() const;
  // Whether `next` may start a waiting sequence without preemption.
  bool can_start() const;

  std::span<SequenceState* const> running_list() const { return running_; }
  // The first `count` waiting sequences, or fewer, in the order in which they would start if none were blocked.
  std::vector<SequenceState*> next_waiting(int64_t count) const;
  int64_t waiting() const;
  int64_t running() const { return static_cast<int64_t>(running_.size()); }
  int64_t preemptions() const { return preemptions_; }

 private:
  using Waiting = std::vector<SequenceState*>;  // of one tenant, by `has_precedence`

  struct Batch {
    std::vector<ScheduledChunk> chunks;
    int64_t left = 0;          // tokens that still fit
    bool pages_taken = false;  // a running sequence was preempted
  };
  struct Share {
    int64_t count = 0;              // a tenant's running sequences
    int64_t pages = 0;              // in their page tables; a shared page counts for each
    SequenceState* last = nullptr;  // last of them by has_precedence
  };

  int64_t make_room(SequenceState* sequence, int64_t tokens, Batch& batch);
  void append_chunk(Batch& batch, SequenceState* sequence, int64_t end);
  void fill_prompts(Batch& batch);
  std::map<uint64_t, Share> shares() const;
  SequenceState* lower_priority_victim(const SequenceState& next) const;
  SequenceState* victim_of(const SequenceState& next) const;
  void preempt_for_slots();
  SequenceState* next_ready(uint64_t tenant) const;
  void start(SequenceState* sequence);
  void stop(SequenceState* sequence);
  bool runs(const SequenceState* sequence) const;
  void wait(SequenceState* sequence);
  bool stop_waiting(SequenceState* sequence);

  PagePool& pool_;
  int64_t batch_tokens_;
  int64_t max_running_;
  std::map<uint64_t, Waiting> waiting_;  // by tenant; no list is empty
  std::vector<SequenceState*> running_;  // by arrival
  DeficitRoundRobin turns_;              // between tenants, in tokens
  int64_t preemptions_ = 0;
};

}  // namespace ingot::infer
