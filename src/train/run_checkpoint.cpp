#include "train/run_checkpoint.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/error.h"
#include "base/function_ref.h"
#include "base/json.h"
#include "base/threads.h"

namespace ingot::train {

namespace {

using Json = nlohmann::ordered_json;

// Everything that makes a run what it is, by name: of every tensor the elements that `range` says.
template <class RangeOf>
std::vector<checkpoint::NamedTensor> state_of(const Trained& trained, RangeOf range) {
  std::vector<checkpoint::NamedTensor> state;
  for (const TrainedTensor& t : trained.tensors()) {
    const Range wanted = range(t);
    const auto put = [&](const char* kind, const Tensor& kept) {
      const Tensor flat = kept.reshape(Shape{kept.elements()});
      state.push_back({kind + t.name, flat.slice(wanted.begin - t.own.begin, wanted.end - t.own.begin),
                       checkpoint::PartOf{t.shape, wanted.begin}});
    };
    if (wanted.count() == 0) continue;
    put("master.", t.master);
    put("moment1.", t.moment1);
    put("moment2.", t.moment2);
  }
  return state;
}

// What this rank writes. Also where all have everything, each writes a part.
std::vector<checkpoint::NamedTensor> written_by(const Trained& trained) {
  const Share& share = trained.share();
  std::vector<checkpoint::NamedTensor> state =
      state_of(trained, [&](const TrainedTensor& t) { return t.parts[static_cast<size_t>(share.rank)]; });
  if (trained.ranges() && share.rank == 0) state.push_back({"gradient_ranges", trained.ranges()});
  return state;
}

// What this rank needs.
std::vector<checkpoint::NamedTensor> read_by(const Trained& trained) {
  std::vector<checkpoint::NamedTensor> state = state_of(trained, [](const TrainedTensor& t) { return t.own; });
  if (trained.ranges()) state.push_back({"gradient_ranges", trained.ranges()});
  return state;
}

std::string metadata_of(const RunProgress& progress, const std::string& identity, const Trained& trained,
                        const Device& device) {
  const Json metadata = {{"step", progress.step},
                         {"tokens", progress.tokens},
                         {"updates", trained.updates()},
                         {"arch", device.arch()},
                         {"identity", parse_lenient_ordered_json(identity)}};
  return metadata.dump();
}

// Makes the folder before any rank writes into it.
void begin_together(const std::filesystem::path& folder, int64_t step, const comm::Group& ranks) {
  if (ranks.rank() == 0) checkpoint::begin_checkpoint(folder, step);
  ranks.barrier();
}

// Together, when this rank's part is there or has failed: what all have written. When some have not, nobody writes any
// more: nothing is left on a disk that may be full, then those throw why, and the others with their reason.
std::vector<std::string> gather_parts(const std::filesystem::path& folder, int64_t step, const comm::Group& ranks,
                                      FunctionRef<std::string()> written) {
  std::string part;  // empty: it failed
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
    discard();  // a rank is gone
    throw;
  }
  if (std::ranges::none_of(parts, [](const std::string& one) { return one.empty(); })) return parts;
  discard();
  ranks.barrier();
  if (failed) std::rethrow_exception(failed);
  ranks.barrier();  // throws
  throw_error(ErrorKind::internal, "a part of checkpoint {} is missing", step);
}

template <class T>
bool is_there(const std::future<T>& future) {
  return future.valid() && future.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
}

// Path of the first value in which two JSON trees differ ("model.hidden"); empty when they are equal.
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
                              const std::string& identity, const Trained& trained, Device& device, int64_t keep,
                              const comm::Group& ranks) {
  try {
    begin_together(folder, progress.step, ranks);
    const std::vector<std::string> parts = gather_parts(folder, progress.step, ranks, [&] {
      return checkpoint::write_part(folder, progress.step, written_by(trained), &device, ranks.rank(), ranks.size());
    });
    int64_t bytes = 0;
    if (ranks.rank() == 0) {
      bytes = static_cast<int64_t>(checkpoint::publish_checkpoint(
          folder, progress.step, parts, metadata_of(progress, identity, trained, device), {.keep = keep}));
    }
    return static_cast<uint64_t>(ranks.all_max(bytes));
  } catch (...) {
    if (ranks.rank() == 0) checkpoint::discard_checkpoint(folder, progress.step);
    throw;
  }
}

uint64_t checkpoint_bytes(const Trained& trained, const comm::Group& ranks) {
  int64_t bytes = 0;
  for (const checkpoint::NamedTensor& each : written_by(trained)) bytes += static_cast<int64_t>(each.tensor.bytes());
  return static_cast<uint64_t>(ranks.all_sum(bytes));
}

