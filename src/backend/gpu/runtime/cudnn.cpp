// Fused attention by cuDNN 9.24 and later: its SDPA forward operation, over sequences that are packed without gaps,
// with the causal band mask as a subgraph. The sequence offsets are passed twice: as the offsets where rows begin (in
// rows; the multiplier converts them to elements) and as cumulative sequence lengths.
//
// One engine with one setting of its knobs serves every call of a form, whatever the number of tokens and sequences, so
// that a token's result depends on its own sequence only.
#include <fmt/format.h>

#include <limits>
#include <map>
#include <tuple>

#include "backend/gpu/runtime/attention_library.h"
#include "backend/gpu/runtime/cudnn_backend.h"
#include "backend/gpu/runtime/library_folders.h"
#include "base/error.h"
#include "ops/attention_bytes.h"

namespace ingot::gpu {
namespace {

using cudnn::Descriptor;
using cudnn::Functions;

constexpr size_t min_version = 92400;  // 9.24.0: cumulative sequence lengths, and offsets in rows

std::string version_text(size_t version) {
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

// Unique ids of the graph's tensors.
enum Uid : int64_t {
  q = 1,
  k,
  v,
  out,
  lse,
  offsets,
  lengths,
  scale,
  mask_value,
  window_size,
  scores,
  causal,
  windowed
};

class Cudnn : public AttentionLibrary {
 public:
  Cudnn(std::unique_ptr<SharedLibrary> library, const std::string& device_json)
      : library_(std::move(library)), functions_(*library_) {
    if (functions_.GetVersion() < min_version) {
      throw_error(ErrorKind::unavailable, "{} is version {}; fused attention needs {} or later", library_->path(),
                  version_text(functions_.GetVersion()), version_text(min_version));
    }
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

  std::string_view decline(const PackedAttention& call) override { return plan(call).reason; }

  void run(const PackedAttention& call, void* workspace, void* stream) override {
    const Plan& with = plan(call);
    if (!with.reason.empty() || with.plan.empty()) throw_error(ErrorKind::internal, "cuDNN: {}", with.reason);
    float scale = call.scale;
    float mask_value = std::numeric_limits<float>::lowest();  // the score of masked keys
    auto window_size = static_cast<float>(call.window);
    std::vector<int64_t> uids{Uid::q,       Uid::k,       Uid::v,     Uid::out,
                              Uid::offsets, Uid::lengths, Uid::scale, Uid::mask_value};
    auto* offsets = const_cast<int32_t*>(call.offsets);
    std::vector<void*> data{const_cast<void*>(call.q),
                            const_cast<void*>(call.k),
                            const_cast<void*>(call.v),
                            call.out,
                            offsets,
                            offsets,
                            &scale,
                            &mask_value};
    if (call.lse != nullptr) {
      uids.push_back(Uid::lse);
      data.push_back(call.lse);
    }
    if (call.window > 0) {
      uids.push_back(Uid::window_size);
      data.push_back(&window_size);
    }
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
  struct Graph {
    std::vector<Descriptor> parts;
    Descriptor graph;
  };

  struct TensorMore {
    bool is_virtual = false;
    bool by_value = false;
    const Descriptor* rows_from = nullptr;  // where sequences begin, in units of `multiplier` elements
    int64_t multiplier = 1;
  };
  Descriptor tensor(int64_t uid, cudnn::Data type, const std::vector<int64_t>& dimensions,
                    const std::vector<int64_t>& strides, TensorMore more) const {
    Descriptor made(functions_, cudnn::tensor);
    made.set_integers(900, {type == cudnn::bf16 ? 16 : 4}).set_choice(901, cudnn::data_type_type, type);
    made.set_integers(902, dimensions).set_integers(903, strides).set_integers(906, {uid});
    if (more.is_virtual) made.set_flag(907);
    if (more.by_value) made.set_flag(908);
    if (more.rows_from != nullptr) made.set_descriptor(913, *more.rows_from).set_integers(914, {more.multiplier});
    made.finalize("a tensor");
    return made;
  }

  Graph graph_of(const PackedAttention& call) const {
    const int64_t batch = call.sequences;
    const int64_t longest = call.tokens;  // max length of a sequence, as far as the host knows
    std::vector<Descriptor> parts;
    parts.reserve(24);
    const auto add = [&](Descriptor part) -> const Descriptor& {
      parts.push_back(std::move(part));
      return parts.back();
    };
    const auto value = [&](int64_t uid) -> const Descriptor& {
      return add(tensor(uid, cudnn::f32, {1, 1, 1, 1}, {1, 1, 1, 1}, {.by_value = true}));
    };
    const auto table = [&](int64_t uid) -> const Descriptor& {
      return add(tensor(uid, cudnn::i32, {batch + 1, 1, 1, 1}, {1, 1, 1, 1}, {}));
    };
    const Descriptor& begins = table(Uid::offsets);
    const auto rows = [&](int64_t uid, int64_t heads) -> const Descriptor& {
      const int64_t row = heads * call.d;
      return add(tensor(uid, cudnn::bf16, {batch, heads, longest, call.d}, {longest * row, call.d, row, 1},
                        {.rows_from = &begins, .multiplier = row}));
    };
    const auto score = [&](int64_t uid) -> const Descriptor& {
      const int64_t square = longest * longest;
      return add(tensor(uid, cudnn::f32, {batch, call.heads, longest, longest},
                        {call.heads * square, square, longest, 1}, {.is_virtual = true}));
    };
    // The masks keep the scores with query + 0 >= key (causal) and key + window > query (window); the others become
    // `mask_value`.
    const Descriptor& masked = value(Uid::mask_value);
    std::vector<const Descriptor*> masks;
    const auto mask = [&](const Descriptor& from, const Descriptor& to, int comparison, const Descriptor* left_bound) {
      Descriptor made(functions_, cudnn::band_mask);
      made.set_descriptor(3000, from).set_descriptor(3005, masked).set_descriptor(3006, to);
      made.set_choice(3007, cudnn::pointwise_mode_type, comparison);
      if (left_bound != nullptr) made.set_descriptor(3003, *left_bound);
      made.finalize("a mask");
      masks.push_back(&add(std::move(made)));
    };
    constexpr int greater = 302;
    constexpr int greater_or_equal = 303;
    const Descriptor& first = score(Uid::scores);
    const Descriptor& second = score(Uid::causal);
    mask(first, second, greater_or_equal, nullptr);
    if (call.window > 0) mask(second, score(Uid::windowed), greater, &value(Uid::window_size));
    Descriptor band(functions_, cudnn::graph);
    band.set_descriptors(801, masks).finalize("the mask's graph");
    const Descriptor& inner = add(std::move(band));

    Descriptor attention(functions_, cudnn::sdpa_forward);
    attention.set_descriptor(2800, rows(Uid::q, call.heads)).set_descriptor(2801, rows(Uid::k, call.kv_heads));
    attention.set_descriptor(2802, rows(Uid::v, call.kv_heads)).set_descriptor(2803, rows(Uid::out, call.heads));
    if (call.lse != nullptr) {
      attention.set_descriptor(2804, add(tensor(Uid::lse, cudnn::f32, {batch, call.heads, longest, 1},
                                                {longest, call.tokens, 1, 1}, {.rows_from = &begins})));
    }
    attention.set_descriptor(2805, value(Uid::scale));
    const Descriptor& sums = table(Uid::lengths);
    attention.set_descriptor(2820, sums).set_descriptor(2821, sums);
    attention.set_descriptor(2811, inner).set_integers(2812, {Uid::scores});
    attention.set_integers(2813, {call.window > 0 ? Uid::windowed : Uid::causal});
    attention.finalize("attention");
    const Descriptor& operation = add(std::move(attention));
    Descriptor graph(functions_, cudnn::graph);
    graph.set_descriptor(801, operation);
    if (handle_ != nullptr) graph.set_pointers(800, cudnn::handle_type, {handle_});
    graph.finalize("the graph");
    return {std::move(parts), std::move(graph)};
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
    if (needed > static_cast<int64_t>(ops::attention_library_bytes)) {
      throw_error(ErrorKind::unavailable, "cuDNN: needs {} bytes of workspace; {} are reserved", needed,
                  ops::attention_library_bytes);
    }
    if (handle_ == nullptr) return;
    Descriptor ready(functions_, cudnn::plan);
    ready.set_pointers(400, cudnn::handle_type, {handle_}).set_descriptor(401, config);
    ready.finalize("a plan");
    made.plan.push_back(std::move(ready));
    for (std::vector<Descriptor>* parts : {&knobs, &graph.parts}) {
      for (Descriptor& part : *parts) made.descriptors.push_back(std::move(part));
    }
    made.descriptors.push_back(std::move(config));
    made.descriptors.push_back(std::move(engine));
    made.descriptors.push_back(std::move(graph.graph));
  }

  std::unique_ptr<SharedLibrary> library_;
  Functions functions_;
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
    if (functions.GetVersion() < min_version) {
      throw_error(ErrorKind::unavailable, "{} is version {}; fused attention needs {} or later", library->path(),
                  info.version, version_text(min_version));
    }
    info.path = library->path();
  });
  return info;
}

}  // namespace ingot::gpu
