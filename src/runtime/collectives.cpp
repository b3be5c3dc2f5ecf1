#include "runtime/collectives.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "base/environment.h"
#include "base/error.h"
#include "base/machine.h"
#include "base/number.h"
#include "tensor/tensor.h"

namespace ingot::runtime {

CollectivesChoice choose_collectives(const Device& device, const comm::Group& ranks, bool simulated) {
  CollectivesChoice choice;
  std::string reason;
  if (device.kind() == DeviceKind::cpu) {
    reason = "CPUs have no library for it";
  } else if (device.kind() == DeviceKind::sim && !simulated) {
    reason = "simulated devices have no library for it";
  } else {
    try {
      choice.library = gpu::open_collective_library(device.kind());
      choice.text = gpu::name_of(*choice.library);
    } catch (const Error& error) {
      reason = error.message();
    }
  }
  const std::vector<std::string> names = ranks.gather(choice.text), reasons = ranks.gather(reason);
  const auto* gpu = dynamic_cast<const gpu::GpuDevice*>(&device);
  const std::string address = gpu != nullptr ? gpu->address() : std::string();
  const std::string place = fmt::format("{} of {}", address.empty() ? fmt::format("rank {}", ranks.rank()) : address,
                                        host_name());  // simulated devices are different ones
  const std::vector<std::string> places = ranks.gather(place);
  for (size_t rank = 0; rank < names.size(); ++rank) {
    if (names[rank].empty()) return {nullptr, fmt::format("rank {}: {}", rank, reasons[rank])};
    if (names[rank] != names[0])
      return {nullptr, fmt::format("rank 0 has {}, and rank {} {}", names[0], rank, names[rank])};
    const auto first = std::ranges::find(places, places[rank]) - places.begin();
    if (first < static_cast<int64_t>(rank))
      return {nullptr, fmt::format("ranks {} and {} share {}", first, rank, places[rank])};
  }
  return choice;
}

namespace {

// Of all ranks together: so many that a library uses all its channels.
constexpr size_t tried_numbers = size_t{1} << 21;

void require_numbers(const comm::DeviceCommunicator& ranks, const char* what, std::span<const int64_t> found,
                     int64_t expected) {
  const auto wrong = std::ranges::find_if(found, [&](int64_t each) { return each != expected; });
  if (wrong == found.end()) return;
  throw_error(ErrorKind::unavailable, "{} on rank {}: {} gives {} instead of {}", ranks.name(), ranks.rank(), what,
              *wrong, expected);
}

// Every operation, of each rank's number, counted from 1.
void try_out(comm::DeviceCommunicator& ranks, Device& device) {
  const auto size = static_cast<size_t>(ranks.size()), rank = static_cast<size_t>(ranks.rank());
  const int64_t own = ranks.rank() + 1, sum = ranks.size() * (int64_t{ranks.size()} + 1) / 2;
  const size_t count = std::max<size_t>(1, tried_numbers / size);
  std::vector<int64_t> numbers(count * size);
  const Buffer memory(device, numbers.size() * sizeof(int64_t)), received(device, memory.bytes());
  comm::DeviceCommunicator::Workspace workspace = ranks.make_workspace(2 * memory.bytes());
  const std::vector<size_t> counts(size, count), bytes(size, count * sizeof(int64_t));
  const auto set = [&] {
    numbers.assign(numbers.size(), own);
    device.copy_from_host(memory.data(), numbers.data(), memory.bytes());
  };
  const auto section = [&](size_t of) { return std::span<const int64_t>(numbers).subspan(of * count, count); };
  const auto require_each = [&](const char* what, const Buffer& result) {
    device.copy_to_host(numbers.data(), result.data(), result.bytes());
    for (size_t from = 0; from < size; ++from)
      require_numbers(ranks, what, section(from), static_cast<int64_t>(from) + 1);
  };
  set();
  ranks.all_gather(workspace, memory.data(), static_cast<const std::byte*>(memory.data()) + rank * bytes[0], bytes)
      ->wait();
  require_each("all_gather", memory);
  set();
  ranks.all_to_all(workspace, received.data(), bytes, memory.data(), bytes)->wait();
  require_each("all_to_all", received);
  set();
  ranks.reduce_scatter(workspace, memory.data(), counts, comm::Number::i64, comm::ReduceOp::sum)->wait();
  device.copy_to_host(numbers.data(), memory.data(), memory.bytes());
  require_numbers(ranks, "reduce_scatter", section(rank), sum);
  set();
  ranks.all_reduce(workspace, memory.data(), numbers.size(), comm::Number::i64, comm::ReduceOp::sum)->wait();
  device.copy_to_host(numbers.data(), memory.data(), memory.bytes());
  require_numbers(ranks, "all_reduce", numbers, sum);
}

// Of a message, which has fewer channels.
constexpr size_t tried_in_message = size_t{1} << 18;

// A message of the sender's number, counted from 1.
void try_message(comm::DeviceCommunicator& ranks, Device& device, bool sends) {
  const int peer = 1 - ranks.rank(), sender = sends ? ranks.rank() : peer;
  std::vector<int64_t> numbers(tried_in_message, sends ? sender + 1 : 0);
  const Buffer memory(device, numbers.size() * sizeof(int64_t));
  device.copy_from_host(memory.data(), numbers.data(), memory.bytes());
  comm::DeviceCommunicator::Workspace workspace = ranks.make_workspace(memory.bytes());
  if (sends) {
    ranks.send(workspace, memory.data(), memory.bytes(), peer)->wait();
  } else {
    ranks.receive(workspace, memory.data(), memory.bytes(), peer)->wait();
  }
  device.copy_to_host(numbers.data(), memory.data(), memory.bytes());
  require_numbers(ranks, "a message", numbers, sender + 1);
}

// Thread blocks of a message's operation. It has them while it waits for the other stage, and a stage has four at a
// time beside its computations.
constexpr int message_blocks = 8;

}  // namespace

void require_hardware_queues(DeviceKind kind, const char* setting) {
  constexpr int needed = 4;  // to and from two stages
  if (kind != DeviceKind::hip || setting == nullptr || parse_int(setting).value_or(needed) >= needed) return;
  throw_hint(ErrorKind::usage, "unset it, or set parallel.collectives: host",
             "GPU_MAX_HW_QUEUES is {}; the messages of a pipeline need {}", setting, needed);
}

DeviceCollectives::DeviceCollectives(const CollectivesChoice& choice, Device& device, comm::Grid grid,
                                     const CollectivesUse& use, double timeout_s)
    : grid_(std::move(grid)), has_library_(choice.library != nullptr), watch_(device) {
  if (!has_library_) return;
  auto& gpu = dynamic_cast<gpu::GpuDevice&>(device);
  const auto make = [&](const comm::Group& ranks, const std::string& name, Stream stream) {
    return gpu::make_nccl_communicator(choice.library, gpu, ranks,
                                       {.group = name,
                                        .stream = stream,
                                        .max_blocks = carries_messages(stream) ? message_blocks : 0,
                                        .timeout_s = timeout_s});
  };
  comm::Grid::OnDevice& made = grid_.on_device;
  if (grid_.shard.size() > 1) made.shard = make(grid_.shard, "shard", Stream::reduce);
  if (grid_.ep.size() > 1 && grid_.expert_shard.size() > 1)
    made.expert_shard = make(grid_.expert_shard, "expert shard", Stream::reduce);
  if (grid_.replicas.size() > 1) made.replicas = make(grid_.replicas, "replicas", Stream::reduce);
  if (grid_.shard.size() > 1 && use.gathers_weights) made.weights = make(grid_.weights, "weights", Stream::gather);
  if (grid_.ep.size() > 1 && grid_.expert_weights.size() > 1 && use.gathers_weights)
    made.expert_weights = make(grid_.expert_weights, "expert weights", Stream::gather);
  if (grid_.cp.size() > 1) made.cp = make(grid_.cp, "cp", use.passes_keys ? Stream::gather : Stream::compute);
  if (grid_.ep.size() > 1) made.ep = make(grid_.ep, "ep", Stream::compute);
  if (grid_.tp.size() > 1) made.tp = make(grid_.tp, "tp", Stream::compute);
  if (grid_.pp.size() > 1 && use.sums_stages) made.pp = make(grid_.pp, "pp", Stream::compute);
  if (grid_.ends.size() > 1 && use.sums_ends) made.ends = make(grid_.ends, "ends of pp", Stream::reduce);
  device.set_wait_check([this](double waited_s) {
    try {
      for (const Made& link : links_) link->check(waited_s);
      for (comm::DeviceCommunicator* ranks : communicators()) ranks->check(waited_s);
    } catch (...) {
      end();  // all of them: the host waits for the operations of each
      throw;
    }
  });
  for (comm::DeviceCommunicator* ranks : communicators()) try_out(*ranks, device);
  if (grid_.pp.size() == 1 || !use.sends_messages) return;
  require_hardware_queues(device.kind(), environment("GPU_MAX_HW_QUEUES"));
  make_links(use.is_ring, device, make);
}

DeviceCollectives::~DeviceCollectives() {
  grid_.on_device.links.clear();
  while (!links_.empty()) links_.pop_back();  // the ends of communicators wait for each other: in one order everywhere
}

void DeviceCollectives::make_links(bool is_ring, Device& device,
                                   FunctionRef<Made(const comm::Group&, const std::string&, Stream)> make) {
  const comm::Group& stages = grid_.pp;
  const int size = stages.size(), own = stages.rank();
  const auto round = [&](int first, int second) {  // this rank is one of them, if both exist
    const bool takes_part = first >= 0 && second < size && (own == first || own == second), is_first = own == first;
    const comm::Group two =
        stages.split(takes_part ? std::min(first, second) : size + own, is_first ? 0 : 1, "neighbours of pp");
    if (!takes_part) return;
    comm::Grid::Link& link = grid_.on_device.links[is_first ? second : first];
    link.peer = is_first ? 1 : 0;
    const auto connect = [&](int sender, int receiver, Stream sends, Stream receives) {
      const bool is_sender = own == sender;
      const std::string name = fmt::format("messages of stage {} to {}", sender, receiver);
      links_.push_back(make(two, name, is_sender ? sends : receives));
      (is_sender ? link.send : link.receive) = links_.back();
      try_message(*links_.back(), device, is_sender);
    };
    connect(first, second, Stream::to_next, Stream::from_previous);
    connect(second, first, Stream::to_previous, Stream::from_next);
  };
  const int even = own - own % 2, odd = own - (own + 1) % 2;
  round(even, even + 1);
  round(odd, odd + 1);
  if (is_ring && size > 2) round(size - 1, 0);
}

std::vector<comm::DeviceCommunicator*> DeviceCollectives::communicators() const {
  std::vector<comm::DeviceCommunicator*> made;
  const comm::Grid::OnDevice& all = grid_.on_device;
  for (const auto& ranks : {all.shard, all.expert_shard, all.replicas, all.weights, all.expert_weights, all.cp, all.ep,
                            all.pp, all.tp, all.ends}) {
    if (ranks) made.push_back(ranks.get());
  }
  return made;
}

void DeviceCollectives::end() const noexcept {
  for (const Made& link : links_) link->end();
  for (comm::DeviceCommunicator* ranks : communicators()) ranks->end();
}

}  // namespace ingot::runtime
