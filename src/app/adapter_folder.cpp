#include "app/adapter_folder.h"

#include <ctime>

#include "base/error.h"
#include "checkpoint/row_codec.h"
#include "server/requests.h"

namespace ingot::app {

namespace {

namespace fs = std::filesystem;

// Host memory for the weights of one adapter, each tensor at a multiple of 64 bytes.
class HostMemory {
 public:
  explicit HostMemory(size_t bytes) : memory_(bytes + Arena::alignment) {
    const size_t past = reinterpret_cast<uintptr_t>(memory_.data()) % Arena::alignment;
    used_ = past == 0 ? 0 : Arena::alignment - past;
  }

  // A copy of a tensor times `factor`, in `dtype`.
  Tensor converted(const Tensor& from, DType dtype, float factor) {
    Tensor out;
    out.data = memory_.data() + used_;
    out.dtype = dtype;
    out.shape = from.shape;
    used_ += Arena::footprint(dtype, from.shape);
    std::vector<float> values(static_cast<size_t>(from.elements()));
    checkpoint::decode_row(checkpoint::storage_of(from.dtype), from.data, from.elements(), values.data());
    for (float& value : values) value *= factor;
    checkpoint::encode_row(checkpoint::storage_of(dtype), values.data(), from.elements(),
                           static_cast<std::byte*>(out.data));
    return out;
  }

 private:
  std::vector<std::byte> memory_;
  size_t used_ = 0;
};

std::shared_ptr<const infer::HostAdapter> host_adapter(const std::string& name, const checkpoint::AdapterFile& file,
                                                       const spec::ModelSpec& base, DType activation) {
  size_t bytes = 0;
  for (const checkpoint::AdapterModule& module : file.modules) {
    bytes += Arena::footprint(activation, module.a.shape) + Arena::footprint(activation, module.b.shape);
  }
  const auto memory = std::make_shared<HostMemory>(bytes);
  nn::Adapter weights;
  const auto factor = static_cast<float>(file.lora.factor());
  // Where patterns give layers factors of their own, these go into B.
  const bool same = std::all_of(file.modules.begin(), file.modules.end(),
                                [&](const checkpoint::AdapterModule& module) { return module.factor == factor; });
  weights.factor = same ? factor : 1;
  weights.layers.resize(spec::parameters(base).size());
  for (const checkpoint::AdapterModule& module : file.modules) {
    nn::LoraWeights& layer = weights.layers[module.param.base];
    layer.a = memory->converted(module.a, activation, 1);
    layer.b = memory->converted(module.b, activation, same ? 1 : module.factor);
  }
  return std::make_shared<infer::HostAdapter>(name, std::move(weights), memory);
}

}  // namespace

AdapterFolder::AdapterFolder(fs::path root, const spec::ModelSpec& base, DType activation, Limits limits)
    : base_(base), activation_(activation), limits_(limits) {
  std::error_code failed;
  root_ = fs::canonical(root, failed);
  if (failed || !fs::is_directory(root_))
    throw_error(ErrorKind::not_found, "{}: there is no such folder", root.string());
  const auto now = static_cast<int64_t>(std::time(nullptr));
  auto state = state_.lock();
  for (const fs::directory_entry& entry : fs::directory_iterator(root_)) {
    const std::string name = entry.path().filename().string();
    if (server::is_adapter_name(name) && fs::exists(entry.path() / "adapter_config.json", failed)) {
      state->known[name].created = now;
    }
  }
}

std::vector<server::AdapterEntry> AdapterFolder::entries() const {
  std::vector<server::AdapterEntry> entries;
  const auto state = state_.lock();
  for (const auto& [name, known] : state->known) {
    entries.push_back({name, known.created, known.rank, known.weights != nullptr});
  }
  return entries;
}

bool AdapterFolder::has(const std::string& name) const { return state_.lock()->known.contains(name); }

std::shared_ptr<const infer::HostAdapter> AdapterFolder::get(const std::string& name) {
  {
    auto state = state_.lock();
    const auto found = state->known.find(name);
    if (found == state->known.end()) throw_error(ErrorKind::not_found, "there is no adapter '{}'", name);
    Known& known = found->second;
    if (known.weights) {
      state->recent.splice(state->recent.begin(), state->recent, known.place);
      return known.weights;
    }
  }
  const Weights weights = read(name);
  auto state = state_.lock();
  const auto found = state->known.find(name);
  if (found == state->known.end()) return weights;          // it was removed meanwhile
  if (found->second.weights) return found->second.weights;  // somebody else was faster
  keep(*state, name, weights);
  return weights;
}

void AdapterFolder::add(const std::string& name) {
  if (!server::is_adapter_name(name)) throw_error(ErrorKind::usage, "'{}' cannot be an adapter's name", name);
  const Weights weights = read(name);
  auto state = state_.lock();
  Known& known = state->known[name];
  if (known.weights) forget(*state, known);
  known.created = static_cast<int64_t>(std::time(nullptr));
  keep(*state, name, weights);
}

void AdapterFolder::remove(const std::string& name) {
  auto state = state_.lock();
  const auto found = state->known.find(name);
  if (found == state->known.end()) throw_error(ErrorKind::not_found, "there is no adapter '{}'", name);
  if (found->second.weights) forget(*state, found->second);
  state->known.erase(found);
}

fs::path AdapterFolder::folder_of(const std::string& name) const {
  std::error_code failed;
  const fs::path folder = fs::canonical(root_ / name, failed);
  const bool beneath =
      !failed && std::mismatch(root_.begin(), root_.end(), folder.begin(), folder.end()).first == root_.end();
  if (!beneath || folder == root_ || !fs::is_directory(folder, failed)) {
    throw_error(ErrorKind::not_found, "there is no adapter '{}' below {}", name, root_.string());
  }
  return folder;
}

std::shared_ptr<const infer::HostAdapter> AdapterFolder::read(const std::string& name) const {
  const checkpoint::AdapterFile file = checkpoint::read_adapter(folder_of(name), base_);
  if (file.replaces_weights()) {
    throw_hint(ErrorKind::unsupported, "merge it (ingot model merge) and serve the result as a model of its own",
               "the adapter '{}' replaces weights (DoRA, modules_to_save or biases), so it cannot share the model",
               name);
  }
  Weights weights = host_adapter(name, file, base_, activation_);
  if (weights->rank > limits_.rank) {
    throw_hint(ErrorKind::usage, "start the server with a larger --adapter-rank",
               "the adapter '{}' has rank {}; at most {}", name, weights->rank, limits_.rank);
  }
  return weights;
}

void AdapterFolder::keep(State& state, const std::string& name, const Weights& weights) const {
  Known& known = state.known.at(name);
  state.recent.push_front(name);
  known.place = state.recent.begin();
  known.weights = weights;
  known.rank = weights->rank;
  state.bytes += weights->bytes;
  while (state.bytes > limits_.bytes && state.recent.size() > 1) forget(state, state.known.at(state.recent.back()));
}

void AdapterFolder::forget(State& state, Known& known) {
  state.bytes -= known.weights->bytes;
  state.recent.erase(known.place);
  known.weights.reset();
}

}  // namespace ingot::app
