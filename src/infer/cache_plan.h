// Sizes an engine's KV cache and finds the context that fits, before anything is allocated.
#pragma once

#include <cstddef>
#include <cstdint>

#include "infer/engine.h"

namespace ingot::infer {

struct CachePlan {
  EngineSettings settings;        // with `context` and `pages` filled in
  int64_t requested_context = 0;  // requested, or the model's; settings.context is less if that does not fit
  int64_t requested_pages = 0;    // enough for `settings.sequences` sequences of `settings.context` tokens
  int64_t tokens() const { return settings.pages * settings.page_tokens; }  // capacity of the cache
};

// Completes settings so that the KV cache takes at most `limit` bytes. If `pages` is 0, the cache gets enough pages for
// the full context of every sequence, or as many as fit, but at least one context. If `context` is 0, it is the
// model's, or the largest number of whole pages that fits. Given values are kept, and given pages may take more than
// the limit. Errors: those of an engine; resource for a given context that does not fit, saying what it takes and which
// one fits, and for a limit below one page.
CachePlan plan_cache(const spec::ModelSpec& model, const EngineSettings& wanted, size_t limit);

}  // namespace ingot::infer
