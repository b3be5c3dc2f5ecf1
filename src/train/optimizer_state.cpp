#include "train/optimizer_state.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <numeric>
#include <ranges>

#include "base/error.h"
#include "base/half.h"
#include "base/philox.h"
#include "ops/adamw_bytes.h"
#include "ops/elementwise.h"
#include "train/sharded_weights.h"

namespace ingot::train {

namespace {

Shape shape_of(const spec::ParamSpec& p) { return Shape(std::span<const int64_t>(p.shape)); }

size_t state_footprint(const Shape& shape, DType type) { return Arena::footprint(type, shape); }

// The embedding that is also the output head.
bool is_tied(const spec::ModelSpec& model, const spec::ParamSpec& p) {
  return model.tied_head && p.role == spec::Role::embedding;
}

// The parts of a model that have this parameter.
std::vector<int> chunks_of(const spec::ModelSpec& model, const std::vector<spec::ModelShard>& shards,
                           const spec::ParamSpec& p) {
  std::vector<int> chunks;
  for (size_t i = 0; i < shards.size(); ++i) {
    if (spec::holds(model, shards[i], p)) chunks.push_back(static_cast<int>(i));
  }
  return chunks;
}

// Dtype of the tensor that the model computes with: matrices in the activations' dtype, vectors in f32.
DType weight_type(const Shape& shape, DType activation) { return shape.rank() == 2 ? activation : DType::f32; }

// An f32 weight is its own master whatever the masters' dtype: an additional bf16 master would save no memory.
bool shares_memory(DType weight, OptimizerDtypes types) { return weight == types.master || weight == DType::f32; }

// Initial range, when nothing is known of the contributions. A step with a larger one is restarted with a larger range.
constexpr int32_t first_range = 20;

// Trainable tensors of the whole model.
int64_t count_trainable(const spec::ModelSpec& model, const std::optional<spec::LoraSpec>& lora) {
  return lora ? 2 * std::ssize(spec::lora_parameters(model, *lora)) : std::ssize(spec::parameters(model));
}

struct Planned {
  Shape shape;
  DType weight;
  const Optimizer* optimizer = nullptr;
  int64_t layer = -1;
  std::vector<int> chunks = {};
  bool tied = false;    // this rank computes both uses of a tied embedding
  bool split = false;   // it computes one of them
  int64_t counted = 0;  // TrainedParameter::counted_elements
  spec::TensorPlacement placement = spec::TensorPlacement::replicated;
  int64_t copied = 0;  // elements that several tensor-parallel ranks have (spec::CopiedRows)
  std::vector<SquareBlock> square_blocks = {};
  bool divided = false;  // TrainedParameter::divided
};

int64_t copied_elements(const spec::HeldPart& part) {
  return part.copied.ranks == 1 ? 0 : part.slice.elements() - part.copied.begin * part.slice.columns.count();
}

// The adapters of the parts of a model that a rank holds. `number`: of A, among all trainable tensors; that of B
// follows.
struct NumberedAdapter {
  spec::HeldAdapter held;
  std::vector<int> chunks;
  size_t number = 0;
  bool divided = false;  // the base is: spec::HeldParameter::divided

  const spec::LoraParam& adapter() const { return held.adapter; }
};

Shape shape_of(const spec::HeldAdapterMatrix& matrix) {
  return Shape{matrix.slice.num_rows(), matrix.slice.columns.count()};
}

std::vector<NumberedAdapter> held_adapters(const spec::ModelSpec& model, const spec::LoraSpec& lora,
                                           const std::vector<spec::ModelShard>& shards) {
  std::map<size_t, spec::HeldParameter> bases;
  for (spec::HeldParameter& p : spec::held_parameters(model, shards)) bases.emplace(p.whole, std::move(p));
  std::vector<NumberedAdapter> held;
  size_t number = 0;
  for (const spec::LoraParam& p : spec::lora_parameters(model, lora)) {
    const auto base = bases.find(p.base);
    if (base != bases.end()) {
      const int64_t inputs = base->second.slice.columns.count();
      if (lora.dropout > 0 && inputs < p.in && inputs % 4 != 0) {
        throw_hint(ErrorKind::usage, "set adapter.dropout to 0, or lower parallel.tp",
                   "adapter.dropout {}: parallel.tp cuts the {} inputs of {} into {}, which is not a multiple of 4",
                   lora.dropout, p.in, p.module, inputs);
      }
      held.push_back({spec::held_adapter(p, base->second), chunks_of(model, shards, base->second.held), number,
                      base->second.divided});
    }
    number += 2;
  }
  return held;
}

// What tensor-parallel ranks would hold, if each had one of the slices of sums: of the slices of one rank.
class HeldSlices {
 public:
  HeldSlices(const spec::ModelSpec& model, const ShardSpec& share) {
    if (share.sum_slices == 1) return;
    const int64_t own = share.sum_slices / share.tp();
    first_ = share.tp_rank() * own;
    for (int64_t number = first_; number < first_ + own; ++number) {
      std::vector<spec::ModelShard> shards = share.shards;
      for (spec::ModelShard& shard : shards) {
        shard.tp = share.sum_slices;
        shard.tp_rank = number;
      }
      auto& slice = slices_.emplace_back();
      for (spec::HeldParameter& p : spec::held_parameters(model, shards)) slice.emplace(p.whole, std::move(p));
    }
  }

