#include "train/run_checkpoint.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <iterator>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/error.h"
#include "base/function_ref.h"
#include "base/json.h"
#include "base/threads.h"

namespace ingot::train {

namespace {

using Json = nlohmann::ordered_json;

// The state tensors by name; of each, the elements in `range(parameter)`.
template <class RangeOf>
std::vector<checkpoint::NamedTensor> state_of(const OptimizerState& optimizer_state, RangeOf range) {
  std::vector<checkpoint::NamedTensor> state;
  for (const TrainedParameter& t : optimizer_state.tensors()) {
    const Range wanted = range(t);
    if (wanted.count() == 0) continue;
    // Ranges begin at multiples of `block`; the last block of a tensor may be shorter.
    const auto put = [&](const std::string& kind, const Tensor& tensor, int64_t block) {
      const Tensor flat = tensor.reshape(Shape{tensor.elements()});
      const auto blocks = [block](int64_t elements) { return (elements + block - 1) / block; };
      checkpoint::PartOf part{block == 1 ? t.whole : Shape{blocks(t.shape.elements())}, blocks(wanted.begin)};
      if (t.placement == spec::TensorPlacement::sharded) part.slice = t.slice;
      state.push_back({kind + "." + t.name,
                       flat.slice(blocks(wanted.begin - t.shard.begin), blocks(wanted.end - t.shard.begin)), part});
    };
    put("master", t.master, 1);
    for (const StateTensor& each : t.state) put(each.name, each.tensor, each.block);
  }
  return state;
}

// The state that this rank writes. Ranks write disjoint parts even where each has the whole state.
std::vector<checkpoint::NamedTensor> written_by(const OptimizerState& optimizer_state) {
  const ShardSpec& share = optimizer_state.share();
  std::vector<checkpoint::NamedTensor> state = state_of(optimizer_state, [&](const TrainedParameter& t) {
    return common(t.parts[static_cast<size_t>(share.rank_of(t.divided))],
                  {0, share.replica == 0 ? t.counted_elements(share) : 0});
  });
  if (optimizer_state.ranges() && share.rank == 0 && share.replica == 0 && share.stage() == 0 && share.tp_rank() == 0)
    state.push_back({"gradient_ranges", optimizer_state.ranges()});
  return state;
}

// The state that this rank reads.
std::vector<checkpoint::NamedTensor> read_by(const OptimizerState& optimizer_state) {
  std::vector<checkpoint::NamedTensor> state =
      state_of(optimizer_state, [](const TrainedParameter& t) { return t.shard; });
  if (optimizer_state.ranges()) state.push_back({"gradient_ranges", optimizer_state.ranges()});
  return state;
}

std::string metadata_of(const RunProgress& progress, const std::string& identity, const OptimizerState& optimizer_state,
                        const Device& device) {
  const Json metadata = {{"step", progress.step},
                         {"tokens", progress.tokens},
                         {"updates", optimizer_state.updates()},
                         {"arch", device.arch()},
                         {"identity", parse_lenient_ordered_json(identity)}};
  return metadata.dump();
}

// Creates the folder before any rank writes into it.
void begin_together(const std::filesystem::path& folder, int64_t step, const comm::Group& ranks) {
  if (ranks.rank() == 0) checkpoint::begin_checkpoint(folder, step);
  ranks.barrier();
}

// Ranks call it together. `written` waits for this rank's part, or throws. Returns what every rank wrote. If any rank
// failed, the checkpoint is discarded only after all ranks have stopped writing, as the disk may be full; then each
// failed rank throws its own error, and the others throw the error of a failed one.
std::vector<std::string> gather_parts(const std::filesystem::path& folder, int64_t step, const comm::Group& ranks,
                                      FunctionRef<std::string()> written) {
  std::string part;  // empty: writing failed
  std::exception_ptr failed;
  try {
    part = written();
  } catch (...) {
    failed = std::current_exception();
  }
  const auto discard = [&] {
    if (ranks.rank() == 0) checkpoint::discard_checkpoint(folder, step);
  };
  std::vector<std::string> parts;
  try {
    parts = ranks.gather(part);
  } catch (...) {
    discard();  // another rank has failed
    throw;
  }
  if (std::ranges::none_of(parts, [](const std::string& one) { return one.empty(); })) return parts;
  discard();
  ranks.barrier();
  if (failed) std::rethrow_exception(failed);
  ranks.barrier();  // throws the failed rank's error
  throw_error(ErrorKind::internal, "a part of checkpoint {} is missing", step);
}

template <class T>
bool is_there(const std::future<T>& future) {
  return future.valid() && future.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
}

// Path of the first value in which two JSON trees differ, such as "model.hidden"; empty when they are equal.
std::string first_difference(const Json& a, const Json& b, const std::string& path) {
  if (!a.is_object() || !b.is_object()) return a == b ? "" : path;
  const auto below = [&](const std::string& key) { return path.empty() ? key : path + "." + key; };
  for (const auto& [key, value] : a.items()) {
    if (!b.contains(key)) return below(key);
    std::string found = first_difference(value, b.at(key), below(key));
    if (!found.empty()) return found;
  }
  for (const auto& [key, value] : b.items()) {
    if (!a.contains(key)) return below(key);
  }
  return "";
}

std::string value_at(const Json& tree, const std::string& path) {
  Json::json_pointer pointer;
  for (size_t begin = 0; begin <= path.size();) {
    const size_t end = std::min(path.find('.', begin), path.size());
    pointer.push_back(path.substr(begin, end - begin));
    begin = end + 1;
  }
  return tree.contains(pointer) ? tree.at(pointer).dump() : "nothing";
}

}  // namespace

uint64_t write_run_checkpoint(const std::filesystem::path& folder, const RunProgress& progress,
                              const std::string& identity, const OptimizerState& optimizer_state, Device& device,
                              int64_t keep, const comm::Group& ranks) {
  try {
    begin_together(folder, progress.step, ranks);
    const std::vector<std::string> parts = gather_parts(folder, progress.step, ranks, [&] {
      return checkpoint::write_part(folder, progress.step, written_by(optimizer_state), &device, ranks.rank(),
                                    ranks.size());
    });
    int64_t bytes = 0;
    if (ranks.rank() == 0) {
      bytes = static_cast<int64_t>(checkpoint::publish_checkpoint(
          folder, progress.step, parts, metadata_of(progress, identity, optimizer_state, device), {.keep = keep}));
    }
    return static_cast<uint64_t>(ranks.all_max(bytes));
  } catch (...) {
    if (ranks.rank() == 0) checkpoint::discard_checkpoint(folder, progress.step);
    throw;
  }
}

uint64_t checkpoint_bytes(const OptimizerState& optimizer_state, const comm::Group& ranks) {
  int64_t bytes = 0;
  for (const checkpoint::NamedTensor& each : written_by(optimizer_state))
    bytes += static_cast<int64_t>(each.tensor.bytes());
  return static_cast<uint64_t>(ranks.all_sum(bytes));
}

namespace {

// What a run has when its identity lacks a key, and the recipe's name of that key.
struct Omitted {
  const char* key;
  const char* setting;
  const char* value;
};
constexpr Omitted omitted[] = {{"optimizer", "optimizer.name", "\"adamw\""},
                               {"optimizer_state", "optimizer.state_dtype", "\"fp32\" or \"bf16\""},
                               {"determinism", "determinism", "\"fast\""},
                               {"units", "parallel.units", "1"}};

}  // namespace

void require_same_run(const std::string& shown, const std::string& metadata, const std::string& identity) {
  const Json found = try_parse_json(metadata);
  if (!found.is_object() || !found.contains("identity") || !found.contains("tokens") || !found.contains("updates") ||
      !found.contains("arch")) {
    throw_error(ErrorKind::corrupt, "{}: the manifest is not that of a training run", shown);
  }
  const Json now = parse_lenient_ordered_json(identity);
  const std::string difference = first_difference(found.at("identity"), now, "");
  if (difference.empty()) return;
  const auto* known =
      std::find_if(std::begin(omitted), std::end(omitted), [&](const Omitted& each) { return difference == each.key; });
  const auto value = [&](const Json& of) {
    const bool absent = known != std::end(omitted) && !of.contains(difference);
    return absent ? std::string(known->value) : value_at(of, difference);
  };
  throw_hint(ErrorKind::usage, "continue it with its original settings, or start another run (name=...)",
             "{} cannot be continued: {} was {} and is now {}", shown,
             known != std::end(omitted) ? known->setting : difference, value(found.at("identity")), value(now));
}

namespace {

RunProgress read_found(const checkpoint::NativeCheckpoint& found, const std::string& identity,
                       OptimizerState& optimizer_state, Device& device, const comm::Group& ranks) {
  require_same_run(found.path.string(), found.metadata, identity);
  const Json metadata = parse_lenient_ordered_json(found.metadata);
  checkpoint::restore_tensors(found, read_by(optimizer_state), device);
  ranks.barrier();  // waits until all files were checked, each by some rank
  optimizer_state.set_updates(metadata.at("updates").get<int64_t>());
  return RunProgress{found.step, metadata.at("tokens").get<int64_t>(), metadata.at("arch").get<std::string>()};
}

}  // namespace

std::optional<RunProgress> read_run_checkpoint(const std::filesystem::path& folder, const std::string& identity,
                                               OptimizerState& optimizer_state, Device& device,
                                               const comm::Group& ranks) {
  if (ranks.rank() == 0) checkpoint::remove_leftovers(folder);
  // Rank 0 decides which one is the newest: other ranks may see an outdated state of a shared folder.
  int64_t newest = -1;
  if (ranks.rank() == 0) {
    const std::vector<int64_t> steps = checkpoint::list_checkpoints(folder);
    if (!steps.empty()) newest = steps.back();
  }
  newest = ranks.all_max(newest);
  if (newest < 0) return std::nullopt;
  return read_found(checkpoint::open_checkpoint(folder, newest, {}, {ranks.rank(), ranks.size()}), identity,
                    optimizer_state, device, ranks);
}

RunProgress read_run_checkpoint(const std::filesystem::path& folder, int64_t step, const std::string& identity,
                                OptimizerState& optimizer_state, Device& device) {
  return read_found(checkpoint::open_checkpoint(folder, step), identity, optimizer_state, device, {});
}

std::vector<std::string> tensors_that_differ(const std::filesystem::path& folder, int64_t step,
                                             const OptimizerState& optimizer_state, Device& device) {
  const checkpoint::NativeCheckpoint found = checkpoint::open_checkpoint(folder, step);
  const auto bytes_of = [&](const Tensor& tensor) {
    std::vector<std::byte> bytes;
    checkpoint::Snapshot copy;
    const checkpoint::NamedTensor named{"", tensor};
    copy.take({&named, 1}, device);
    const auto* begin = static_cast<const std::byte*>(copy.tensors().front().tensor.data);
    bytes.assign(begin, begin + tensor.bytes());
    return bytes;
  };
  std::vector<std::string> differ;
  for (const checkpoint::NamedTensor& now : read_by(optimizer_state)) {
    const Buffer memory(device, now.tensor.bytes());
    checkpoint::NamedTensor then = now;
    then.tensor.data = memory.data();
    then.tensor.device = &device;
    checkpoint::restore_tensors(found, {&then, 1}, device);
    if (bytes_of(then.tensor) != bytes_of(now.tensor)) differ.push_back(now.name);
  }
  return differ;
}

void BackgroundCheckpoint::reserve(const OptimizerState& optimizer_state, const ops::Context& context) {
  snapshot_.reserve(written_by(optimizer_state), context.threads);
}

void BackgroundCheckpoint::begin(const std::filesystem::path& folder, const RunProgress& progress,
                                 const std::string& identity, const OptimizerState& optimizer_state,
                                 const ops::Context& context, int64_t keep) {
  if (is_writing()) throw_error(ErrorKind::internal, "a checkpoint is being written");
  from_ = steady_seconds();
  folder_ = folder;
  step_ = progress.step;
  keep_ = keep;
  metadata_ = metadata_of(progress, identity, optimizer_state, context.device);
  unpublished_ = true;
  if (ranks_.size() > 1) begin_together(folder, step_, ranks_);
  snapshot_.take(written_by(optimizer_state), context.device, context.threads);
  writing_ = start_task("writing a checkpoint", [this] {
    if (ranks_.size() == 1) checkpoint::begin_checkpoint(folder_, step_);
    try {
      return checkpoint::write_part(folder_, step_, snapshot_.tensors(), nullptr, ranks_.rank(), ranks_.size());
    } catch (...) {
      // Other ranks may still be writing: rank 0 discards it when all have ended.
      if (ranks_.size() == 1) checkpoint::discard_checkpoint(folder_, step_);
      throw;
    }
  });
}

BackgroundCheckpoint::~BackgroundCheckpoint() {
  if (writing_.valid()) writing_.wait();
  if (unpublished_ && ranks_.rank() == 0) checkpoint::discard_checkpoint(folder_, step_);
}

void BackgroundCheckpoint::publish() {
  unpublished_ = false;  // on failure, gather_parts and publishing_ discard it
  const std::vector<std::string> parts = gather_parts(folder_, step_, ranks_, [&] { return writing_.get(); });
  if (ranks_.rank() != 0) return;
  publishing_ = start_task("publishing a checkpoint", [this, parts] {
    try {
      const uint64_t bytes = checkpoint::publish_checkpoint(folder_, step_, parts, metadata_, {.keep = keep_});
      return Written{step_, bytes, steady_seconds() - from_};
    } catch (...) {
      checkpoint::discard_checkpoint(folder_, step_);
      throw;
    }
  });
}

bool BackgroundCheckpoint::advance() {
  if (writing_.valid() && ranks_.all_max<int32_t>(is_there(writing_) ? 0 : 1) == 0) publish();
  return is_there(publishing_);
}

BackgroundCheckpoint::Written BackgroundCheckpoint::wait() {
  if (writing_.valid()) publish();
  return publishing_.valid() ? publishing_.get() : Written{step_, 0, steady_seconds() - from_};
}

}  // namespace ingot::train
