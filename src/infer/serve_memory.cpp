#include "infer/serve_memory.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/strings.h"
#include "base/thread_pool.h"

namespace ingot::infer {

namespace {

size_t minus(size_t a, size_t b) { return a - std::min(a, b); }

size_t total(const EngineBytes& bytes) {
  return bytes.kv + bytes.scratch + bytes.batch + bytes.adapters + bytes.library_workspace;
}

int64_t ranks_of(const spec::ModelShard& shard) { return shard.tp * shard.pp; }

size_t bytes_of(const WeightSet& weights) {
  size_t bytes = 0;
  for (const Parameter& parameter : weights.parameters) {
    const Weight& matrix = parameter.matrix;
    if (matrix) bytes += static_cast<size_t>(matrix.out) * row_bytes(matrix.storage, matrix.in);
    bytes += parameter.vector.data ? parameter.vector.bytes() : 0;
  }
  return bytes;
}

}  // namespace

size_t ServeMemory::remaining_growth() const { return mapped_weights + workspace + (on_host ? total(engine) : 0); }

size_t ServeMemory::total_when_full() const {
  return program + (on_host ? weights - mapped_weights : 0) + remaining_growth();
}

size_t ServeMemory::max_total() const { return total_when_full() + requests.total(); }

size_t default_cache_limit(const spec::ModelSpec& model, const EngineSettings& wanted, int threads, bool on_host,
                           size_t available, size_t mapped_weights) {
  if (on_host) return minus(available, mapped_weights) / 4;
  const size_t limit = available / 10 * 9;
  // Page tables grow with the context: leaves room for those of the largest context that could fit.
  EngineSettings settings = plan_cache(model, wanted, limit).settings;
  const EngineBytes bytes = engine_bytes(model, settings, threads, on_host);
  return minus(limit, total(bytes) - bytes.kv);
}

ServeMemory plan_serve_memory(const checkpoint::LoadedModel& loaded, const Device& device, const ThreadPool& threads,
                              const EngineSettings& wanted, std::optional<size_t> cache_bytes,
                              const RequestMemory& requests, const MemoryUse& at_start, size_t available) {
  const spec::ModelSpec& model = loaded.spec;
  ServeMemory memory;
  memory.device = device.name();
  memory.on_host = device.host_visible();
  memory.weights = bytes_of(loaded.weights);
  memory.mapped_weights = minus(memory.weights, loaded.copied_bytes);
  const size_t limit = cache_bytes ? *cache_bytes
                                   : default_cache_limit(model, wanted, threads.threads(), memory.on_host, available,
                                                         memory.mapped_weights);
  memory.cache = plan_cache(model, wanted, limit);
  memory.engine = engine_bytes(model, memory.cache.settings, threads.threads(), memory.on_host);
  memory.workspace = threads.workspace_bytes();
  const size_t grown = minus(memory_use().anonymous, at_start.anonymous);
  const size_t copied = memory.on_host ? std::min(grown, loaded.copied_bytes) : 0;
  memory.program = at_start.resident + (grown - copied);
  memory.requests = requests;
  memory.available = memory.on_host ? available : available_memory();
  return memory;
}

std::vector<std::string> memory_lines(const ServeMemory& memory) {
  const CachePlan& cache = memory.cache;
  const auto bytes = [](size_t count) { return format_bytes(count); };
  std::vector<std::string> lines;
  std::string taken = fmt::format("memory on {}: weights {}{}, KV cache {}, activations {}", memory.device,
                                  bytes(memory.weights), memory.mapped_weights > 0 ? " (read in place)" : "",
                                  bytes(memory.engine.kv), bytes(memory.engine.scratch + memory.engine.batch));
  if (memory.engine.adapters > 0) taken += fmt::format(", adapters {}", bytes(memory.engine.adapters));
  if (memory.workspace > 0) taken += fmt::format(", CPU workspace {}", bytes(memory.workspace));
  if (memory.engine.library_workspace > 0)
    taken += fmt::format(", library workspace {}", bytes(memory.engine.library_workspace));
  lines.push_back(std::move(taken));
  const int64_t contexts = cache.tokens() / cache.settings.context;
  lines.push_back(
      fmt::format("the KV cache holds {} tokens: {} times the context of {}, for at most {} sequences at once "
                  "(--kv-cache-mib, --context, "
                  "--sequences)",
                  cache.tokens(), contexts, cache.settings.context, cache.settings.sequences));
  std::string besides =
      fmt::format("additional host memory for requests: bodies up to {}, prompts up to {}, grammars up to {}",
                  bytes(memory.requests.bodies), bytes(memory.requests.prompts), bytes(memory.requests.grammars));
  if (memory.requests.adapters > 0) besides += fmt::format(", adapters up to {}", bytes(memory.requests.adapters));
  lines.push_back(std::move(besides));
  if (const int64_t ranks = ranks_of(cache.settings.shard); ranks > 1) {
    lines.insert(lines.begin(), fmt::format("the model is divided among {} ranks; what follows is for each", ranks));
    lines.push_back(fmt::format("weights and engine take {} when the KV cache is full",
                                bytes(memory.weights + total(memory.engine))));
    return lines;
  }
  lines.push_back(
      fmt::format("the process will use {} when the KV cache is full ({} now), and at most {}; {} more are available",
                  bytes(memory.total_when_full()), bytes(memory.total_when_full() - memory.remaining_growth()),
                  bytes(memory.max_total()), bytes(memory.available)));
  return lines;
}

std::vector<std::string> memory_warnings(const ServeMemory& memory) {
  const CachePlan& cache = memory.cache;
  std::vector<std::string> warnings;
  if (cache.settings.context < cache.requested_context) {
    warnings.push_back(
        fmt::format("the model's context of {} tokens does not fit into the KV cache: the context is limited to {} "
                    "(set --context, or give the cache more memory with --kv-cache-mib)",
                    cache.requested_context, cache.settings.context));
  }
  if (memory.remaining_growth() > memory.available) {
    warnings.push_back(fmt::format(
        "the process will use {} more until the KV cache is full, but only {} are available: lower --kv-cache-mib",
        format_bytes(memory.remaining_growth()), format_bytes(memory.available)));
  }
  return warnings;
}

}  // namespace ingot::infer