  std::vector<SquareBlock> blocks(const spec::HeldParameter& held) const {
    return blocks_of(held.slice, held.whole,
                     [](const spec::HeldParameter& slice) { return std::pair(slice.slice, slice.placement); });
  }
  std::vector<SquareBlock> blocks(const spec::HeldAdapter& held,
                                  spec::HeldAdapterMatrix spec::HeldAdapter::* matrix) const {
    return blocks_of((held.*matrix).slice, held.adapter.base, [&](const spec::HeldParameter& slice) {
      const spec::HeldAdapter part = spec::held_adapter(held.adapter, slice);
      return std::pair((part.*matrix).slice, (part.*matrix).placement);
    });
  }

 private:
  template <class PartOf>
  std::vector<SquareBlock> blocks_of(const spec::Slice& held, size_t whole, PartOf part_of) const {
    if (slices_.empty()) return {};
    std::vector<spec::Slice> parts;
    for (const auto& slice : slices_) {
      const auto [part, placement] = part_of(slice.at(whole));
      if (placement != spec::TensorPlacement::sharded) return square_blocks(held, {&held, 1}, 0);
      parts.push_back(part);
    }
    return square_blocks(held, parts, first_);
  }

  std::vector<std::map<size_t, spec::HeldParameter>> slices_;  // by HeldParameter::whole
  int64_t first_ = 0;
};

std::vector<Planned> planned_tensors(const spec::ModelSpec& model, const std::optional<spec::LoraSpec>& lora,
                                     DType activation, OptimizerName name, const ShardSpec& share) {
  const std::vector<spec::ModelShard>& shards = share.shards;
  const std::vector<spec::ParamSpec> table = spec::parameters(model);
  const HeldSlices slices(model, share);
  std::vector<Planned> planned;
  if (lora) {
    for (const NumberedAdapter& each : held_adapters(model, *lora, shards)) {
      const int64_t layer = table[each.adapter().base].layer;
      for (const auto member : {&spec::HeldAdapter::a, &spec::HeldAdapter::b}) {
        const spec::HeldAdapterMatrix* matrix = &(each.held.*member);
        const Shape shape = shape_of(*matrix);
        planned.push_back({.shape = shape,
                           .weight = activation,
                           .optimizer = &optimizer_for(name, shape, layer),
                           .layer = layer,
                           .chunks = each.chunks,
                           .counted = matrix->counted_elements(shards.front()),
                           .placement = matrix->placement,
                           .copied = copied_elements(*matrix),
                           .square_blocks = slices.blocks(each.held, member),
                           .divided = each.divided});
      }
    }
  } else {
    const auto has = [&](bool (spec::ModelShard::*end)() const) {
      return std::ranges::any_of(shards, [&](const spec::ModelShard& shard) { return (shard.*end)(); });
    };
    const bool both = has(&spec::ModelShard::first) && has(&spec::ModelShard::last);
    for (const spec::HeldParameter& held : spec::held_parameters(model, shards)) {
      const spec::ParamSpec& p = held.held;
      const Shape shape = shape_of(p);
      const bool tied = is_tied(model, p);
      planned.push_back({shape, weight_type(shape, activation), &optimizer_for(name, shape, p.layer), p.layer,
                         chunks_of(model, shards, p), tied && both, tied && !both,
                         held.copy ? 0 : held.counted_elements(shards.front()), held.placement, copied_elements(held),
                         slices.blocks(held), held.divided});
    }
  }
  return planned;
}

Tensor shard_of(const Tensor& tensor, const Range& shard) { return flat(tensor).slice(shard.begin, shard.end); }

// Elements from the start of a tensor in a bucket's memory to the start of the next one (padded).
int64_t padded_elements(const Shape& shape, DType number) {
  return static_cast<int64_t>(state_footprint(shape, number) / size_of(number));
}

}  // namespace

// Assignment of tensors to buckets, and of their elements to ranks.
struct OptimizerState::Layout {
  std::vector<Planned> tensors;
  std::vector<std::vector<Range>> parts;  // by tensor and rank
  std::vector<int64_t> offsets;           // by tensor: its first element in its bucket's memory
  std::vector<Bucket> buckets;            // without memory
  std::vector<int64_t> bucket_elements;   // by bucket: elements of its memory
  int64_t whole_tensors;                  // trainable tensors of the whole model
  ShardSpec share;
  DType number;

