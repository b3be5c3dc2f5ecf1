// Fused attention by cuDNN over sequences that are packed without gaps: from 9.24 on by its SDPA forward operation,
// from 9.10 on by the sequence of operations that it recognises as attention (cudnn_attention.h).
//
// One engine with one setting of its knobs serves every call of a form, whatever the number of tokens and sequences, so
// that a token's result depends on its own sequence only.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <map>
#include <tuple>

#include "backend/gpu/runtime/attention_library.h"
#include "backend/gpu/runtime/cudnn_attention.h"
#include "backend/gpu/runtime/library_folders.h"
#include "base/error.h"

namespace ingot::gpu {
namespace {

using cudnn::Descriptor;
using cudnn::Functions;
using cudnn::Graph;
using cudnn::Uid;

constexpr size_t min_version = 91000;
constexpr size_t sdpa_version = 92400;  // cumulative sequence lengths, and offsets in rows

std::string version_text(size_t version) {
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

using Companions = std::vector<std::unique_ptr<SharedLibrary>>;

// What the library needs besides itself. Versions without the operation SDPA open these libraries by name, and end the
// process where the first one is missing. They get the ones that are loaded already, from whatever folder. Errors:
// unavailable for a version that is too old, and for a missing library.
Companions open_companions(const SharedLibrary& library, const Functions& functions) {
  const size_t version = functions.GetVersion();
  if (version < min_version) {
    throw_error(ErrorKind::unavailable, "{} is version {}; fused attention needs {} or later", library.path(),
                version_text(version), version_text(min_version));
  }
  if (version >= sdpa_version) return {};
  const auto name = [&](const char* stem) {
    return fmt::format("{}.so.{}", stem, functions.GetCudartVersion() / 1000);
  };
  Companions opened;
  const std::string reason =
      try_libraries({"INGOT_CUBLASLT_LIBRARY", {name("libcublasLt")}, nvidia_folders},
                    [&](std::unique_ptr<SharedLibrary> found) { opened.push_back(std::move(found)); });
  if (!reason.empty()) {
    throw_error(ErrorKind::unavailable, "{} is version {}, which needs cuBLASLt: {}", library.path(),
                version_text(version), reason);
  }
  opened.push_back(std::make_unique<SharedLibrary>(std::vector<std::string>{name("libnvrtc")}, nvidia_folders()));
  return opened;
}

class Cudnn : public AttentionLibrary {
 public:
  Cudnn(std::unique_ptr<SharedLibrary> library, const std::string& device_json)
      : library_(std::move(library)), functions_(*library_), companions_(open_companions(*library_, functions_)) {
    if (device_json.empty()) {
      functions_.check(functions_.Create(&handle_), "a handle");
    } else {
      constexpr int json = 2702;
      properties_.emplace_back(functions_, cudnn::device_properties);
      properties_[0].set(json, cudnn::char_type, static_cast<int64_t>(device_json.size()), device_json.data());
      properties_[0].finalize("a device's properties");
    }
  }
  Cudnn(const Cudnn&) = delete;
  Cudnn& operator=(const Cudnn&) = delete;
  ~Cudnn() override {
    plans_.clear();
    if (handle_ != nullptr) functions_.Destroy(handle_);
  }

  std::string_view decline(const PackedAttention& call) override {
    if (needs_tables() && call.tokens > std::numeric_limits<int32_t>::max() / (call.heads * call.d)) {
      return "cuDNN before 9.24 numbers elements in 32 bits, and the queries have more";
    }
    return plan(call).reason;
  }
  bool needs_tables() const override { return functions_.GetVersion() < sdpa_version; }

  void run(const PackedAttention& call, void* workspace, void* stream) override {
    const Plan& with = plan(call);
    if (!with.reason.empty() || with.plan.empty()) throw_error(ErrorKind::internal, "cuDNN: {}", with.reason);
    float scale = call.scale;
    float mask_value = std::numeric_limits<float>::lowest();  // the score of masked keys
    auto window_size = static_cast<float>(call.window);
    auto whole_window_size = static_cast<int32_t>(call.window);
    std::vector<int64_t> uids;
    std::vector<void*> data;
    const auto pass = [&](int64_t uid, const void* pointer) {
      uids.push_back(uid);
      data.push_back(const_cast<void*>(pointer));
    };
    pass(Uid::q, call.q);
    pass(Uid::k, call.k);
    pass(Uid::v, call.v);
    pass(Uid::out, call.out);
    pass(Uid::scale, &scale);
    pass(Uid::mask_value, &mask_value);
    if (needs_tables()) {
      pass(Uid::lengths, call.lengths);
      pass(Uid::q_offsets, call.q_offsets);
      pass(Uid::kv_offsets, call.kv_offsets);
      if (call.window > 0) pass(Uid::window_size, &whole_window_size);
    } else {
      pass(Uid::lengths, call.offsets);
      if (call.window > 0) pass(Uid::window_size, &window_size);
    }
    if (call.lse != nullptr) pass(Uid::lse, call.lse);
    if (call.lse != nullptr || !needs_tables()) pass(Uid::offsets, call.offsets);
    constexpr int unique_ids = 1000;
    constexpr int data_pointers = 1001;
    constexpr int workspace_pointer = 1003;
    Descriptor pack(functions_, cudnn::variant_pack);
    pack.set_integers(unique_ids, uids);
    pack.set_pointers(data_pointers, cudnn::pointer_type, data);
    pack.set_pointers(workspace_pointer, cudnn::pointer_type, {workspace});
    pack.finalize("a call's data");
    functions_.check(functions_.SetStream(handle_, stream), "a stream");
    functions_.check(functions_.Execute(handle_, with.plan.front().get(), pack.get()), "attention");
  }

 private:
  static constexpr size_t max_plans = 256;

  // Everything that the selection of an engine may depend on.
  using Form = std::tuple<int64_t, int64_t, int64_t, int64_t, bool>;  // heads, kv_heads, d, window, with lse
  static Form form_of(const PackedAttention& call) {
    return {call.heads, call.kv_heads, call.d, call.window, call.lse != nullptr};
  }
  struct Choice {
    std::string reason;  // why there is none
    int64_t engine = 0;
    std::vector<std::pair<int, int64_t>> knobs;
  };
  struct Plan {
    std::string reason;                   // why there is none
    std::vector<Descriptor> plan;         // at most one
    std::vector<Descriptor> descriptors;  // the descriptors that it is built from
  };
  Graph graph_of(const PackedAttention& call) const {
    return needs_tables() ? cudnn::composite_graph(functions_, handle_, call)
                          : cudnn::sdpa_graph(functions_, handle_, call);
  }

  // The engine that cuDNN's heuristic ranks first for a batch of ordinary size.
  const Choice& choice(const PackedAttention& call) {
    const auto [at, added] = choices_.try_emplace(form_of(call));
    Choice& made = at->second;
    if (!added) return made;
    try {
      PackedAttention ordinary = call;
      ordinary.tokens = 8192;
      ordinary.sequences = 2;
      const Graph graph = graph_of(ordinary);
      constexpr int mode_a = 3;
      Descriptor heuristic(functions_, cudnn::heuristic);
      heuristic.set_choice(200, cudnn::heuristic_mode_type, mode_a).set_descriptor(201, graph.graph);
      if (!properties_.empty()) heuristic.set_descriptor(204, properties_.front());
      heuristic.finalize("the choice of an engine");
      const std::vector<Descriptor> configs = heuristic.descriptors(202, cudnn::engine_config, 1);
      if (configs.empty()) {
        made.reason = fmt::format("cuDNN has no engine for head size {} on this device", call.d);
        return made;
      }
      const std::vector<Descriptor> engines = configs.front().descriptors(300, cudnn::engine, 1);
      if (engines.empty()) throw_error(ErrorKind::unavailable, "cuDNN: returned a configuration without an engine");
      made.engine = engines.front().integer(1301);
      for (const Descriptor& knob : configs.front().descriptors(302, cudnn::knob_choice, 64)) {
        made.knobs.emplace_back(knob.choice(600, cudnn::knob_type_type), knob.integer(601));
      }
    } catch (const Error& error) {
      made.reason = error.message();
    }
    return made;
  }

  const Plan& plan(const PackedAttention& call) {
    const std::tuple<Form, int64_t, int64_t> key{form_of(call), call.tokens, call.sequences};
    const auto found = plans_.find(key);
    if (found != plans_.end()) return found->second;
    if (plans_.size() == max_plans) plans_.clear();
    Plan made;
    const Choice& with = choice(call);
    made.reason = with.reason;
    if (made.reason.empty()) {
      try {
        make_plan(call, with, made);
      } catch (const Error& error) {
        made.reason = error.message();
      }
    }
    return plans_.emplace(key, std::move(made)).first->second;
  }

  void make_plan(const PackedAttention& call, const Choice& with, Plan& made) const {
    Graph graph = graph_of(call);
    Descriptor engine(functions_, cudnn::engine);
    engine.set_descriptor(1300, graph.graph).set_integers(1301, {with.engine});
    if (!properties_.empty()) engine.set_descriptor(1307, properties_.front());
    engine.finalize("an engine");
    std::vector<Descriptor> knobs;
    std::vector<const Descriptor*> all;
    knobs.reserve(with.knobs.size());
    for (const auto& [type, value] : with.knobs) {
      Descriptor knob(functions_, cudnn::knob_choice);
      knob.set_choice(600, cudnn::knob_type_type, type).set_integers(601, {value}).finalize("a knob");
      knobs.push_back(std::move(knob));
      all.push_back(&knobs.back());
    }
    Descriptor config(functions_, cudnn::engine_config);
    config.set_descriptor(300, engine);
    if (!all.empty()) config.set_descriptors(302, all);
    config.finalize("an engine's configuration");
    const int64_t needed = config.integer(303);
    if (needed > static_cast<int64_t>(attention_workspace_bytes)) {
      throw_error(ErrorKind::unavailable, "cuDNN: needs {} bytes of workspace; {} are reserved", needed,
                  attention_workspace_bytes);
    }
    if (handle_ == nullptr) return;
    Descriptor ready(functions_, cudnn::plan);
    ready.set_pointers(400, cudnn::handle_type, {handle_}).set_descriptor(401, config);
    ready.finalize("a plan");
    made.plan.push_back(std::move(ready));
    std::ranges::move(knobs, std::back_inserter(made.descriptors));
    std::ranges::move(graph.parts, std::back_inserter(made.descriptors));
    made.descriptors.push_back(std::move(config));
    made.descriptors.push_back(std::move(engine));
    made.descriptors.push_back(std::move(graph.graph));
  }

  std::unique_ptr<SharedLibrary> library_;
  Functions functions_;
  Companions companions_;
  void* handle_ = nullptr;
  std::vector<Descriptor> properties_;  // at most one
  std::map<Form, Choice> choices_;
  std::map<std::tuple<Form, int64_t, int64_t>, Plan> plans_;
};

class AbsentAttentionLibrary : public AttentionLibrary {
 public:
  explicit AbsentAttentionLibrary(std::string reason) : reason_(std::move(reason)) {}
  std::string_view decline(const PackedAttention&) override { return reason_; }
  void run(const PackedAttention&, void*, void*) override { throw_error(ErrorKind::internal, "{}", reason_); }

 private:
  std::string reason_;
};

LibraryNames names() { return {"INGOT_CUDNN_LIBRARY", {"libcudnn.so.9"}, nvidia_folders}; }

std::unique_ptr<AttentionLibrary> open(const std::string& device_json) {
  std::unique_ptr<AttentionLibrary> opened;
  const std::string reason = try_libraries(names(), [&](std::unique_ptr<SharedLibrary> library) {
    opened = std::make_unique<Cudnn>(std::move(library), device_json);
  });
  if (opened == nullptr) opened = std::make_unique<AbsentAttentionLibrary>(reason);
  return opened;
}

}  // namespace

std::unique_ptr<AttentionLibrary> open_cudnn() { return open({}); }
std::unique_ptr<AttentionLibrary> open_cudnn_for(const std::string& device_json) { return open(device_json); }

LibraryInfo info_of_cudnn() {
  LibraryInfo info;
  info.name = "cuDNN";
  info.reason = try_libraries(names(), [&](std::unique_ptr<SharedLibrary> library) {
    const Functions functions(*library);
    info.version = version_text(functions.GetVersion());
    open_companions(*library, functions);
    info.path = library->path();
  });
  return info;
}

}  // namespace ingot::gpu
