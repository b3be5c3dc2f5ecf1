// What a server's memory will be: planned before it is taken, and said at the start.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/machine.h"
#include "infer/cache_plan.h"

namespace ingot::app {

class Session;

// Most bytes of the host, as requests ask for them.
struct AskedMemory {
  size_t adapters = 0;
  size_t bodies = 0;
  size_t prompts = 0;
  size_t grammars = 0;

  size_t total() const { return adapters + bodies + prompts + grammars; }
};

// Bytes, but for the plan.
struct ServeMemory {
  std::string device;   // "cpu", "cuda:0"
  bool on_host = true;  // the device's memory is the process's
  size_t weights = 0;
  size_t mapped_weights = 0;  // of these, read in place from the model's files
  infer::CachePlan cache;
  infer::EngineBytes engine;
  size_t program = 0;  // of the host, for all that is not named here: code, tokenizer, threads
  AskedMemory asked;
  size_t available = 0;  // on the host, before the engine takes its own: for that, and for weights read in place

  size_t to_take() const;  // of what is available, until the cache is full
  size_t full() const;     // of the host, when the cache is full
  size_t at_most() const;  // of the host, with all that is asked for besides
};

// For the model of the session, which has been opened. `cache_bytes`: most of the KV cache, default_cache_limit where
// there is none; `at_start`: before the session. Errors: resource when the context does not fit (infer::plan_cache).
ServeMemory plan_serve_memory(const Session& session, const infer::EngineSettings& wanted,
                              std::optional<size_t> cache_bytes, const AskedMemory& asked, const MemoryUse& at_start);

// Bytes for the KV cache when no option says: of a CPU a quarter of what is available beside the weights that are read
// in place, of a GPU nine tenths of what is there beside the rest of the engine.
size_t default_cache_limit(const spec::ModelSpec& model, const infer::EngineSettings& wanted, int threads, bool on_host,
                           size_t available, size_t mapped_weights);

// Lines for people, and what they are to be warned of.
std::vector<std::string> memory_lines(const ServeMemory& memory);
std::vector<std::string> memory_warnings(const ServeMemory& memory);

}  // namespace ingot::app
