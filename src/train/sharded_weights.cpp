#include "train/sharded_weights.h"

#include <algorithm>
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

// The forms of each unit, in the order of the table.
std::vector<std::vector<ParameterForm>> by_unit(const spec::ModelSpec& model, std::span<const ParameterForm> forms) {
  const std::vector<spec::ParamSpec> table = spec::parameters(model);
  const auto blocks = static_cast<size_t>(model.num_layers());
  std::vector<std::vector<ParameterForm>> units(blocks + 2);
  for (const ParameterForm& form : forms) {
    const spec::ParamSpec& p = table[form.number];
    units[p.layer >= 0 ? static_cast<size_t>(1 + p.layer) : p.after_blocks ? blocks + 1 : 0].push_back(form);
  }
  return units;
}

// Two places outside the blocks, of which a tied embedding, which is used at both ends, has one for itself; then two
// for the blocks, alternately.
size_t place_number(int unit, size_t units, bool tied) {
  if (unit == 0) return 0;
  if (unit + 1 == static_cast<int>(units)) return tied ? 1 : 0;
  return 2 + static_cast<size_t>(unit) % 2;
}

std::array<int64_t, 4> place_sizes(std::span<const WeightUnit> units, bool tied) {
  std::array<int64_t, 4> sizes{};
  for (size_t u = 0; u < units.size(); ++u) {
    int64_t& size = sizes[place_number(static_cast<int>(u), units.size(), tied)];
    size = std::max(size, units[u].total);
  }
  return sizes;
}

}  // namespace

