// ingot serve --dry-run: the memory of every rank, without weights in memory and without GPUs.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "infer/engine.h"
#include "runtime/session.h"

namespace ingot::cli {

// Prints a plan for the ranks that `options` says, on this machine or on GPUs of `machine` (runs/machine_file.h), and
// says whether it fits. `settings`: the engine's, with what the model decides. A model without weights is planned for
// its shape. Returns 0 if it fits, else 4. Errors: usage for ranks that cannot have the model; those of open_model.
int serve_dry_run(const runtime::ModelOptions& options, const infer::EngineSettings& settings,
                  std::optional<size_t> cache_bytes, const std::optional<std::string>& machine,
                  const std::function<void(std::string_view)>& print);

}  // namespace ingot::cli
