// Sequences and batches for the scheduler's tests.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <vector>

#include "infer/scheduler.h"

namespace ingot::infer {

inline SequenceState sequence(int64_t id, int64_t tokens) {
  SequenceState state;
  state.id = id;
  state.tokens = tokens;
  return state;
}

// Marks the batch as computed, as the engine does after a step: its tokens are in the cache.
inline void advance(const std::vector<ScheduledChunk>& batch) {
  for (const ScheduledChunk& piece : batch) piece.sequence->cached = std::min(piece.end, piece.sequence->tokens);
}

inline std::vector<std::array<int64_t, 3>> summary(const std::vector<ScheduledChunk>& batch) {
  std::vector<std::array<int64_t, 3>> all;
  for (const ScheduledChunk& piece : batch) all.push_back({piece.sequence->id, piece.begin, piece.end});
  return all;
}

// Runs the requests until `over` holds or none is left. Each is removed when it has `output` tokens more than its
// prompt. Returns the order in which they were first computed.
template <class Over>
std::vector<int64_t> admissions(Scheduler& scheduler, std::vector<SequenceState>& all, int64_t output, Over over) {
  std::vector<int64_t> order;
  std::map<int64_t, int64_t> made;
  for (int step = 0; step < 10000 && !over(order); ++step) {
    const std::vector<ScheduledChunk> batch = scheduler.next();
    if (batch.empty()) break;
    advance(batch);
    for (const ScheduledChunk& piece : batch) {
      SequenceState* sequence = piece.sequence;
      if (!made.contains(sequence->id)) {
        made[sequence->id] = 0;
        order.push_back(sequence->id);
      }
      if (piece.end != sequence->tokens) continue;
      ++sequence->tokens;
      if (++made[sequence->id] == output) scheduler.remove(sequence);
    }
  }
  EXPECT_LE(order.size(), all.size());
  return order;
}

inline SequenceState of_tenant(uint64_t tenant, int64_t id, int64_t tokens, int priority = 0) {
  SequenceState state = sequence(id, tokens);
  state.tenant = tenant;
  state.priority = priority;
  return state;
}

}  // namespace ingot::infer
