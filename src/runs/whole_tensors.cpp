#include "runs/whole_tensors.h"

#include <cstring>

#include "base/error.h"

namespace ingot::runs {

namespace {

int64_t width_of(const Shape& whole) { return whole.rank() > 1 ? whole[1] : 1; }

// A description of a rank's part, as numbers: the tensor's number, its type and shape (a vector has 0 columns), the
// slice's columns, and its rows as pairs with their count before them.
void describe(std::vector<int64_t>& numbers, const HeldTensor& held) {
  const spec::Slice& slice = held.slice;
  numbers.insert(numbers.end(), {static_cast<int64_t>(held.number), static_cast<int64_t>(held.tensor.dtype),
                                 held.whole[0], held.whole.rank() > 1 ? held.whole[1] : 0, slice.columns.begin,
                                 slice.columns.end, std::ssize(slice.rows)});
  for (const spec::Range& rows : slice.rows) numbers.insert(numbers.end(), {rows.begin, rows.end});
}

}  // namespace

std::vector<HeldTensor> held_tensors(const spec::ModelSpec& model, std::span<const spec::ModelShard> shards,
                                     const WeightSet& weights) {
  const std::vector<spec::ParamSpec> table = spec::parameters(model);
  std::vector<HeldTensor> held;
  for (const spec::HeldParameter& p : spec::held_parameters(model, shards)) {
    const bool elsewhere = p.copy || (p.share != spec::TensorShare::cut && shards.front().tp_rank > 0);
    if (elsewhere) continue;
    const Parameter& weight = weights.parameters[p.whole];
    held.push_back(
        {p.whole, weight.matrix ? weight.matrix.tensor() : weight.vector, Shape(table[p.whole].shape), p.slice});
  }
  return held;
}

WholeTensors::WholeTensors(Device& device, std::vector<HeldTensor> held, const comm::Group& model)
    : device_(device), model_(model) {
  std::vector<int64_t> own;
  for (HeldTensor& each : held) {
    describe(own, each);
    held_.emplace(each.number, std::move(each));
  }
  const std::vector<std::vector<int64_t>> all = model.gather(std::span<const int64_t>(own));
  if (model.rank() > 0) return;
  for (size_t rank = 0; rank < all.size(); ++rank) {
    for (auto at = all[rank].begin(); at != all[rank].end();) {
      const auto number = static_cast<size_t>(*at++);
      Part part{.rank = static_cast<int>(rank), .dtype = static_cast<DType>(*at++)};
      const int64_t rows = *at++, columns = *at++;
      part.whole = columns > 0 ? Shape{rows, columns} : Shape{rows};
      part.slice.columns.begin = *at++;
      part.slice.columns.end = *at++;
      part.slice.rows.resize(static_cast<size_t>(*at++));
      for (spec::Range& range : part.slice.rows) {
        range.begin = *at++;
        range.end = *at++;
      }
      directory_[number].push_back(std::move(part));
    }
  }
}

// Collective: the number that rank 0 asks for; -1: no more.
int64_t WholeTensors::next(int64_t number) const {
  model_.begin_broadcast(std::as_writable_bytes(std::span(&number, 1)), 0).wait();
  return number;
}

Tensor WholeTensors::fetch(size_t number, Buffer& memory) {
  next(static_cast<int64_t>(number));
  const std::vector<Part>& parts = directory_[number];
  int64_t elements = 0;
  for (const Part& part : parts) elements += part.slice.elements();
  if (parts.empty() || elements != parts.front().whole.elements()) {
    throw_error(ErrorKind::internal, "the ranks have {} elements of tensor {}, not {}", elements, number,
                parts.empty() ? 0 : parts.front().whole.elements());
  }
  const auto [rank, dtype, whole, slice] = parts.front();
  if (parts.size() == 1 && rank == 0) return held_.at(number).tensor.reshape(whole);
  const size_t width = size_of(dtype);
  std::vector<std::byte> all(static_cast<size_t>(elements) * width), bytes;
  for (const Part& part : parts) {
    bytes.resize(static_cast<size_t>(part.slice.elements()) * width);
    if (part.rank > 0) {
      model_.begin_receive(bytes, part.rank).wait();
    } else {
      device_.copy_to_host(bytes.data(), held_.at(number).tensor.data, bytes.size());
    }
    spec::for_runs(part.slice, width_of(whole), [&](int64_t first, int64_t count, int64_t at) {
      std::memcpy(all.data() + static_cast<size_t>(first) * width, bytes.data() + static_cast<size_t>(at) * width,
                  static_cast<size_t>(count) * width);
    });
  }
  memory = {};  // before its successor is allocated
  memory = Buffer(device_, all.size());
  device_.copy_from_host(memory.data(), all.data(), all.size());
  return memory.view(dtype, whole);
}

void WholeTensors::end() { next(-1); }

void WholeTensors::serve() {
  for (int64_t number = next(-1); number >= 0; number = next(-1)) {
    const auto found = held_.find(static_cast<size_t>(number));
    if (found == held_.end()) continue;
    std::vector<std::byte> bytes(found->second.tensor.bytes());
    device_.copy_to_host(bytes.data(), found->second.tensor.data, bytes.size());
    model_.begin_send(bytes, 0).wait();
  }
}

}  // namespace ingot::runs
