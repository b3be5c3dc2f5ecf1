#include "runs/whole_tensors.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"

namespace ingot::runs {

namespace {

int64_t width_of(const Shape& whole) { return whole.rank() > 1 ? whole[1] : 1; }

// A description of a rank's part, as numbers: the tensor's number, its type and shape (a vector has 0 columns), the
// slice's columns, the elements, and the rows as pairs with their count before them.
void describe(std::vector<int64_t>& numbers, const HeldTensor& held) {
  const spec::Slice& slice = held.slice;
  numbers.insert(numbers.end(), {static_cast<int64_t>(held.number), static_cast<int64_t>(held.tensor.dtype),
                                 held.whole[0], held.whole.rank() > 1 ? held.whole[1] : 0, slice.columns.begin,
                                 slice.columns.end, held.elements.begin, held.elements.end, std::ssize(slice.rows)});
  for (const spec::Range& rows : slice.rows) numbers.insert(numbers.end(), {rows.begin, rows.end});
}

// Calls fn(begin, end) for consecutive pieces of a tensor's elements, so that a message takes at most 4 MiB.
template <class Fn>
void for_pieces(int64_t elements, size_t width, Fn fn) {
  const auto each = static_cast<int64_t>((size_t{4} << 20) / width);
  for (int64_t begin = 0; begin < elements; begin += each) fn(begin, std::min(elements, begin + each));
}

}  // namespace

std::vector<HeldTensor> held_tensors(const spec::ModelSpec& model, std::span<const spec::ModelShard> shards,
                                     const WeightSet& weights) {
  const std::vector<spec::ParamSpec> table = spec::parameters(model);
  std::vector<HeldTensor> held;
  for (const spec::HeldParameter& p : spec::held_parameters(model, shards)) {
    const int64_t counted = p.copy ? 0 : p.counted_elements(shards.front());
    if (counted == 0 || (shards.front().ep_rank > 0 && !p.divided)) continue;
    const Parameter& weight = weights.parameters[p.whole];
    const Tensor tensor = weight.matrix ? weight.matrix.tensor() : weight.vector;
    held.push_back({p.whole,
                    tensor.reshape(Shape{tensor.elements()}).slice(0, counted),
                    Shape(table[p.whole].shape),
                    p.slice,
                    {0, counted}});
  }
  return held;
}

std::vector<HeldTensor> held_tensors(const spec::ModelSpec& model, std::span<const spec::ModelShard> shards,
                                     const train::ShardedWeights& weights) {
  const std::vector<spec::ParamSpec> table = spec::parameters(model);
  std::vector<HeldTensor> held;
  for (const spec::HeldParameter& p : spec::held_parameters(model, shards)) {
    const Parameter& weight = weights.weights().parameters[p.whole];
    const DType type = weight.matrix ? weight.matrix.tensor().dtype : weight.vector.dtype;
    const spec::Range& bytes = weights.own()[p.whole].bytes;
    const auto width = static_cast<int64_t>(size_of(type));
    const spec::Range own{bytes.begin / width, bytes.end / width};
    const spec::Range counted = spec::common(own, {0, p.copy ? 0 : p.counted_elements(shards.front())});
    if (counted.count() == 0) continue;
    held.push_back({p.whole, weights.own(p.whole, type).slice(0, counted.end - own.begin), Shape(table[p.whole].shape),
                    p.slice, counted});
  }
  return held;
}

WholeTensors::WholeTensors(Device& device, std::vector<HeldTensor> held, const comm::Group& ranks)
    : device_(device), ranks_(ranks) {
  std::vector<int64_t> own;
  for (HeldTensor& each : held) {
    describe(own, each);
    held_.emplace(each.number, std::move(each));
  }
  const std::vector<std::vector<int64_t>> all = ranks.gather(std::span<const int64_t>(own));
  if (ranks.rank() > 0) return;
  for (size_t rank = 0; rank < all.size(); ++rank) {
    for (auto at = all[rank].begin(); at != all[rank].end();) {
      const auto number = static_cast<size_t>(*at++);
      Part part{.rank = static_cast<int>(rank), .dtype = static_cast<DType>(*at++)};
      const int64_t rows = *at++, columns = *at++;
      part.whole = columns > 0 ? Shape{rows, columns} : Shape{rows};
      part.slice.columns.begin = *at++;
      part.slice.columns.end = *at++;
      part.elements.begin = *at++;
      part.elements.end = *at++;
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
  ranks_.begin_broadcast(std::as_writable_bytes(std::span(&number, 1)), 0).wait();
  return number;
}

Tensor WholeTensors::fetch(size_t number, Buffer& memory) {
  next(static_cast<int64_t>(number));
  const std::vector<Part>& parts = directory_[number];
  int64_t elements = 0;
  for (const Part& part : parts) elements += part.elements.count();
  if (parts.empty() || elements != parts.front().whole.elements()) {
    throw_error(ErrorKind::internal, "the ranks have {} elements of tensor {}, not {}", elements, number,
                parts.empty() ? 0 : parts.front().whole.elements());
  }
  const auto [rank, dtype, whole, slice, own] = parts.front();
  if (parts.size() == 1 && rank == 0) return held_.at(number).tensor.reshape(whole);
  const size_t width = size_of(dtype);
  memory = {};  // before its successor is allocated
  memory = Buffer(device_, static_cast<size_t>(elements) * width);
  std::vector<std::byte> piece, staging(device_.host_visible() ? 0 : memory.bytes());
  std::byte* all = staging.empty() ? static_cast<std::byte*>(memory.data()) : staging.data();
  for (const Part& part : parts) {
    for_pieces(part.elements.count(), width, [&](int64_t begin, int64_t end) {
      piece.resize(static_cast<size_t>(end - begin) * width);
      if (part.rank > 0) {
        ranks_.begin_receive(piece, part.rank).wait();
      } else {
        const auto* from = static_cast<const std::byte*>(held_.at(number).tensor.data);
        device_.copy_to_host(piece.data(), from + static_cast<size_t>(begin) * width, piece.size());
      }
      const int64_t in_slice = part.elements.begin + begin;  // where the piece begins
      spec::for_runs(part.slice, width_of(whole), [&](int64_t first, int64_t count, int64_t at) {
        const int64_t from = std::max(at, in_slice), to = std::min(at + count, in_slice + end - begin);
        if (from >= to) return;
        std::memcpy(all + static_cast<size_t>(first + from - at) * width,
                    piece.data() + static_cast<size_t>(from - in_slice) * width,
                    static_cast<size_t>(to - from) * width);
      });
    });
  }
  if (!staging.empty()) device_.copy_from_host(memory.data(), staging.data(), staging.size());
  return memory.view(dtype, whole);
}

void WholeTensors::end() { next(-1); }

void WholeTensors::serve() {
  for (int64_t number = next(-1); number >= 0; number = next(-1)) {
    const auto found = held_.find(static_cast<size_t>(number));
    if (found == held_.end()) continue;
    const Tensor& tensor = found->second.tensor;
    const size_t width = size_of(tensor.dtype);
    std::vector<std::byte> piece;
    for_pieces(tensor.elements(), width, [&](int64_t begin, int64_t end) {
      piece.resize(static_cast<size_t>(end - begin) * width);
      device_.copy_to_host(
          piece.data(), static_cast<const std::byte*>(tensor.data) + static_cast<size_t>(begin) * width, piece.size());
      ranks_.begin_send(piece, 0).wait();
    });
  }
}

}  // namespace ingot::runs
