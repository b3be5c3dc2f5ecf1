// How large an engine's KV cache is made, and which context fits: arithmetic alone, before anything is allocated.
#pragma once

#include <cstddef>
#include <cstdint>

#include "infer/engine.h"

namespace ingot::infer {

struct CachePlan {
  EngineSettings settings;     // with a context and a number of pages
  int64_t wanted_context = 0;  // what was asked for, or the model's; settings.context is less where that does not fit
  int64_t wanted_pages = 0;    // enough for settings.sequences of settings.context
  int64_t tokens() const { return settings.pages * settings.page_tokens; }  // that the cache holds
};

// Settings whose cache takes `limit` bytes at most. Without pages (0) it has as many as the sequences' contexts take,
// or as there is room for, and those of one context at least. Without a context (0) it is the model's, or the largest
// number of whole pages that fits. What was given stays. Errors: those of an engine; resource for a context that was
// given and does not fit, saying what it takes and which one does, and for a limit below one page. Pages that are given
// may take more than the limit.
CachePlan plan_cache(const spec::ModelSpec& model, const EngineSettings& wanted, size_t limit);

}  // namespace ingot::infer
