#include "runtime/collectives.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/machine.h"
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
  // Simulated devices of one name are different ones.
  const std::string place =
      fmt::format("{} of {}{}", device.name(), host_name(),
                  device.kind() == DeviceKind::sim ? fmt::format(", rank {}", ranks.rank()) : std::string());
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

void require_numbers(const comm::DeviceCommunicator& ranks, const char* what, const std::vector<int64_t>& found,
                     int64_t first, int64_t last) {
  if (found.front() == first && found.back() == last) return;
  throw_error(ErrorKind::unavailable, "{} on rank {}: {} gives {} and {} instead of {} and {}", ranks.name(),
              ranks.rank(), what, found.front(), found.back(), first, last);
}

// A sum of each rank's number, counted from 1, and a gathering of these numbers.
void try_out(comm::DeviceCommunicator& ranks, Device& device) {
  const int64_t own = ranks.rank() + 1, size = ranks.size();
  const size_t count = std::max<size_t>(1, tried_numbers / static_cast<size_t>(size));
  std::vector<int64_t> numbers(count * static_cast<size_t>(size), own);
  const Buffer memory(device, numbers.size() * sizeof(int64_t));
  comm::DeviceCommunicator::Workspace workspace = ranks.make_workspace(memory.bytes());
  device.copy_from_host(memory.data(), numbers.data(), memory.bytes());
  const std::vector<size_t> bytes(static_cast<size_t>(size), count * sizeof(int64_t));
  const auto* section = static_cast<const std::byte*>(memory.data()) + static_cast<size_t>(ranks.rank()) * bytes[0];
  ranks.all_gather(workspace, memory.data(), section, bytes)->wait();
  device.copy_to_host(numbers.data(), memory.data(), memory.bytes());
  require_numbers(ranks, "all_gather", numbers, 1, size);
  numbers.assign(numbers.size(), own);
  device.copy_from_host(memory.data(), numbers.data(), memory.bytes());
  ranks.all_reduce(workspace, memory.data(), numbers.size(), comm::Number::i64, comm::ReduceOp::sum)->wait();
  device.copy_to_host(numbers.data(), memory.data(), memory.bytes());
  require_numbers(ranks, "all_reduce", numbers, size * (size + 1) / 2, size * (size + 1) / 2);
}

}  // namespace

DeviceCollectives::DeviceCollectives(const CollectivesChoice& choice, Device& device, comm::Grid grid,
                                     bool gathers_weights, double timeout_s)
    : grid_(std::move(grid)), watch_(device) {
  if (choice.library == nullptr) return;
  auto& gpu = dynamic_cast<gpu::GpuDevice&>(device);
  const auto make = [&](const comm::Group& ranks, const char* name, Stream stream) {
    return gpu::make_nccl_communicator(choice.library, gpu, ranks,
                                       {.group = name, .stream = stream, .timeout_s = timeout_s});
  };
  comm::Grid::OnDevice& made = grid_.on_device;
  if (grid_.dp.size() > 1) made.dp = make(grid_.dp, "dp", Stream::reduce);
  if (grid_.dp.size() > 1 && gathers_weights) made.weights = make(grid_.weights, "weights", Stream::gather);
  if (grid_.tp.size() > 1) made.tp = make(grid_.tp, "tp", Stream::compute);
  device.set_wait_check([&made](double waited_s) {
    for (const auto& ranks : {made.dp, made.weights, made.tp}) {
      if (ranks) ranks->check(waited_s);
    }
  });
  for (const auto& ranks : {made.dp, made.weights, made.tp}) {
    if (ranks) try_out(*ranks, device);
  }
}

}  // namespace ingot::runtime