std::vector<WeightUnit> weight_units(const spec::ModelSpec& model, std::span<const ParameterForm> forms,
                                     std::span<const DividedUnit> trained, const ShardSpec& share) {
  std::vector<WeightUnit> units;
  std::vector<std::vector<ParameterForm>> all = by_unit(model, forms);
  if (!trained.empty() && trained.size() != all.size())
    throw_error(ErrorKind::internal, "{} units of weights, and {} of gradients", all.size(), trained.size());
  for (size_t u = 0; u < all.size(); ++u) {
    std::vector<ParameterForm>& members = all[u];
    std::vector<std::vector<Range>> parts;
    if (trained.empty()) {
      std::vector<int64_t> bytes;
      for (const ParameterForm& form : members) bytes.push_back(static_cast<int64_t>(form.bytes()));
      parts = divide(bytes, share.ranks);
    } else {
      std::vector<ParameterForm> ordered;
      for (const DividedParameter& each : trained[u]) {
        const auto form = std::ranges::find(members, each.whole, &ParameterForm::number);
        if (form == members.end())
          throw_error(ErrorKind::internal, "parameter {} is not in unit {} of the weights", each.whole, u);
        parts.push_back(in_bytes(each.parts, *form));
        ordered.push_back(*form);
      }
      members = std::move(ordered);
    }
    for (std::vector<Range>& each : parts) each.resize(static_cast<size_t>(share.ranks));
    std::vector<size_t> order(members.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::vector<int64_t> room(members.size());
    std::ranges::transform(members, room.begin(), footprint);
    Sections made = make_sections(order, room, parts, share.ranks);
    WeightUnit& unit = units.emplace_back();
    unit.total = made.total;
    unit.sections = std::move(made.sizes);
    for (size_t i = 0; i < members.size(); ++i)
      unit.members.push_back({members[i], made.offsets[i], parts[i][static_cast<size_t>(share.rank)]});
  }
  return units;
}

std::vector<int> gathered_units(const spec::ModelSpec& model, std::span<const int> pass, int64_t passes, bool kept) {
  const auto units = static_cast<size_t>(model.num_layers()) + 2;
  std::array<int, 4> places{};
  places.fill(-1);
  std::vector<int> gathered;
  for (int step = kept ? 0 : 1; step < 2; ++step) {  // the first fills the places
    gathered.clear();
    for (int64_t i = 0; i < passes; ++i) {
      for (const int unit : pass) {
        int& place = places.at(place_number(unit, units, model.tied_head));
        if (std::exchange(place, unit) != unit) gathered.push_back(unit);
      }
    }
  }
  return gathered;
}

ShardedWeightBytes sharded_weight_bytes(const spec::ModelSpec& model, std::span<const WeightUnit> units,
                                        const ShardSpec& share, bool staged) {
  ShardedWeightBytes bytes;
  size_t& own = share.offload_weights ? bytes.offloaded : bytes.own;
  for (const WeightUnit& unit : units) own += Arena::footprint(unit.sections[static_cast<size_t>(share.rank)]);
  for (const int64_t size : place_sizes(units, model.tied_head))
    bytes.gathered += Arena::footprint(static_cast<size_t>(size));
  if (staged && share.ranks > 1) bytes.staging = bytes.gathered;
  return bytes;
}

ShardedWeights::ShardedWeights(Device& device, const spec::ModelSpec& model, std::vector<WeightUnit> units,
                               const ShardSpec& share, std::shared_ptr<comm::DeviceCommunicator> ranks)
    : device_(device),
      units_(std::move(units)),
      tied_(model.tied_head),
      ranks_(std::move(ranks)),
      offloaded_(share.offload_weights) {
  if (offloaded_ && device.host_visible())
    throw_error(ErrorKind::internal, "weights of {} offloaded to its own memory", device.name());
  const auto rank = static_cast<size_t>(ranks_->rank());
  const ShardedWeightBytes bytes = sharded_weight_bytes(model, units_, share, ranks_->staging_bytes(1) > 0);
  store_ = Arena(device, bytes.own, "weights");
  host_store_ = PinnedBuffer(device, bytes.offloaded);
  std::byte* next_on_host = host_store_.data();
  gathered_ = Arena(device, bytes.gathered, "gathered weights");
  const std::array<int64_t, 4> sizes = place_sizes(units_, tied_);
  for (size_t i = 0; i < places_.size(); ++i) {
    const auto size = static_cast<size_t>(sizes[i]);
    places_[i].memory = static_cast<std::byte*>(gathered_.allocate_bytes(size));
    if (ranks_->size() > 1) places_[i].workspace = ranks_->make_workspace(size);
    places_[i].used = device.make_event();
    places_[i].uploaded = device.make_event();
  }
  const size_t parameters = spec::parameters(model).size();
  own_.resize(parameters);
  unit_of_.assign(parameters, -1);
  weights_.parameters.resize(parameters);
  for (size_t u = 0; u < units_.size(); ++u) {
    const WeightUnit& unit = units_[u];
    const size_t start = section_start(static_cast<int>(u));
    std::byte* section = next_on_host;
    if (offloaded_) {
      next_on_host += Arena::footprint(unit.sections[rank]);
    } else {
      section = static_cast<std::byte*>(store_.allocate_bytes(unit.sections[rank]));
    }
    sections_.push_back(section);
    const Place& place = place_of(static_cast<int>(u));
    for (const WeightUnit::Member& member : unit.members) {
      const size_t number = member.form.number;
      unit_of_[number] = static_cast<int>(u);
      weights_.parameters[number] = member.form.at(place.memory + member.offset, device);
      own_[number] = {member.own, section};
      if (member.own.count() > 0) own_[number].data += static_cast<size_t>(member.offset + member.own.begin) - start;
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
  return unit >= 0 &&
         std::ranges::any_of(places_, [&](const Place& place) { return place.unit == unit && !place.pending; });
}

void ShardedWeights::begin_pass(std::vector<int> units) {
  pass_ = std::move(units);
  next_ = 0;
}

size_t ShardedWeights::section_start(int unit) const {
  const auto sections = units_[static_cast<size_t>(unit)].sections.begin();
  return std::accumulate(sections, sections + ranks_->rank(), size_t{0});
}

void ShardedWeights::begin_gather(int unit) {
  Place& place = place_of(unit);
  if (place.unit == unit) return;
  place.unit = unit;
  if (local_only_) return;
  const WeightUnit& gathered = units_[static_cast<size_t>(unit)];
  const std::byte* section = sections_[static_cast<size_t>(unit)];
  place.pending = true;
  if (log_ != nullptr) log_->begin(Action::gather, unit);
  Stream after = Stream::compute;
  if (offloaded_) {
    // After what has computed with the place's memory, while later work computes.
    after = Stream::copy;
    std::byte* uploaded = place.memory + section_start(unit);
    place.used->record(Stream::compute);
    place.used->wait_on(after);
    device_.copy_from_host_async(after, uploaded, section, gathered.sections[static_cast<size_t>(ranks_->rank())]);
    place.uploaded->record(after);
    section = uploaded;
  }
  if (ranks_->size() == 1) return;
  place.operation = ranks_->all_gather(place.workspace, place.memory, section, gathered.sections, after);
  if (traffic_ != nullptr)
    traffic_->add({spec::Axis::dp, spec::Collective::all_gather}, static_cast<int64_t>(gathered.exchanged()));
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
    if (ranks_->size() > 1) {
      std::exchange(place.operation, nullptr)->wait();
    } else {
      place.uploaded->wait_on(Stream::compute);
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
    place.operation.reset();
    place.pending = false;
  }
  changed();
}

}  // namespace ingot::train