  Layout(const spec::ModelSpec& model, const std::optional<spec::LoraSpec>& lora, DType activation,
         OptimizerDtypes types, const ShardSpec& its_share)
      : tensors(planned_tensors(model, lora, activation, types.optimizer, its_share)),
        parts(tensors.size()),
        offsets(tensors.size()),
        whole_tensors(count_trainable(model, lora)),
        share(its_share),
        number(types.fixed_point_sums ? DType::i64 : DType::f32),
        loads_(static_cast<size_t>(share.ranks)),
        divided_loads_(static_cast<size_t>(share.ranks_of(true))) {
    int64_t before = -1;  // layer of the current bucket's tensors; -1 before the blocks, model_end after them
    for (size_t i = 0; i < tensors.size(); ++i) {
      const int64_t layer = tensors[i].layer >= 0 ? tensors[i].layer : (before < 0 ? -1 : model_end);
      if (buckets.empty() || layer != before || tensors[i].divided != buckets.back().divided) {
        buckets.push_back({.layer = layer, .chunks = tensors[i].chunks, .first = i, .last = i});
        buckets.back().divided = tensors[i].divided;
      }
      before = layer;
      ++buckets.back().last;
      buckets.back().early = buckets.back().early || tensors[i].tied;
      if (tensors[i].split) buckets.back().split = i;
    }
    join_buckets();
    for (Bucket& bucket : buckets) {
      divide_bucket(bucket);
      add_runs(bucket);
    }
  }

  Range shard(size_t tensor) const {
    const Range all{0, tensors[tensor].shape.elements()};
    return share.zero_stage() == 0 ? all : part(tensor);
  }
  // This rank's.
  const Range& part(size_t tensor) const {
    return parts[tensor][static_cast<size_t>(share.rank_of(tensors[tensor].divided))];
  }
  int64_t shard_elements(size_t bucket) const {
    return static_cast<int64_t>(buckets[bucket].sections[static_cast<size_t>(share.rank_of(buckets[bucket].divided))]);
  }
  // Which of the two shared buffers the bucket uses. Neighbours alternate, so that the next bucket can receive
  // gradients while this one's are being synchronised. The first bucket uses the last one's buffer, as both may be of
  // vocabulary size.
  size_t shared_buffer(size_t bucket) const { return bucket == 0 ? 0 : (buckets.size() - 1 - bucket) % 2; }
  std::array<int64_t, 2> buffer_elements() const {
    std::array<int64_t, 2> sizes{};
    for (size_t b = 0; b < buckets.size(); ++b) {
      if (!buckets[b].early) sizes[shared_buffer(b)] = std::max(sizes[shared_buffer(b)], bucket_elements[b]);
    }
    return sizes;
  }

 private:
  static constexpr int64_t model_end = INT64_MAX;

  // Whether ranks divide one of its tensors as a whole.
  bool has_whole_tensor(const Bucket& bucket) const {
    return std::any_of(tensors.begin() + static_cast<int64_t>(bucket.first),
                       tensors.begin() + static_cast<int64_t>(bucket.last),
                       [](const Planned& p) { return p.optimizer->whole_matrices; });
  }

