// A server's memory plan, computed before the engine allocates and reported at the start.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/machine.h"
#include "checkpoint/load.h"
#include "infer/cache_plan.h"
#include "tensor/device.h"

namespace ingot::infer {

// Max bytes of host memory that requests can use.
struct RequestMemory {
  size_t adapters = 0;
  size_t bodies = 0;
  size_t prompts = 0;
  size_t grammars = 0;

  size_t total() const { return adapters + bodies + prompts + grammars; }
};

// Bytes, except `cache`.
struct ServeMemory {
  std::string device;   // "cpu", "cuda:0"
  bool on_host = true;  // the device's memory is the process's memory
  size_t weights = 0;
  size_t mapped_weights = 0;  // part of `weights` read in place from the model's files
  CachePlan cache;
  EngineBytes engine;
  size_t workspace = 0;  // of the thread pool (ThreadPool::workspace_bytes); 0 if the model is computed on a GPU
  size_t program = 0;    // host memory of everything not named here: code, tokenizer, threads
  RequestMemory requests;
  // Host memory available before the engine allocates: for its memory, and for weights read in place.
  size_t available = 0;

  size_t remaining_growth() const;  // part of `available` in use once the cache is full
  size_t total_when_full() const;   // total host memory once the cache is full
  size_t max_total() const;         // total host memory including the max of all requests
};

// The plan for a model that was loaded on `device`, or the shard of one that `wanted` says, and is computed by
// `threads`. `cache_bytes`: max bytes of the KV cache, default: default_cache_limit; `at_start`: memory use before the
// model was loaded; `available`: what this rank may still take of the device's memory. Errors: resource when the
// context does not fit (plan_cache).
ServeMemory plan_serve_memory(const checkpoint::LoadedModel& loaded, const Device& device, const ThreadPool& threads,
                              const EngineSettings& wanted, std::optional<size_t> cache_bytes,
                              const RequestMemory& requests, const MemoryUse& at_start, size_t available);

// Default max bytes of the KV cache: on a CPU a quarter of the available memory after subtracting the weights read in
// place; on a GPU nine tenths of the available memory minus the rest of the engine.
size_t default_cache_limit(const spec::ModelSpec& model, const EngineSettings& wanted, int threads, bool on_host,
                           size_t available, size_t mapped_weights);

// Human-readable lines, and warnings.
std::vector<std::string> memory_lines(const ServeMemory& memory);
std::vector<std::string> memory_warnings(const ServeMemory& memory);

}  // namespace ingot::infer
