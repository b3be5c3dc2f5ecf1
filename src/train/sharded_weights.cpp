#include "train/sharded_weights.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "base/error.h"

namespace ingot::train {

namespace {

int64_t footprint(const ParameterForm& form) { return static_cast<int64_t>(Arena::footprint(form.bytes())); }

// Elements of a plain type, as bytes.
std::vector<Range> in_bytes(const std::vector<Range>& elements, const ParameterForm& form) {
  const auto width = static_cast<int64_t>(block_bytes(form.storage));
  std::vector<Range> bytes;
  for (const Range& range : elements) bytes.push_back({range.begin * width, range.end * width});
  return bytes;
}

// Of a bucket: its unit, and WeightBucket::divided.
using BucketKey = std::pair<size_t, bool>;

// The forms of each bucket, in the order of the table.
std::map<BucketKey, std::vector<ParameterForm>> by_bucket(const spec::ModelSpec& model,
                                                          std::span<const ParameterForm> forms,
                                                          const spec::ModelShard& shard) {
  const std::vector<spec::ParamSpec> table = spec::parameters(model);
  const auto blocks = static_cast<size_t>(model.num_layers());
  std::map<BucketKey, std::vector<ParameterForm>> buckets;
  for (const ParameterForm& form : forms) {
    const spec::ParamSpec& p = table[form.number];
    const size_t unit = p.layer >= 0 ? static_cast<size_t>(1 + p.layer) : p.after_blocks ? blocks + 1 : 0;
    buckets[{unit, shard.divides(p)}].push_back(form);
  }
  return buckets;
}

// Two places outside the blocks, of which a tied embedding, which is used at both ends, has one for itself; then two
// for the blocks, alternately.
size_t place_number(int unit, size_t units, bool tied) {
  if (unit == 0) return 0;
  if (unit + 1 == static_cast<int>(units)) return tied ? 1 : 0;
  return 2 + static_cast<size_t>(unit) % 2;
}

struct PlaceSize {
  int64_t memory = 0;
  std::array<int64_t, 2> workspaces{};  // by WeightBucket::divided: of the largest that several ranks gather
};

std::array<PlaceSize, 4> place_sizes(std::span<const WeightUnit> units, bool tied, bool offloaded) {
  std::array<PlaceSize, 4> sizes{};
  for (size_t u = 0; u < units.size(); ++u) {
    PlaceSize& size = sizes[place_number(static_cast<int>(u), units.size(), tied)];
    for (const WeightBucket& bucket : units[u]) {
      const bool gathered = bucket.sections.size() > 1;
      if (gathered || offloaded) size.memory = std::max(size.memory, bucket.begin + bucket.total);
      if (!gathered) continue;
      int64_t& workspace = size.workspaces.at(bucket.divided ? 1 : 0);
      workspace = std::max(workspace, bucket.total);
    }
  }
  return sizes;
}

}  // namespace

std::vector<WeightUnit> weight_units(const spec::ModelSpec& model, std::span<const ParameterForm> forms,
                                     std::span<const DividedBucket> trained, const ShardSpec& share) {
  std::map<BucketKey, std::vector<ParameterForm>> all = by_bucket(model, forms, share.shards.front());
  if (!trained.empty() && trained.size() != all.size())
    throw_error(ErrorKind::internal, "{} buckets of weights, and {} of gradients", all.size(), trained.size());
  std::vector<WeightUnit> units(static_cast<size_t>(model.num_layers()) + 2);
  auto next = trained.begin();
  for (auto& [key, members] : all) {
    const auto& [number, divided] = key;
    const int ranks = share.ranks_of(divided);
    std::vector<std::vector<Range>> parts;
    if (trained.empty()) {
      std::vector<int64_t> bytes;
      for (const ParameterForm& form : members) bytes.push_back(static_cast<int64_t>(form.bytes()));
      parts = divide(bytes, ranks);
    } else {
      std::vector<ParameterForm> ordered;
      for (const DividedParameter& each : *next++) {
        const auto form = std::ranges::find(members, each.whole, &ParameterForm::number);
        if (form == members.end())
          throw_error(ErrorKind::internal, "parameter {} is not in this bucket of unit {} of the weights", each.whole,
                      number);
        parts.push_back(in_bytes(each.parts, *form));
        ordered.push_back(*form);
      }
      members = std::move(ordered);
    }
    for (std::vector<Range>& each : parts) each.resize(static_cast<size_t>(ranks));
    std::vector<size_t> order(members.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::vector<int64_t> room(members.size());
    std::ranges::transform(members, room.begin(), footprint);
    Sections made = make_sections(order, room, parts, ranks);
    WeightUnit& unit = units[number];
    WeightBucket bucket{.divided = divided, .total = made.total, .sections = std::move(made.sizes)};
    if (!unit.empty()) bucket.begin = unit.back().begin + unit.back().total;
    const auto rank = static_cast<size_t>(share.rank_of(divided));
    for (size_t i = 0; i < members.size(); ++i) bucket.members.push_back({members[i], made.offsets[i], parts[i][rank]});
    unit.push_back(std::move(bucket));
  }
  return units;
}

std::vector<size_t> gathered_bytes(const WeightUnit& unit) {
  std::vector<size_t> bytes;
  for (const WeightBucket& bucket : unit) {
    if (bucket.sections.size() > 1) bytes.push_back(static_cast<size_t>(bucket.total));
  }
  return bytes;
}

std::vector<int> gathered_units(const spec::ModelSpec& model, std::span<const int> needed, bool kept) {
  const auto units = static_cast<size_t>(model.num_layers()) + 2;
  std::array<int, 4> places{};
  places.fill(-1);
  std::vector<int> gathered;
  for (int step = kept ? 0 : 1; step < 2; ++step) {  // the first fills the places
    gathered.clear();
    for (const int unit : needed) {
      int& place = places.at(place_number(unit, units, model.tied_head));
      if (std::exchange(place, unit) != unit) gathered.push_back(unit);
    }
  }
  return gathered;
}

ShardedWeightBytes sharded_weight_bytes(const spec::ModelSpec& model, std::span<const WeightUnit> units,
                                        const ShardSpec& share, bool staged) {
  ShardedWeightBytes bytes;
  size_t& own = share.offload_weights ? bytes.offloaded : bytes.own;
  for (const WeightUnit& unit : units) {
    for (const WeightBucket& bucket : unit)
      own += Arena::footprint(bucket.sections[static_cast<size_t>(share.rank_of(bucket.divided))]);
  }
  for (const PlaceSize& size : place_sizes(units, model.tied_head, share.offload_weights)) {
    bytes.gathered += Arena::footprint(static_cast<size_t>(size.memory));
    for (const int64_t workspace : size.workspaces) {
      if (staged) bytes.staging += static_cast<size_t>(workspace);
    }
  }
  return bytes;
}

ShardedWeights::ShardedWeights(Device& device, const spec::ModelSpec& model, std::vector<WeightUnit> units,
                               const ShardSpec& share, std::shared_ptr<comm::DeviceCommunicator> ranks,
                               std::shared_ptr<comm::DeviceCommunicator> expert_ranks)
    : device_(device),
      units_(std::move(units)),
      tied_(model.tied_head),
      share_(share),
      ranks_{std::move(ranks), std::move(expert_ranks)},
      offloaded_(share.offload_weights) {
  if (offloaded_ && device.host_visible())
    throw_error(ErrorKind::internal, "weights of {} offloaded to its own memory", device.name());
  const ShardedWeightBytes bytes = sharded_weight_bytes(model, units_, share, false);
  store_ = Arena(device, bytes.own, "weights");
  host_store_ = PinnedBuffer(device, bytes.offloaded);
  std::byte* next_on_host = host_store_.data();
  gathered_ = Arena(device, bytes.gathered, "gathered weights");
  const std::array<PlaceSize, 4> sizes = place_sizes(units_, tied_, offloaded_);
  for (size_t i = 0; i < places_.size(); ++i) {
    places_[i].memory = static_cast<std::byte*>(gathered_.allocate_bytes(static_cast<size_t>(sizes[i].memory)));
    for (size_t kind = 0; kind < ranks_.size(); ++kind) {
      const auto size = static_cast<size_t>(sizes[i].workspaces.at(kind));
      if (size > 0 && ranks_.at(kind)) places_[i].workspaces.at(kind) = ranks_.at(kind)->make_workspace(size);
    }
    places_[i].used = device.make_event();
    places_[i].uploaded = device.make_event();
  }
  const size_t parameters = spec::parameters(model).size();
  own_.resize(parameters);
  unit_of_.assign(parameters, -1);
  always_there_.assign(parameters, false);
  weights_.parameters.resize(parameters);
  sections_.resize(units_.size());
  for (size_t u = 0; u < units_.size(); ++u) {
    const Place& place = place_of(static_cast<int>(u));
    for (const WeightBucket& bucket : units_[u]) {
      const auto& among = ranks_.at(bucket.divided ? 1 : 0);
      const auto num_ranks = among ? static_cast<size_t>(among->size()) : size_t{1};
      const size_t rank = rank_in(bucket);
      if (num_ranks != bucket.sections.size() || (among && static_cast<size_t>(among->rank()) != rank)) {
        throw_error(ErrorKind::internal, "weights of rank {} of {} are gathered by rank {} of {}", rank,
                    bucket.sections.size(), among ? among->rank() : 0, num_ranks);
      }
      const size_t size = bucket.sections[rank], start = section_start(bucket);
      std::byte* section = next_on_host;
      if (offloaded_) {
        next_on_host += Arena::footprint(size);
      } else {
        section = static_cast<std::byte*>(store_.allocate_bytes(size));
      }
      sections_[u].push_back(section);
      std::byte* memory = is_gathered(bucket) ? place.memory + bucket.begin : section;
      for (const WeightBucket::Member& member : bucket.members) {
        const size_t number = member.form.number;
        unit_of_[number] = static_cast<int>(u);
        always_there_[number] = !is_gathered(bucket);
        weights_.parameters[number] = member.form.at(memory + member.offset, device);
        own_[number] = {member.own, section};
        if (member.own.count() > 0) own_[number].data += static_cast<size_t>(member.offset + member.own.begin) - start;
      }
    }
  }
}

ShardedWeights::Place& ShardedWeights::place_of(int unit) { return places_[place_number(unit, units_.size(), tied_)]; }

Tensor ShardedWeights::own(size_t number, DType type) const {
  if (offloaded_) throw_error(ErrorKind::internal, "offloaded weights have no tensors");
  const auto& [bytes, data] = own_[number];
  return {data, type, Shape{bytes.count() / static_cast<int64_t>(size_of(type))}, &device_};
}

bool ShardedWeights::is_there(size_t number) const {
  const int unit = unit_of_[number];
  const auto holds_it = [&](const Place& place) { return place.unit == unit && !place.pending; };
  return always_there_[number] || (unit >= 0 && std::ranges::any_of(places_, holds_it));
}

void ShardedWeights::begin_pass(std::vector<int> units) {
  if (next_ != pass_.size()) {
    throw_error(ErrorKind::internal, "a pass over weights begins after {} of {} units of the one before", next_,
                pass_.size());
  }
  pass_ = std::move(units);
  next_ = 0;
}

size_t ShardedWeights::section_start(const WeightBucket& bucket) const {
  const auto sections = bucket.sections.begin();
  return std::accumulate(sections, sections + static_cast<int64_t>(rank_in(bucket)), size_t{0});
}

// After what has computed with the place's memory, while later work computes.
void ShardedWeights::upload(Place& place, int unit) {
  const WeightUnit& buckets = units_[static_cast<size_t>(unit)];
  place.used->record(Stream::compute);
  place.used->wait_on(Stream::copy);
  for (size_t b = 0; b < buckets.size(); ++b) {
    device_.copy_from_host_async(Stream::copy, place.memory + buckets[b].begin + section_start(buckets[b]),
                                 sections_[static_cast<size_t>(unit)][b], buckets[b].sections[rank_in(buckets[b])]);
  }
  place.uploaded->record(Stream::copy);
}

void ShardedWeights::begin_gather(int unit) {
  Place& place = place_of(unit);
  if (place.unit == unit) return;
  place.unit = unit;
  if (local_only_) return;
  place.pending = true;
  if (log_ != nullptr) log_->begin(Action::gather, unit);
  if (offloaded_) upload(place, unit);
  const WeightUnit& buckets = units_[static_cast<size_t>(unit)];
  for (size_t b = 0; b < buckets.size(); ++b) {
    const WeightBucket& bucket = buckets[b];
    if (bucket.sections.size() == 1) continue;
    const size_t kind = bucket.divided ? 1 : 0;
    std::byte* all = place.memory + bucket.begin;
    const std::byte* own = offloaded_ ? all + section_start(bucket) : sections_[static_cast<size_t>(unit)][b];
    place.operations.at(kind) = ranks_.at(kind)->all_gather(place.workspaces.at(kind), all, own, bucket.sections,
                                                            offloaded_ ? Stream::copy : Stream::compute);
    if (traffic_ != nullptr) traffic_->add({spec::Axis::dp, spec::Collective::all_gather}, bucket.total);
  }
}

void ShardedWeights::need(int unit) {
  if (next_ >= pass_.size() || pass_[next_] != unit) {
    throw_error(ErrorKind::internal, "the weights of unit {} are needed, and those of {} come next", unit,
                next_ < pass_.size() ? pass_[next_] : -1);
  }
  ++next_;
  begin_gather(unit);
  Place& place = place_of(unit);
  if (std::exchange(place.pending, false)) {
    if (offloaded_) place.uploaded->wait_on(Stream::compute);
    for (comm::DeviceCommunicator::PendingOperation& operation : place.operations) {
      if (operation) std::exchange(operation, nullptr)->wait();
    }
    if (log_ != nullptr) log_->end(Action::gather, unit);
  }
  if (next_ < pass_.size() && &place_of(pass_[next_]) != &place) begin_gather(pass_[next_]);
}

void ShardedWeights::changed() {
  for (Place& place : places_) place.unit = -1;
}

void ShardedWeights::set_local_only(bool local_only) {
  local_only_ = local_only;
  changed();
}

void ShardedWeights::abandon() {
  for (Place& place : places_) {
    for (comm::DeviceCommunicator::PendingOperation& operation : place.operations) operation.reset();
    place.pending = false;
  }
  pass_.clear();
  next_ = 0;
  changed();
}

}  // namespace ingot::train