  // Those that become final at other times in backward than their place says stay alone, and so do those that other
  // ranks divide than those beside them, or that are divided in another way.
  void join_buckets() {
    if (share.ranks * share.replicas == 1) return;  // nothing is reduced
    const auto stays_alone = [](const Bucket& bucket) { return bucket.early || bucket.split; };
    const auto bytes = [&](const Bucket& bucket) {
      int64_t elements = 0;
      for (size_t i = bucket.first; i < bucket.last; ++i) elements += padded_elements(tensors[i].shape, number);
      return elements * static_cast<int64_t>(size_of(number));
    };
    std::vector<Bucket> joined;  // in the order of backward
    for (Bucket& bucket : std::views::reverse(buckets)) {
      if (!joined.empty() && bytes(joined.back()) < share.bucket_bytes && joined.back().chunks == bucket.chunks &&
          joined.back().divided == bucket.divided && has_whole_tensor(joined.back()) == has_whole_tensor(bucket) &&
          !stays_alone(joined.back()) && !stays_alone(bucket)) {
        joined.back().layer = bucket.layer;
        joined.back().first = bucket.first;
      } else {
        joined.push_back(std::move(bucket));
      }
    }
    std::ranges::reverse(joined);
    buckets = std::move(joined);
  }

  // Divides the bucket's tensors by elements or, if it has one that must be whole, tensor by tensor. Its memory is in
  // the order of ranks, so that each rank has one section.
  void divide_bucket(Bucket& bucket) {
    const int ranks = share.ranks_of(bucket.divided);
    std::vector<int64_t> elements, room;
    for (size_t i = bucket.first; i < bucket.last; ++i) {
      elements.push_back(tensors[i].shape.elements());
      room.push_back(padded_elements(tensors[i].shape, number));
      bucket.order.push_back(i);
    }
    if (has_whole_tensor(bucket)) {
      const std::vector<int> owners = assign(elements, bucket.divided ? divided_loads_ : loads_);
      for (size_t i = bucket.first; i < bucket.last; ++i) {
        parts[i].resize(static_cast<size_t>(ranks));
        parts[i][static_cast<size_t>(owners[i - bucket.first])] = {0, elements[i - bucket.first]};
      }
      std::ranges::sort(bucket.order, {}, [&](size_t i) { return std::pair(owners[i - bucket.first], i); });
    } else if (share.sum_slices > 1) {
      std::vector<std::vector<int64_t>> ends;
      for (size_t i = bucket.first; i < bucket.last; ++i)
        ends.push_back(block_ends(tensors[i].square_blocks, tensors[i].shape.rank() > 1 ? tensors[i].shape[1] : 1));
      std::ranges::move(divide(ends, ranks), parts.begin() + static_cast<int64_t>(bucket.first));
    } else {
      std::ranges::move(divide(elements, ranks), parts.begin() + static_cast<int64_t>(bucket.first));
    }
    std::vector<size_t> order(bucket.order);
    for (size_t& i : order) i -= bucket.first;
    Sections made =
        make_sections(order, room, std::span(parts).subspan(bucket.first, bucket.last - bucket.first), ranks);
    std::ranges::copy(made.offsets, offsets.begin() + static_cast<int64_t>(bucket.first));
    bucket_elements.push_back(made.total);
    bucket.sections = std::move(made.sizes);
  }

  void add_runs(Bucket& bucket) const {
    const int ranks = share.ranks_of(bucket.divided);
    if (share.zero_stage() == 0 || ranks == 1) return;
    std::vector<DividedWeight> weights;
    for (size_t i = bucket.first; i < bucket.last; ++i)
      weights.push_back({state_footprint(tensors[i].shape, tensors[i].weight), size_of(tensors[i].weight), parts[i]});
    bucket.runs = weight_runs(weights, ranks);
  }

