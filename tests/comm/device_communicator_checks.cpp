#include "tests/comm/device_communicator_checks.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <vector>

#include "tensor/tensor.h"

namespace ingot::comm {

namespace {

const std::vector<size_t> lengths = {1, 3, 2048, 5000, 40000};

// Numbers in device memory, with a workspace for operations on them.
template <class T>
struct Numbers {
  Numbers(DeviceCommunicator& ranks, Device& device, const std::vector<T>& values)
      : device(device),
        memory(device, values.size() * sizeof(T)),
        workspace(ranks.make_workspace(memory.bytes())),
        count(values.size()) {
    set(values);
  }
  T* data() const { return static_cast<T*>(memory.data()); }
  void set(const std::vector<T>& values) { device.copy_from_host(data(), values.data(), count * sizeof(T)); }
  std::vector<T> read() const {
    std::vector<T> values(count);
    device.copy_to_host(values.data(), data(), count * sizeof(T));
    return values;
  }

  Device& device;
  Buffer memory;
  DeviceCommunicator::Workspace workspace;
  size_t count;
};

int64_t integer_of(int rank, size_t i) { return (int64_t{1} << 40) * (rank + 1) - static_cast<int64_t>(i); }

// Whose sum depends on the order of addition.
float float_of(int rank, size_t i) {
  return std::ldexp(1.0F + static_cast<float>(i % 97) / 97, (rank * 7 + static_cast<int>(i)) % 23);
}

template <class T, class Of>
std::vector<T> values_of(int rank, size_t n, Of of) {
  std::vector<T> values(n);
  for (size_t i = 0; i < n; ++i) values[i] = of(rank, i);
  return values;
}

int64_t integer_sum(int ranks, size_t i) {
  return (int64_t{1} << 40) * ranks * (ranks + 1) / 2 - ranks * static_cast<int64_t>(i);
}

// Equal sections, and different ones of which one is empty.
std::vector<size_t> sections_of(int ranks, size_t n, bool equal) {
  std::vector<size_t> counts;
  for (int rank = 0; rank < ranks; ++rank) counts.push_back(equal ? n : rank == 1 ? 0 : n + static_cast<size_t>(rank));
  return counts;
}

}  // namespace

void check_integers_are_reduced(DeviceCommunicator& ranks, Device& device) {
  for (const size_t n : lengths) {
    Numbers<int64_t> sums(ranks, device, values_of<int64_t>(ranks.rank(), n, integer_of));
    ranks.all_reduce(sums.workspace, sums.data(), n, Number::i64, ReduceOp::sum)->wait();
    const std::vector<int64_t> found = sums.read();
    for (size_t i = 0; i < n; ++i) ASSERT_EQ(found[i], integer_sum(ranks.size(), i)) << i << " of " << n;
  }
}

void check_floats_are_reduced(DeviceCommunicator& ranks, Device& device) {
  for (const size_t n : lengths) {
    Numbers<float> sums(ranks, device, values_of<float>(ranks.rank(), n, float_of));
    Numbers<double> largest(ranks, device, values_of<double>(ranks.rank(), n, float_of));
    const auto one = ranks.all_reduce(sums.workspace, sums.data(), n, Number::f32, ReduceOp::sum);
    const auto two = ranks.all_reduce(largest.workspace, largest.data(), n, Number::f64, ReduceOp::max);
    one->wait();
    two->wait();
    const std::vector<float> found = sums.read();
    const std::vector<double> most = largest.read();
    for (size_t i = 0; i < n; ++i) {
      double sum = 0, max = 0;
      for (int rank = 0; rank < ranks.size(); ++rank) {
        sum += static_cast<double>(float_of(rank, i));
        max = std::max(max, static_cast<double>(float_of(rank, i)));
      }
      ASSERT_NEAR(found[i] / sum, 1, 1e-6) << i << " of " << n;
      ASSERT_EQ(most[i], max) << i << " of " << n;
    }
  }
}

void check_sections_are_scattered_and_gathered(DeviceCommunicator& ranks, Device& device) {
  const auto rank = static_cast<size_t>(ranks.rank());
  for (const size_t n : lengths) {
    for (const bool equal : {true, false}) {
      const std::vector<size_t> counts = sections_of(ranks.size(), n, equal);
      const size_t total = std::accumulate(counts.begin(), counts.end(), size_t{0});
      const size_t begin = std::accumulate(counts.begin(), counts.begin() + ranks.rank(), size_t{0});
      Numbers<int64_t> all(ranks, device, values_of<int64_t>(ranks.rank(), total, integer_of));
      ranks.reduce_scatter(all.workspace, all.data(), counts, Number::i64, ReduceOp::sum)->wait();
      const std::vector<int64_t> reduced = all.read();
      for (size_t i = begin; i < begin + counts[rank]; ++i) ASSERT_EQ(reduced[i], integer_sum(ranks.size(), i));

      std::vector<size_t> bytes(counts);
      for (size_t& each : bytes) each *= sizeof(int64_t);
      const auto check_gathered = [&] {
        const std::vector<int64_t> gathered = all.read();
        for (size_t i = 0; i < total; ++i) ASSERT_EQ(gathered[i], integer_sum(ranks.size(), i)) << i << " of " << total;
      };
      ranks.all_gather(all.workspace, all.data(), all.data() + begin, bytes)->wait();
      check_gathered();
      // From other memory.
      std::vector<int64_t> section(reduced.begin() + static_cast<int64_t>(begin),
                                   reduced.begin() + static_cast<int64_t>(begin + counts[rank]));
      section.push_back(0);
      const Numbers<int64_t> own(ranks, device, section);
      all.set(std::vector<int64_t>(total, -1));
      ranks.all_gather(all.workspace, all.data(), own.data(), bytes)->wait();
      check_gathered();
      // After work in the copy stream.
      PinnedBuffer pinned(device, own.memory.bytes());
      std::copy(section.begin(), section.end(), reinterpret_cast<int64_t*>(pinned.data()));
      device.fill_zero(own.data(), own.memory.bytes());
      all.set(std::vector<int64_t>(total, -1));
      device.copy_from_host_async(Stream::copy, own.data(), pinned.data(), pinned.bytes());
      ranks.all_gather(all.workspace, all.data(), own.data(), bytes, Stream::copy)->wait();
      check_gathered();
    }
  }
}

// Rank a sends a + 2 b + 1 numbers to rank b.
void check_sections_are_exchanged(DeviceCommunicator& ranks, Device& device) {
  const auto count = [](int from, int to) { return static_cast<size_t>(from) + 2 * static_cast<size_t>(to) + 1; };
  const auto value = [](int from, int to, size_t i) { return 10000 * (from + 1) + 100 * to + static_cast<int64_t>(i); };
  const int own = ranks.rank();
  std::vector<size_t> in_bytes, out_bytes;
  std::vector<int64_t> sent, expected;
  for (int rank = 0; rank < ranks.size(); ++rank) {
    in_bytes.push_back(count(own, rank) * sizeof(int64_t));
    out_bytes.push_back(count(rank, own) * sizeof(int64_t));
    for (size_t i = 0; i < count(own, rank); ++i) sent.push_back(value(own, rank, i));
    for (size_t i = 0; i < count(rank, own); ++i) expected.push_back(value(rank, own, i));
  }
  const Numbers<int64_t> in(ranks, device, sent);
  Numbers<int64_t> out(ranks, device, std::vector<int64_t>(expected.size()));
  DeviceCommunicator::Workspace workspace = ranks.make_workspace(in.memory.bytes() + out.memory.bytes());
  for (int repeat = 0; repeat < 3; ++repeat) {
    device.fill_zero(out.data(), out.memory.bytes());
    ranks.all_to_all(workspace, out.data(), out_bytes, in.data(), in_bytes)->wait();
    ASSERT_EQ(out.read(), expected);
  }
}

void check_messages_are_sent(DeviceCommunicator& ranks, Device& device) {
  const int own = ranks.rank();
  const auto value = [](int from, int to, size_t n, size_t i) {
    return 1000000 * (from + 1) + 100000 * to + 10 * static_cast<int64_t>(n) + static_cast<int64_t>(i);
  };
  const auto values = [&](int from, int to, size_t n) {
    std::vector<int64_t> all(n);
    for (size_t i = 0; i < n; ++i) all[i] = value(from, to, n, i);
    return all;
  };
  for (int from = 0; from < ranks.size(); ++from) {
    for (int to = 0; to < ranks.size(); ++to) {
      if (from == to || (own != from && own != to)) continue;
      std::vector<std::unique_ptr<Numbers<int64_t>>> numbers;
      std::vector<PinnedBuffer> uploaded;
      std::vector<DeviceCommunicator::PendingOperation> operations;
      for (const size_t n : lengths) {
        numbers.push_back(std::make_unique<Numbers<int64_t>>(ranks, device, std::vector<int64_t>(n, -1)));
        Numbers<int64_t>& message = *numbers.back();
        if (own == to) {
          operations.push_back(ranks.receive(message.workspace, message.data(), message.memory.bytes(), from));
          continue;
        }
        const std::vector<int64_t> sent = values(from, to, n);
        PinnedBuffer& upload = uploaded.emplace_back(device, message.memory.bytes());
        std::copy(sent.begin(), sent.end(), reinterpret_cast<int64_t*>(upload.data()));
        device.copy_from_host_async(Stream::compute, message.data(), upload.data(), upload.bytes());
        operations.push_back(ranks.send(message.workspace, message.data(), message.memory.bytes(), to));
      }
      while (!operations.empty()) {  // the last one first
        operations.back()->wait();
        operations.pop_back();
      }
      for (size_t i = 0; i < lengths.size(); ++i) {
        if (own == from) device.fill_zero(numbers[i]->data(), numbers[i]->memory.bytes());
        if (own == to) ASSERT_EQ(numbers[i]->read(), values(from, to, lengths[i])) << from << " to " << to;
      }
    }
  }
}

void check_operations_are_in_the_order_of_streams(DeviceCommunicator& ranks, Device& device) {
  constexpr size_t n = 3000, count = 5;
  std::vector<std::unique_ptr<Numbers<int64_t>>> numbers;
  std::vector<DeviceCommunicator::PendingOperation> operations;
  PinnedBuffer uploaded(device, n * sizeof(int64_t));
  for (size_t i = 0; i < count; ++i)
    numbers.push_back(std::make_unique<Numbers<int64_t>>(ranks, device, std::vector<int64_t>(n, -1)));
  for (int repeat = 0; repeat < 2; ++repeat) {
    const std::vector<int64_t> own = values_of<int64_t>(ranks.rank() + repeat, n, integer_of);
    std::copy(own.begin(), own.end(), reinterpret_cast<int64_t*>(uploaded.data()));
    for (const auto& each : numbers) {
      // Not waited for: the operation comes after it.
      device.copy_from_host_async(Stream::compute, each->data(), uploaded.data(), uploaded.bytes());
      operations.push_back(ranks.all_reduce(each->workspace, each->data(), n, Number::i64, ReduceOp::sum));
    }
    // The last one first, and its memory is overwritten after that.
    while (!operations.empty()) {
      operations.back()->wait();
      operations.pop_back();
    }
    for (size_t i = 0; i < count; ++i) {
      if (i == 2) device.fill_zero(numbers[i]->data(), n * sizeof(int64_t));
      const std::vector<int64_t> found = numbers[i]->read();
      for (size_t at = 0; at < n; ++at) {
        const int64_t sum = integer_sum(ranks.size(), at) + (int64_t{1} << 40) * ranks.size() * repeat;
        ASSERT_EQ(found[at], i == 2 ? 0 : sum) << at << " of " << i << ", " << repeat;
      }
    }
  }
}

}  // namespace ingot::comm
