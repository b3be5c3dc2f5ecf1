#include "checkpoint/remote.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "base/signals.h"
#include "base/strings.h"
#include "base/uri.h"
#include "checkpoint/native.h"

namespace ingot::checkpoint {

namespace fs = std::filesystem;

namespace {

constexpr const char* latest_name = "latest";
constexpr uint64_t most_manifest = uint64_t{1} << 28;
constexpr size_t fetched_at_once = 4;

std::span<const std::byte> bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

std::string key_of(int64_t step, const std::string& file = {}) { return fmt::format("step-{}/{}", step, file); }

}  // namespace

OpenFiles::OpenFiles(const fs::path& folder, int64_t of) : step(of) {
  const fs::path path = folder / fmt::format("step-{}", step);
  std::vector<std::string> names;
  std::error_code failed;
  for (const fs::directory_entry& entry : fs::directory_iterator(path, failed)) {
    names.push_back(entry.path().filename().string());
  }
  if (failed) throw_error(ErrorKind::not_found, "checkpoint {}: cannot be read: {}", path.string(), failed.message());
  std::sort(names.begin(), names.end());
  std::erase(names, manifest_name);
  names.emplace_back(manifest_name);
  for (const std::string& name : names) {
    files.emplace_back(path / name);
    bytes += files.back().bytes().size();
  }
}

// What lies in the store.
struct RemoteCheckpoints::Listing {
  std::vector<int64_t> steps;                                // with a manifest, ascending
  std::map<int64_t, std::map<std::string, uint64_t>> files;  // bytes, of every step
  std::optional<int64_t> latest;                             // as the object says

