#include "nn/transfer.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/half.h"
#include "ops/columns.h"
#include "ops/elementwise.h"
#include "ops/sum_parts.h"

namespace ingot::nn {

namespace {

// Elements that are summed at a time, so that the host memory for them does not grow with the batch.
constexpr int64_t at_once = int64_t{1} << 18;

template <class Widen, class Narrow>
void sum_halves(Device& device, const comm::Group& group, const Tensor& x, Widen widen, Narrow narrow) {
  std::vector<uint16_t> halves(static_cast<size_t>(x.elements()));
  device.copy_to_host(halves.data(), x.data, x.bytes());
  std::vector<float> sums(halves.size());
  for (size_t i = 0; i < halves.size(); ++i) sums[i] = widen(halves[i]);
  group.all_reduce(std::span(sums), comm::ReduceOp::sum);
  for (size_t i = 0; i < halves.size(); ++i) halves[i] = narrow(sums[i]);
  device.copy_from_host(x.data, halves.data(), x.bytes());
}

void sum_floats(Device& device, const comm::Group& group, const Tensor& x) {
  std::vector<float> sums(static_cast<size_t>(x.elements()));
  device.copy_to_host(sums.data(), x.data, x.bytes());
  group.all_reduce(std::span(sums), comm::ReduceOp::sum);
  device.copy_from_host(x.data, sums.data(), x.bytes());
}

// Elements of x [n] by rank: equal sections that begin at multiples of 16 bytes, the last ones shorter or empty.
std::vector<size_t> sections_of(int64_t n, int ranks) {
  constexpr int64_t multiple = 8;
  const int64_t most = ((n + ranks - 1) / ranks + multiple - 1) / multiple * multiple;
  std::vector<size_t> sections;
  for (int64_t rank = 0; rank < ranks; ++rank)
    sections.push_back(static_cast<size_t>(std::clamp<int64_t>(n - rank * most, 0, most)));
  return sections;
}

// y [N] = the sum of parts [P, N], in a binary tree; overwrites parts. P is a power of two, at least 2.
void add_tree_of(ops::Context& context, const Tensor& y, const Tensor& parts) {
  const auto part = [&](int64_t i) { return parts.slice(i, i + 1).reshape(y.shape); };
  const int64_t count = parts.shape[0];
  for (int64_t distance = 1; distance < count; distance *= 2) {
    for (int64_t i = 0; i < count; i += 2 * distance) {
      const bool last = 2 * distance == count;
      ops::add(context, last ? y : part(i), part(i), part(i + distance));
    }
  }
}

// Bytes of a piece of DeviceSum: so large that a library's latency counts little.
constexpr size_t piece_bytes = size_t{16} << 20;

}  // namespace

// The parts of a section are at most 8 elements a rank more than a piece.
size_t DeviceSum::bytes() { return Arena::footprint(piece_bytes + 1024 * 8 * sizeof(float)); }

DeviceSum::DeviceSum(std::shared_ptr<comm::DeviceCommunicator> ranks, Arena& memory)
    : ranks_(std::move(ranks)),
      parts_(static_cast<std::byte*>(memory.allocate_bytes(bytes()))),
      workspace_(ranks_->make_workspace(piece_bytes)) {}

void DeviceSum::sum(ops::Context& context, const Tensor& x) { sum_pieces(context, x, Order::ranks); }

void DeviceSum::add_tree(ops::Context& context, const Tensor& x) { sum_pieces(context, x, Order::tree); }

void DeviceSum::sum_pieces(ops::Context& context, const Tensor& x, Order order) {
  const auto at_most = static_cast<int64_t>(piece_bytes / size_of(x.dtype));
  for (int64_t begin = 0; begin < x.elements(); begin += at_most)
    sum_piece(context, x.slice(begin, std::min(x.elements(), begin + at_most)), order);
}

void DeviceSum::sum_piece(ops::Context& context, const Tensor& x, Order order) {
  const auto ranks = static_cast<size_t>(ranks_->size()), rank = static_cast<size_t>(ranks_->rank());
  std::vector<size_t> sections = sections_of(x.elements(), ranks_->size());
  const auto begin =
      static_cast<int64_t>(std::accumulate(sections.begin(), sections.begin() + ranks_->rank(), size_t{0}));
  const auto count = static_cast<int64_t>(sections[rank]);
  for (size_t& section : sections) section *= size_of(x.dtype);
  const std::vector<size_t> received(ranks, sections[rank]);
  ranks_->all_to_all(workspace_, parts_, received, x.data, sections)->wait();
  const Tensor own = x.slice(begin, begin + count);
  const Tensor parts{parts_, x.dtype, Shape{static_cast<int64_t>(ranks), count}, x.device};
  if (count > 0 && order == Order::ranks) ops::sum_parts(context, own, parts, false);
  if (count > 0 && order == Order::tree) add_tree_of(context, own, parts);
  ranks_->all_gather(workspace_, x.data, own.data, sections)->wait();
}

void DeviceSum::sum_neighbours(ops::Context& context, const Tensor& x, int count) {
  const int64_t ranks = ranks_->size(), first = ranks_->rank() / count * count;
  const int64_t at_most = static_cast<int64_t>(piece_bytes / size_of(x.dtype)) / ranks;
  for (int64_t begin = 0; begin < x.elements(); begin += at_most) {
    const Tensor own = x.slice(begin, std::min(x.elements(), begin + at_most));
    const Tensor parts{parts_, x.dtype, Shape{ranks, own.elements()}, x.device};
    gather(parts, own, std::vector<size_t>(static_cast<size_t>(ranks), own.bytes()));
    ops::sum_parts(context, own, parts.slice(first, first + count), false);
  }
}

void DeviceSum::gather(const Tensor& all, const Tensor& own, std::span<const size_t> bytes) {
  ranks_->all_gather(workspace_, all.data, own.data, bytes)->wait();
}

void sum_over_ranks(Pass& pass, const Tensor& x) {
  const comm::Group& group = pass.tp.group;
  if (group.size() == 1) return;
  pass.tp.count(spec::Collective::all_reduce, x.bytes());
  Device& device = pass.ops.device;
  const Tensor flat = x.reshape(Shape{x.elements()});
  if (pass.tp.sum != nullptr) return pass.tp.sum->sum(pass.ops, flat);
  for (int64_t begin = 0; begin < flat.elements(); begin += at_once) {
    const Tensor part = flat.slice(begin, std::min(flat.elements(), begin + at_once));
    switch (x.dtype) {
      case DType::bf16: sum_halves(device, group, part, bf16_to_float, float_to_bf16); break;
      case DType::f16: sum_halves(device, group, part, f16_to_float, float_to_f16); break;
      case DType::f32: sum_floats(device, group, part); break;
      default: throw_error(ErrorKind::internal, "{} cannot be summed over ranks", x.text());
    }
  }
}

void sum_neighbours(Device& device, const comm::Group& group, const Tensor& x, int count) {
  const auto neighbours = static_cast<size_t>(count);
  const size_t first = static_cast<size_t>(group.rank()) / neighbours * neighbours, last = first + neighbours;
  for (int64_t begin = 0; begin < x.elements(); begin += at_once) {
    const Tensor part = x.slice(begin, std::min(x.elements(), begin + at_once));
    std::vector<float> own(static_cast<size_t>(part.elements()));
    device.copy_to_host(own.data(), part.data, part.bytes());
    const std::vector<std::vector<float>> all = group.gather(std::span<const float>(own));
    own = all[first];
    for (size_t rank = first + 1; rank < last; ++rank)
      std::transform(own.begin(), own.end(), all[rank].begin(), own.begin(), std::plus<>());
    device.copy_from_host(part.data, own.data(), part.bytes());
  }
}

// Partners exchange what they have. Both then have the same sum, since a + b = b + a.
void add_tree_over_ranks(Pass& pass, const Tensor& x) {
  const comm::Group& group = pass.tp.group;
  if (group.size() == 1) return;
  pass.tp.count(spec::Collective::all_reduce, x.bytes());
  Device& device = pass.ops.device;
  const Tensor flat = x.reshape(Shape{x.elements()});
  if (pass.tp.sum != nullptr) return pass.tp.sum->add_tree(pass.ops, flat);
  for (int64_t begin = 0; begin < flat.elements(); begin += at_once) {
    const Tensor part = flat.slice(begin, std::min(flat.elements(), begin + at_once));
    std::vector<float> sums(static_cast<size_t>(part.elements())), received(sums.size());
    device.copy_to_host(sums.data(), part.data, part.bytes());
    for (int distance = 1; distance < group.size(); distance *= 2) {
      const int partner = group.rank() ^ distance;
      comm::Operation sent = group.begin_send(std::as_bytes(std::span(sums)), partner);
      group.begin_receive(std::as_writable_bytes(std::span(received)), partner).wait();
      sent.wait();
      for (size_t i = 0; i < sums.size(); ++i) sums[i] += received[i];
    }
    device.copy_from_host(part.data, sums.data(), part.bytes());
  }
}

void gather_columns_over_ranks(Pass& pass, const Tensor& out, const Tensor& part, std::span<const int64_t> columns) {
  Device& device = pass.ops.device;
  const int64_t width = out.shape[1];
  const auto rows_at_once = std::max<int64_t>(1, static_cast<int64_t>(piece_bytes / size_of(out.dtype)) / width);
  for (int64_t first = 0; first < out.shape[0]; first += rows_at_once) {
    const Arena::Scope scope(pass.ops.scratch);
    const int64_t end = std::min(out.shape[0], first + rows_at_once), rows = end - first;
    const Tensor own = part.slice(first, end), all = pass.ops.scratch.allocate(out.dtype, Shape{rows * width});
    std::vector<size_t> bytes;
    for (const int64_t count : columns) bytes.push_back(static_cast<size_t>(rows * count) * size_of(out.dtype));
    if (pass.tp.sum != nullptr) {
      pass.tp.sum->gather(all, own, bytes);
    } else {
      std::vector<std::byte> sent(own.bytes()), gathered(all.bytes());
      device.copy_to_host(sent.data(), own.data, sent.size());
      pass.tp.group.begin_all_gather(gathered, sent, bytes).wait();
      device.copy_from_host(all.data, gathered.data(), gathered.size());
    }
    int64_t begin = 0;
    for (const int64_t count : columns) {
      const Tensor from = all.slice(rows * begin, rows * (begin + count)).reshape(Shape{rows, count});
      ops::scatter_columns(pass.ops, out.slice(first, end), from, {.width = count, .offset = begin});
      begin += count;
    }
  }
}

size_t gather_columns_bytes(int64_t rows, int64_t width) {
  const auto most = static_cast<int64_t>(piece_bytes / sizeof(float));
  return Arena::footprint(DType::f32, Shape{std::min(rows * width, std::max(most, width))});
}

void send_tensor(Device& device, const comm::Group& group, const Tensor& x, int to) {
  std::vector<std::byte> bytes(x.bytes());
  device.copy_to_host(bytes.data(), x.data, bytes.size());
  group.begin_send(bytes, to).wait();
}

void receive_tensor(Device& device, const comm::Group& group, const Tensor& x, int from) {
  std::vector<std::byte> bytes(x.bytes());
  group.begin_receive(bytes, from).wait();
  device.copy_from_host(x.data, bytes.data(), bytes.size());
}

void broadcast_tensor(Device& device, const comm::Group& group, const Tensor& x, int root) {
  if (group.size() == 1) return;
  std::vector<std::byte> bytes(x.bytes());
  if (group.rank() == root) device.copy_to_host(bytes.data(), x.data, bytes.size());
  group.begin_broadcast(bytes, root).wait();
  if (group.rank() != root) device.copy_from_host(x.data, bytes.data(), bytes.size());
}

}  // namespace ingot::nn