void require_same_run(const std::string& shown, const std::string& metadata, const std::string& identity) {
  const Json found = try_parse_json(metadata);
  if (!found.is_object() || !found.contains("identity") || !found.contains("tokens") || !found.contains("updates") ||
      !found.contains("arch")) {
    throw_error(ErrorKind::corrupt, "{}: the manifest is not of a training run", shown);
  }
  const Json now = parse_lenient_ordered_json(identity);
  const std::string difference = first_difference(found.at("identity"), now, "");
  if (difference.empty()) return;
  throw_hint(ErrorKind::usage, "continue it with the settings it was begun with, or begin another run (name=...)",
             "{} cannot be continued: {} was {} and is now {}", shown, difference,
             value_at(found.at("identity"), difference), value_at(now, difference));
}

namespace {

RunProgress read_found(const checkpoint::NativeCheckpoint& found, const std::string& identity, Trained& trained,
                       Device& device, const comm::Group& ranks) {
  require_same_run(found.path.string(), found.metadata, identity);
  const Json metadata = parse_lenient_ordered_json(found.metadata);
  checkpoint::restore_tensors(found, read_by(trained), device);
  ranks.barrier();  // every file was checked by some rank
  trained.set_updates(metadata.at("updates").get<int64_t>());
  return RunProgress{found.step, metadata.at("tokens").get<int64_t>(), metadata.at("arch").get<std::string>()};
}

}  // namespace

std::optional<RunProgress> read_run_checkpoint(const std::filesystem::path& folder, const std::string& identity,
                                               Trained& trained, Device& device, const comm::Group& ranks) {
  if (ranks.rank() == 0) checkpoint::remove_leftovers(folder);
  // Which one is rank 0's word: others' views of a shared folder may be older.
  int64_t newest = -1;
  if (ranks.rank() == 0) {
    const std::vector<int64_t> steps = checkpoint::list_checkpoints(folder);
    if (!steps.empty()) newest = steps.back();
  }
  newest = ranks.all_max(newest);
  if (newest < 0) return std::nullopt;
  return read_found(checkpoint::open_checkpoint(folder, newest, {}, {ranks.rank(), ranks.size()}), identity, trained,
                    device, ranks);
}

RunProgress read_run_checkpoint(const std::filesystem::path& folder, int64_t step, const std::string& identity,
                                Trained& trained, Device& device) {
  return read_found(checkpoint::open_checkpoint(folder, step), identity, trained, device, {});
}

std::vector<std::string> tensors_that_differ(const std::filesystem::path& folder, int64_t step, const Trained& trained,
                                             Device& device) {
  const checkpoint::NativeCheckpoint found = checkpoint::open_checkpoint(folder, step);
  const auto bytes_of = [&](const Tensor& tensor) {
    std::vector<std::byte> bytes(tensor.bytes());
    device.copy_to_host(bytes.data(), tensor.data, bytes.size());
    return bytes;
  };
  std::vector<std::string> differ;
  for (const checkpoint::NamedTensor& now : read_by(trained)) {
    const Buffer memory(device, now.tensor.bytes());
    checkpoint::NamedTensor then = now;
    then.tensor.data = memory.data();
    checkpoint::restore_tensors(found, {&then, 1}, device);
    if (bytes_of(then.tensor) != bytes_of(now.tensor)) differ.push_back(now.name);
  }
  return differ;
}

void BackgroundCheckpoint::reserve(const Trained& trained, const ops::Context& context) {
  snapshot_.reserve(written_by(trained), context.threads);
}

void BackgroundCheckpoint::begin(const std::filesystem::path& folder, const RunProgress& progress,
                                 const std::string& identity, const Trained& trained, const ops::Context& context,
                                 int64_t keep) {
  if (begun()) throw_error(ErrorKind::internal, "a checkpoint is being written");
  from_ = steady_seconds();
  folder_ = folder;
  step_ = progress.step;
  keep_ = keep;
  metadata_ = metadata_of(progress, identity, trained, context.device);
  unpublished_ = true;
  if (ranks_.size() > 1) begin_together(folder, step_, ranks_);
  snapshot_.take(written_by(trained), context.device, context.threads);
  writing_ = start_task("writing a checkpoint", [this] {
    if (ranks_.size() == 1) checkpoint::begin_checkpoint(folder_, step_);
    try {
      return checkpoint::write_part(folder_, step_, snapshot_.tensors(), nullptr, ranks_.rank(), ranks_.size());
    } catch (...) {
      // Of several ranks others may still write: the first removes it when all have ended.
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
  unpublished_ = false;  // gather_parts and what follows leave nothing
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
