#include "infer/cache_plan.h"

#include <algorithm>

#include "base/error.h"
#include "base/strings.h"
#include "infer/forward.h"

namespace ingot::infer {

CachePlan plan_cache(const spec::ModelSpec& model, const EngineSettings& wanted, size_t limit) {
  CachePlan plan{.settings = wanted, .requested_context = wanted.context == 0 ? model.context : wanted.context};
  EngineSettings& settings = plan.settings;
  settings.context = plan.requested_context;
  check_counts(settings, model);
  const auto element = static_cast<int64_t>(size_of(settings.activation));
  const auto bytes_of = [&](int64_t pages) {  // on the stage whose blocks keep the most
    size_t most = 0;
    spec::ModelShard shard = settings.shard;
    for (shard.stage = 0; shard.stage < shard.pp; ++shard.stage)
      most = std::max(most, spec::kv_bytes(spec::sizes_of(model, shard), pages, settings.page_tokens, element));
    return most;
  };
  const size_t page = bytes_of(1);
  const int64_t places = INT32_MAX / settings.page_tokens;  // token slots of the cache are 32-bit numbers
  const auto room = settings.pages > 0 ? settings.pages : std::min(static_cast<int64_t>(limit / page), places);
  if (room < 1) {
    throw_hint(ErrorKind::resource, "give the KV cache more memory",
               "a KV cache page of {} tokens needs {}; {} are available", settings.page_tokens, format_bytes(page),
               format_bytes(limit));
  }
  const auto pages_of = [&](int64_t context) { return (context + settings.page_tokens - 1) / settings.page_tokens; };
  if (pages_of(settings.context) > room) {
    const int64_t fits = room * settings.page_tokens;
    if (wanted.context == 0) settings.context = fits;
    if (wanted.context != 0 && wanted.pages == 0) {
      throw_hint(ErrorKind::resource,
                 "a context of " + std::to_string(fits) + " fits, or give the KV cache more memory",
                 "a context of {} tokens needs {} of KV cache; {} are available", settings.context,
                 format_bytes(bytes_of(pages_of(settings.context))), format_bytes(limit));
    }
  }
  plan.requested_pages = pages_of(settings.context) * settings.sequences;
  if (settings.pages == 0) settings.pages = std::min(room, plan.requested_pages);
  settings = checked(settings, model);
  return plan;
}

}  // namespace ingot::infer
