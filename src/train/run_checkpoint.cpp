#include "train/run_checkpoint.h"

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/error.h"

namespace ingot::train {

namespace {

using Json = nlohmann::ordered_json;

// Everything that makes a run what it is, by name.
std::vector<checkpoint::NamedTensor> state_of(const Trained& trained) {
  std::vector<checkpoint::NamedTensor> state;
  for (const TrainedTensor& t : trained.tensors()) {
    state.push_back({"master." + t.name, t.master});
    state.push_back({"moment1." + t.name, t.moment1});
    state.push_back({"moment2." + t.name, t.moment2});
  }
  if (trained.ranges()) state.push_back({"gradient_ranges", trained.ranges()});
  return state;
}

std::string metadata_of(const RunProgress& progress, const std::string& identity, const Trained& trained,
                        const Device& device) {
  const Json metadata = {{"step", progress.step},
                         {"tokens", progress.tokens},
                         {"updates", trained.updates()},
                         {"arch", device.arch()},
                         {"identity", Json::parse(identity)}};
  return metadata.dump();
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
                              const std::string& identity, const Trained& trained, Device& device, int64_t keep) {
  return checkpoint::write_checkpoint(folder, progress.step, state_of(trained),
                                      metadata_of(progress, identity, trained, device), &device, {.keep = keep});
}

std::optional<RunProgress> read_run_checkpoint(const std::filesystem::path& folder, const std::string& identity,
                                               Trained& trained, Device& device) {
  checkpoint::remove_leftovers(folder);
  const std::vector<int64_t> steps = checkpoint::list_checkpoints(folder);
  if (steps.empty()) return std::nullopt;
  return read_run_checkpoint(folder, steps.back(), identity, trained, device);
}

RunProgress read_run_checkpoint(const std::filesystem::path& folder, int64_t step, const std::string& identity,
                                Trained& trained, Device& device) {
  const checkpoint::NativeCheckpoint found = checkpoint::open_checkpoint(folder, step);
  const Json metadata = Json::parse(found.metadata, nullptr, false);
  if (!metadata.is_object() || !metadata.contains("identity") || !metadata.contains("tokens") ||
      !metadata.contains("updates") || !metadata.contains("arch")) {
    throw_error(ErrorKind::corrupt, "{}: the manifest is not of a training run", found.path.string());
  }
  const Json now = Json::parse(identity);
  const std::string difference = first_difference(metadata.at("identity"), now, "");
  if (!difference.empty()) {
    throw_hint(ErrorKind::usage, "continue it with the settings it was begun with, or begin another run (name=...)",
               "{} cannot be continued: {} was {} and is now {}", found.path.string(), difference,
               value_at(metadata.at("identity"), difference), value_at(now, difference));
  }
  checkpoint::restore_tensors(found, state_of(trained), device);
  trained.set_updates(metadata.at("updates").get<int64_t>());
  return RunProgress{found.step, metadata.at("tokens").get<int64_t>(), metadata.at("arch").get<std::string>()};
}

std::vector<std::string> tensors_that_differ(const std::filesystem::path& folder, int64_t step, const Trained& trained,
                                             Device& device) {
  const checkpoint::NativeCheckpoint found = checkpoint::open_checkpoint(folder, step);
  std::vector<std::string> differ;
  std::vector<std::byte> now;
  for (const checkpoint::NamedTensor& each : state_of(trained)) {
    now.resize(each.tensor.bytes());
    device.copy_to_host(now.data(), each.tensor.data, now.size());
    const formats::TensorEntry* entry = found.tensors->find(each.name);
    if (entry == nullptr || !std::ranges::equal(now, entry->bytes)) differ.push_back(each.name);
  }
  return differ;
}

void BackgroundCheckpoint::begin(const std::filesystem::path& folder, const RunProgress& progress,
                                 const std::string& identity, const Trained& trained, Device& device, int64_t keep) {
  if (begun()) throw_error(ErrorKind::internal, "a checkpoint is being written");
  const double from = steady_seconds();
  snapshot_.take(state_of(trained), device);
  const auto write = [this, folder, from, keep, step = progress.step,
                      metadata = metadata_of(progress, identity, trained, device)] {
    const uint64_t bytes =
        checkpoint::write_checkpoint(folder, step, snapshot_.tensors(), metadata, nullptr, {.keep = keep});
    return Written{step, bytes, steady_seconds() - from};
  };
  writing_ = std::async(std::launch::async, write);
}

bool BackgroundCheckpoint::done() const {
  return writing_.valid() && writing_.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
}

}  // namespace ingot::train