  std::vector<int64_t> loads_, divided_loads_;  // by rank: elements of the whole tensors that it has so far
};

OptimizerStateBytes OptimizerState::bytes_of(const Layout& layout, OptimizerDtypes types) {
  OptimizerStateBytes bytes;
  size_t largest = 0;
  const bool shared = layout.share.divides_gradients();
  for (size_t i = 0; i < layout.tensors.size(); ++i) {
    const Planned& p = layout.tensors[i];
    const int64_t elements = layout.shard(i).count();
    // What this rank writes to checkpoints.
    const Range counted{0, layout.share.replica > 0 ? 0 : p.counted};
    const int64_t part = common(layout.part(i), counted).count();
    const bool own_master = !shares_memory(p.weight, types), offloaded = types.offload && own_master;
    if (own_master) (offloaded ? bytes.offloaded : bytes.master) += state_footprint(Shape{elements}, types.master);
    (offloaded ? bytes.offloaded : bytes.moments) += state_bytes(*p.optimizer, p.shape, elements, types.state);
    bytes.update = std::max(bytes.update, train::update_bytes(*p.optimizer, p.shape, elements, p.weight));
    bytes.state += state_footprint(Shape{part}, shares_memory(p.weight, types) ? p.weight : types.master) +
                   state_bytes(*p.optimizer, p.shape, part, types.state);
    if (!shared) bytes.gradients += state_footprint(p.shape, layout.number);
    if (p.tied && !types.fixed_point_sums) bytes.gradients += state_footprint(p.shape, DType::f32);
    largest = std::max(largest, state_footprint(p.shape, DType::f32));
  }
  if (shared) {
    for (const int64_t room : layout.buffer_elements()) bytes.gradients += state_footprint(Shape{room}, layout.number);
    for (size_t b = 0; b < layout.buckets.size(); ++b) {
      bytes.gradients += state_footprint(Shape{layout.shard_elements(b)}, layout.number);
      if (layout.buckets[b].early) bytes.gradients += state_footprint(Shape{layout.bucket_elements[b]}, layout.number);
    }
  }
  if (types.fixed_point_sums) {
    const Shape all{layout.whole_tensors};
    bytes.gradients += largest + state_footprint(all, DType::i32) + state_footprint(all, DType::f32);
  }
  return bytes;
}

OptimizerStateBytes optimizer_state_bytes(const spec::ModelSpec& model, const std::optional<spec::LoraSpec>& lora,
                                          DType activation, OptimizerDtypes types, const ShardSpec& share) {
  const OptimizerState::Layout layout(model, lora, activation, types, share);
  OptimizerStateBytes bytes = OptimizerState::bytes_of(layout, types);
  if (lora) {
    for (const Planned& p : layout.tensors) bytes.adapter += state_footprint(p.shape, p.weight);
  }
  return bytes;
}

std::vector<DividedBucket> divide_parameters(const spec::ModelSpec& model, DType activation, OptimizerDtypes types,
                                             const ShardSpec& share) {
  if (share.bucket_bytes > 0)
    throw_error(ErrorKind::internal, "weights that are gathered block by block, with joined buckets of gradients");
  const OptimizerState::Layout layout(model, std::nullopt, activation, types, share);
  const std::vector<spec::HeldParameter> held = spec::held_parameters(model, share.shards);
  std::vector<DividedBucket> divided;
  for (const Bucket& bucket : layout.buckets) {
    DividedBucket& parameters = divided.emplace_back();
    for (const size_t i : bucket.order) parameters.push_back({held[i].whole, layout.parts[i]});
  }
  return divided;
}

std::vector<BucketBytes> bucket_bytes(const spec::ModelSpec& model, const std::optional<spec::LoraSpec>& lora,
                                      DType activation, OptimizerDtypes types, const ShardSpec& share) {
  const OptimizerState::Layout layout(model, lora, activation, types, share);
  const size_t width = size_of(layout.number);
  std::vector<BucketBytes> all;
  for (size_t b = 0; b < layout.buckets.size(); ++b) {
    const Bucket& bucket = layout.buckets[b];
    BucketBytes& bytes = all.emplace_back();
    bytes.divided = bucket.divided;
    bytes.memory = static_cast<size_t>(layout.bucket_elements[b]) * width;
    bytes.section = static_cast<size_t>(layout.shard_elements(b)) * width;
    for (size_t i = bucket.first; i < bucket.last; ++i) {
      const Planned& p = layout.tensors[i];
      const auto elements = static_cast<size_t>(p.shape.elements());
      if (p.placement == spec::TensorPlacement::partial) bytes.partial.push_back(elements * width);
      if (p.copied > 0) bytes.copied.push_back(static_cast<size_t>(p.copied) * width);
    }
    for (const WeightRun& run : bucket.runs) bytes.weights.push_back(run.bytes());
    if (bucket.split) bytes.split = static_cast<size_t>(layout.tensors[*bucket.split].shape.elements()) * width;
  }
  return all;
}

OptimizerState::OptimizerState(Device& device, const spec::ModelSpec& model, const WeightSet& weights, DType activation,
                               OptimizerDtypes types, const ShardSpec& share, const ShardedWeights* sharded,
                               Device* host)
    : share_(share), has_whole_weights_(sharded == nullptr) {
  const std::vector<spec::ParamSpec> table = spec::parameters(model);
  trainable_index_.assign(table.size(), -1);
  for (const spec::HeldParameter& held : spec::held_parameters(model, share.shards)) {
    const Parameter& parameter = weights.parameters[held.whole];
    TrainedParameter t;
    t.name = held.held.name;
    t.number = held.whole;
    t.copy = held.copy;
    t.divided = held.divided;
    t.shape = shape_of(held.held);
    t.whole = shape_of(table[held.whole]);
    static_cast<spec::HeldPart&>(t) = held;
    t.decay = held.held.decay;
    t.weight = t.shape.rank() == 2 ? parameter.matrix.tensor() : parameter.vector;
    if (t.weight.dtype != weight_type(t.shape, activation)) {
      throw_error(ErrorKind::internal, "{} is stored as {} and cannot be trained in {}", t.name, name(t.weight.dtype),
                  name(activation));
    }
    if (sharded != nullptr) t.own_weight = sharded->own(held.whole, t.weight.dtype);
    trainable_index_[held.whole] = static_cast<int>(tensors_.size());
    tensors_.push_back(std::move(t));
  }
  allocate_state(device, types, Layout(model, std::nullopt, activation, types, share), host);
}

OptimizerState::OptimizerState(Device& device, const spec::ModelSpec& model, const spec::LoraSpec& lora,
                               DType activation, OptimizerDtypes types, uint64_t seed, const ShardSpec& share)
    : share_(share) {
  const std::vector<spec::ParamSpec> table = spec::parameters(model);
  const std::vector<NumberedAdapter> adapted = held_adapters(model, lora, share.shards);
  adapter_arena_ = Arena(device, optimizer_state_bytes(model, lora, activation, types, share).adapter, "adapter");
  trainable_index_.assign(table.size(), -1);
  lowest_trainable_layer_ = spec::lowest_adapted_layer(model, lora);
  adapter_.emplace();
  adapter_rank_ = lora.rank;
  adapter_->factor = static_cast<float>(lora.factor());
  adapter_->dropout = static_cast<float>(lora.dropout);
  adapter_->layers.resize(table.size());
  for (const NumberedAdapter& each : adapted) {
    nn::LoraWeights& layer = adapter_->layers[each.adapter().base];
    layer.a = adapter_arena_.allocate(activation, shape_of(each.held.a));
    layer.b = adapter_arena_.allocate(activation, shape_of(each.held.b));
    layer.a_trainable = static_cast<int>(tensors_.size());
    layer.b_trainable = layer.a_trainable + 1;
    const auto add = [&](const char* name, size_t number, const spec::HeldAdapterMatrix& matrix, const Tensor& weight) {
      TrainedParameter t;
      t.name = fmt::format("{}.{}.weight", each.adapter().module, name);
      t.number = number;
      t.divided = each.divided;
      t.shape = weight.shape;
      t.whole = Shape(std::span<const int64_t>(matrix.whole));
      static_cast<spec::HeldPart&>(t) = matrix;
      t.decay = true;
      t.weight = weight;
      tensors_.push_back(std::move(t));
    };
    add("lora_A", each.number, each.held.a, layer.a);
    add("lora_B", each.number + 1, each.held.b, layer.b);
  }
  allocate_state(device, types, Layout(model, lora, activation, types, share));

  for (const NumberedAdapter& each : adapted) {
    const spec::LoraParam& p = each.adapter();
    const TrainedParameter& a = tensors_[static_cast<size_t>(adapter_->layers[p.base].a_trainable)];
    const Tensor& master = a.master;
    const double bound = 1.0 / std::sqrt(static_cast<double>(p.in));
    std::vector<float> all(static_cast<size_t>(p.rank * p.in));
    RandomStream random(seed, each.number);
    for (float& value : all) value = static_cast<float>((2.0 * random.uniform() - 1.0) * bound);
    std::vector<float> held;
    spec::for_runs(a.slice, p.in, [&](int64_t first, int64_t count, int64_t) {
      held.insert(held.end(), all.begin() + first, all.begin() + first + count);
    });
    const std::span values =
        std::span<const float>(held).subspan(static_cast<size_t>(a.shard.begin), static_cast<size_t>(a.shard.count()));
    if (master.dtype == DType::f32) {
      device.copy_from_host(master.data, values.data(), values.size() * sizeof(float));
    } else {
      std::vector<uint16_t> rounded(values.size());
      std::transform(values.begin(), values.end(), rounded.begin(), [](float v) { return float_to_bf16(v); });
      device.copy_from_host(master.data, rounded.data(), rounded.size() * sizeof(uint16_t));
    }
  }
}

void OptimizerState::allocate_state(Device& device, OptimizerDtypes types, const Layout& layout, Device* host) {
  if (types.offload != (host != nullptr) || (types.offload && types.state == DType::u8))
    throw_error(ErrorKind::internal, "optimizer state of {} is not for host memory", name(types.state));
  const OptimizerStateBytes bytes = bytes_of(layout, types);
  optimizer_arena_ = Arena(device, bytes.master + bytes.moments, "optimizer");
  if (host != nullptr) {
    host_arena_ = Arena(*host, bytes.offloaded, "offloaded optimizer state");
    host_update_.emplace(device, *host);
  }
  gradient_arena_ = Arena(device, bytes.gradients, "gradients");
  update_bytes_ = bytes.update;
  num_trainable_ = static_cast<size_t>(layout.whole_tensors);
  buckets_ = layout.buckets;
  const bool whole = share_.zero_stage() == 0;
  for (size_t i = 0; i < tensors_.size(); ++i) {
    TrainedParameter& t = tensors_[i];
    t.parts = layout.parts[i];
    t.shard = layout.shard(i);
    const Shape shape = whole ? t.shape : Shape{t.shard.count()};
    if (has_whole_weights_) t.own_weight = shard_of(t.weight, t.shard);
    if (t.own_weight.elements() != t.shard.count()) {
      throw_error(ErrorKind::internal, "{} elements of {} are stored, and {} updated", t.own_weight.elements(), t.name,
                  t.shard.count());
    }
    const bool own_master = !shares_memory(t.weight.dtype, types);
    Arena& arena = host != nullptr && own_master ? host_arena_ : optimizer_arena_;
    if (own_master) {
      t.master = arena.allocate(types.master, shape);
    } else {
      t.master = whole ? t.weight : t.own_weight;
    }
    t.optimizer = layout.tensors[i].optimizer;
    t.square_blocks = layout.tensors[i].square_blocks;
    t.state = state_layout(*t.optimizer, t.shape, t.shard.count(), types.state);
    const bool in_blocks = std::ranges::any_of(t.state, [](const StateTensor& state) { return state.block > 1; });
    if (t.placement == spec::TensorPlacement::sharded && (in_blocks || t.optimizer->whole_matrices)) {
      throw_error(ErrorKind::internal, "{}: a part of a tensor with an optimizer that needs all of it", t.name);
    }
    if (host != nullptr && t.optimizer->whole_matrices)
      throw_error(ErrorKind::internal, "{}: {} on the host", t.name, t.optimizer->name);
    for (StateTensor& state : t.state) state.tensor = arena.allocate(state.tensor.dtype, state.tensor.shape);
  }
  place_runs();
  share_.divides_gradients() ? allocate_shared_gradients(layout) : allocate_gradients(layout);
  if (types.fixed_point_sums) {
    allocate_fixed_sums(device);
  } else {
    for (size_t i = 0; i < tensors_.size(); ++i) {
      if (layout.tensors[i].tied) tensors_[i].tied_gradient = gradient_arena_.allocate(DType::f32, tensors_[i].shape);
    }
  }
}

// Where a tensor's contributions are accumulated: `gradient`, or `sum` for fixed-point sums.
Tensor& OptimizerState::total_of(TrainedParameter& t, DType number) {
  return number == DType::i64 ? t.sum : t.gradient;
}

void OptimizerState::allocate_gradients(const Layout& layout) {
  for (size_t b = 0; b < buckets_.size(); ++b) {
    Bucket& bucket = buckets_[b];
    for (const size_t i : bucket.order) {
      TrainedParameter& t = tensors_[i];
      total_of(t, layout.number) = gradient_arena_.allocate(layout.number, t.shape);
      t.shard_gradient = shard_of(total_of(t, layout.number), t.shard);
    }
    bucket.memory = total_of(tensors_[bucket.order.front()], layout.number);
    bucket.memory.shape = Shape{layout.bucket_elements[b]};  // the arena's allocations are consecutive
  }
}

void OptimizerState::allocate_shared_gradients(const Layout& layout) {
  const std::array<int64_t, 2> bucket_elements = layout.buffer_elements();
  const Tensor shared[] = {gradient_arena_.allocate(layout.number, Shape{bucket_elements[0]}),
                           gradient_arena_.allocate(layout.number, Shape{bucket_elements[1]})};
  for (size_t b = 0; b < buckets_.size(); ++b) {
    Bucket& bucket = buckets_[b];
    const int64_t room = layout.bucket_elements[b];
    bucket.memory = bucket.early ? gradient_arena_.allocate(layout.number, Shape{room})
                                 : shared[layout.shared_buffer(b)].slice(0, room);
    bucket.shard_sum = gradient_arena_.allocate(layout.number, Shape{layout.shard_elements(b)});
    const auto sections = bucket.sections.begin();
    const auto start =
        static_cast<int64_t>(std::accumulate(sections, sections + share_.rank_of(bucket.divided), size_t{0}));
    for (size_t i = bucket.first; i < bucket.last; ++i) {
      TrainedParameter& t = tensors_[i];
      const int64_t at = layout.offsets[i];
      total_of(t, layout.number) = bucket.memory.slice(at, at + t.shape.elements()).reshape(t.shape);
      const int64_t offset = t.shard.count() > 0 ? at + t.shard.begin - start : 0;
      t.shard_gradient = bucket.shard_sum.slice(offset, offset + t.shard.count());
    }
  }
}

void OptimizerState::allocate_fixed_sums(Device& device) {
  int64_t max_elements = 0;
  for (const TrainedParameter& t : tensors_) max_elements = std::max(max_elements, t.shape.elements());
  const Tensor shared = gradient_arena_.allocate(DType::f32, Shape{max_elements});
  for (TrainedParameter& t : tensors_) t.gradient = shared.slice(0, t.shape.elements()).reshape(t.shape);
  const Shape all{static_cast<int64_t>(num_trainable_)};
  ranges_ = gradient_arena_.allocate(DType::i32, all);
  largest_ = gradient_arena_.allocate(DType::f32, all);
  const std::vector<int32_t> first(num_trainable_, first_range);
  const std::vector<float> none(num_trainable_);
  device.copy_from_host(ranges_.data, first.data(), ranges_.bytes());
  device.copy_from_host(largest_.data, none.data(), largest_.bytes());
}

void OptimizerState::place_runs() {
  for (Bucket& bucket : buckets_) {
    if (!has_whole_weights_) bucket.runs.clear();
    const TrainedParameter* of_run = &tensors_[bucket.first];
    for (WeightRun& run : bucket.runs) {
      run.memory = static_cast<std::byte*>(of_run->weight.data);
      const std::byte* next = run.memory;
      for (size_t i = 0; i < run.tensors; ++i, ++of_run) {
        if (of_run->weight.data != next)
          throw_error(ErrorKind::internal, "{} does not follow the weight before it in memory", of_run->name);
        next += Arena::footprint(of_run->weight.dtype, of_run->weight.shape);
      }
    }
  }
}

bool TrainedParameter::has(const SquareBlock& block) const {
  const int64_t columns = shape.rank() > 1 ? shape[1] : 1;
  return block.rows.begin * columns >= shard.begin && block.rows.end * columns <= shard.end;
}

int64_t TrainedParameter::num_square_blocks(const ShardSpec& share) const {
  if (share.sum_slices == 1) return (shard.count() + ops::sum_squares_block - 1) / ops::sum_squares_block;
  if (!is_counted(share)) return 0;
  return std::ranges::count_if(square_blocks, [this](const SquareBlock& block) { return has(block); });
}

int64_t OptimizerState::num_parameters() const {
  int64_t count = 0;
  for (const TrainedParameter& t : tensors_) count += t.shape.elements();
  return count;
}

void update_parameter(ops::Context& context, const TrainedParameter& t, const Tensor& gradient,
                      const UpdateAttributes& attributes) {
  ParameterUpdate parameter{
      .shape = t.shape, .master = flat(t.master), .gradient = gradient, .activation = t.weight.dtype, .decay = t.decay};
  if (t.own_weight.data != t.master.data) parameter.weight = t.own_weight;
  run_update(context, *t.optimizer, t.state, parameter, attributes);
}

void OptimizerState::init_masters(ops::Context& context) {
  for (const TrainedParameter& t : tensors_) {
    if (t.shard.count() == 0) continue;
    if (is_offloaded(t)) {
      host_update_->init_master(context, t);
    } else if (t.own_weight.data != t.master.data) {
      ops::scale(context, flat(t.master), t.own_weight, 1);
    }
  }
}

void OptimizerState::refresh_weights(ops::Context& context) {
  for (const TrainedParameter& t : tensors_) {
    if (t.shard.count() == 0) continue;
    if (is_offloaded(t)) {
      host_update_->refresh_weight(context, t);
    } else if (t.own_weight.data != t.master.data) {
      ops::scale(context, t.own_weight, flat(t.master), 1);
    }
  }
}

}  // namespace ingot::train