  // The step that `latest` names, where its manifest was lost.
  std::optional<int64_t> broken() const {
    const bool newest = latest && (steps.empty() || *latest > steps.back());
    return newest && files.contains(*latest) ? latest : std::nullopt;
  }
};

RemoteCheckpoints::RemoteCheckpoints(std::string address, StoreOptions options)
    : address_(std::move(address)), options_(std::move(options)) {}

std::string RemoteCheckpoints::uri(int64_t step) const { return uri_below(address_, fmt::format("step-{}", step)); }

void RemoteCheckpoints::require_writable() const {
  const std::string name = "write-check";
  const std::unique_ptr<Store> store = open_store(address_, options_);
  store->put(name, bytes_of(name));
  store->remove(name);
}

RemoteCheckpoints::Listing RemoteCheckpoints::look(const Store& store) const {
  Listing listing;
  for (const StoredObject& object : store.list("")) {
    const size_t slash = object.key.find('/');
    if (object.key == latest_name) {
      listing.latest = step_of(split(store.get(latest_name, 0, 64), '\n').front());
    } else if (const auto step = step_of(object.key.substr(0, slash)); step && slash != std::string::npos) {
      const std::string file = object.key.substr(slash + 1);
      listing.files[*step][file] = object.bytes;
      if (file == manifest_name) listing.steps.push_back(*step);
    }
  }
  std::sort(listing.steps.begin(), listing.steps.end());
  return listing;
}

int64_t RemoteCheckpoints::remove_leftovers() const {
  const std::unique_ptr<Store> store = open_store(address_, options_);
  int64_t removed = store->drop_unfinished("");
  const Listing listing = look(*store);
  for (const auto& [step, files] : listing.files) {
    if (files.contains(manifest_name) || step == listing.broken()) continue;
    for (const auto& [name, bytes] : files) store->remove(key_of(step, name));
    removed += std::ssize(files);
  }
  return removed;
}

std::vector<int64_t> RemoteCheckpoints::list() const {
  const Listing listing = look(*open_store(address_, options_));
  if (const std::optional<int64_t> broken = listing.broken()) {
    throw_damaged(uri(*broken), *broken, listing.steps, "it is half-written: there is no manifest.json");
  }
  return listing.steps;
}

std::unique_ptr<Store> RemoteCheckpoints::open(const std::function<bool()>& go_on) const {
  StoreOptions options = options_;
  options.attempts.progress = [go_on](uint64_t, uint64_t) { return go_on(); };
  return open_store(address_, options);
}

void RemoteCheckpoints::upload(const OpenFiles& files, int64_t keep, const std::function<bool()>& go_on) const {
  const std::unique_ptr<Store> store = open(go_on);
  const int64_t step = files.step;
  if (store->find(key_of(step, manifest_name))) {  // of the same step, to be replaced
    store->remove(latest_name);
    store->remove(key_of(step, manifest_name));
  }
  for (const MappedFile& file : files.files) store->put(key_of(step, file.path().filename().string()), file.bytes());
  store->put(latest_name, bytes_of(fmt::format("step-{}\n", step)));
  // One that is too many ceases to be a checkpoint first.
  Listing listing = look(*store);
  std::erase_if(listing.steps, [&](int64_t other) { return other >= step; });
  for (size_t i = 0; i + static_cast<size_t>(keep) - 1 < listing.steps.size(); ++i) {
    const int64_t doomed = listing.steps[i];
    store->remove(key_of(doomed, manifest_name));
    for (const auto& [name, bytes] : listing.files[doomed]) store->remove(key_of(doomed, name));
  }
}

std::optional<int64_t> RemoteCheckpoints::bring_newest(
    const fs::path& folder, const std::function<void(const std::string&, const std::string&)>& accept,
    const std::function<bool()>& go_on) const {
  const std::vector<int64_t> steps = list(), here = list_checkpoints(folder);
  if (steps.empty() || (!here.empty() && here.back() >= steps.back())) return std::nullopt;
  const int64_t step = steps.back();
  const std::unique_ptr<Store> store = open(go_on);
  const auto damaged = [&](const std::string& what) { throw_damaged(uri(step), step, steps, what); };
  const auto read_manifest = [&](const std::string& text) { return parse_manifest(text, step, uri(step), damaged); };
  const auto get_manifest = [&] { return store->get(key_of(step, manifest_name), 0, most_manifest); };
  std::string text = get_manifest();
  Manifest manifest;
  try {
    manifest = read_manifest(text);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::corrupt) throw;
    manifest = read_manifest(text = get_manifest());
  }
  accept(uri(step), manifest.metadata);
  const auto bring = [&](const fs::path& to, const ManifestFile& file) {
    std::string fault;
    for (int attempt = 0; attempt < 2; ++attempt) {
      const std::string key = key_of(step, file.name);
      // A name that leads elsewhere is none of a checkpoint's file.
      const bool plain = fs::path(file.name).filename() == file.name;
      if (!plain || !store->find(key)) break;
      store->get_file(key, to / file.name);
      fault = fault_of(to, file);
      if (fault.empty()) return;
      fs::remove(to / file.name);
    }
    damaged(fault.empty() ? fault_of(to, file) : fault);
  };
  receive_checkpoint(folder, step, text, [&](const fs::path& to) {
    for (size_t first = 0; first < manifest.files.size(); first += fetched_at_once) {
      std::vector<std::future<void>> now;
      for (size_t i = first; i < std::min(manifest.files.size(), first + fetched_at_once); ++i) {
        const BlockedSignals blocked;
        now.push_back(std::async(std::launch::async, bring, to, manifest.files[i]));
      }
      for (std::future<void>& one : now) one.wait();
      for (std::future<void>& one : now) one.get();
    }
  });
  return step;
}

BackgroundUpload::~BackgroundUpload() { stop_ = true; }

std::optional<int64_t> BackgroundUpload::add(int64_t step) {
  const std::optional<int64_t> left_out = std::exchange(next_, step);
  if (!now_.valid()) begin_next();
  return left_out;
}

void BackgroundUpload::begin_next() {
  if (!next_) return;
  const int64_t step = *std::exchange(next_, std::nullopt);
  const auto failed = [step](const Error& error) {
    return Ended{step, 0, 0, error.hint().empty() ? error.message() : error.message() + "; " + error.hint()};
  };
  const BlockedSignals blocked;
  try {
    now_ = std::async(std::launch::async, [this, failed, files = OpenFiles(folder_, step)] {
      const double from = steady_seconds();
      try {
        remote_.upload(files, keep_, [this] { return !stop_; });
        return Ended{files.step, files.bytes, steady_seconds() - from, {}};
      } catch (const Error& error) {
        return failed(error);
      }
    });
  } catch (const Error& error) {  // the files could not be opened
    now_ = std::async(std::launch::deferred, failed, error);
  }
}

std::optional<BackgroundUpload::Ended> BackgroundUpload::ended(double seconds) {
  if (!now_.valid() || now_.wait_for(std::chrono::duration<double>(seconds)) == std::future_status::timeout) {
    return std::nullopt;
  }
  Ended ended = now_.get();
  begin_next();
  return ended;
}

}  // namespace ingot::checkpoint
