#include "tests/comm/transport_checks.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace ingot::comm {

namespace {

const std::vector<size_t> message_lengths = {0, 1, 3, 2048, 5000, 40000};

// f32 values whose sum depends on the order of addition.
float value_of(int rank, size_t i) {
  return std::ldexp(1.0F + static_cast<float>(i % 97) / 97, (rank * 7 + static_cast<int>(i)) % 23);
}

// Sections of different lengths, one of them empty.
std::vector<size_t> sections_of(int ranks, size_t n) {
  std::vector<size_t> counts;
  for (int rank = 0; rank < ranks; ++rank) counts.push_back(rank == 1 ? 0 : n + static_cast<size_t>(rank));
  return counts;
}

}  // namespace

void check_integer_sums_and_maxima(const Group& group) {
  const int ranks = group.size();
  for (const size_t n : message_lengths) {
    std::vector<int64_t> sums(n);
    std::vector<int32_t> largest(n);
    for (size_t i = 0; i < n; ++i) {
      sums[i] = (int64_t{1} << 40) * (group.rank() + 1) - static_cast<int64_t>(i);
      largest[i] = static_cast<int32_t>(i) * (group.rank() % 2 == 0 ? 1 : -1);
    }
    Operation one = group.begin_all_reduce(std::span(sums), ReduceOp::sum);
    Operation two = group.begin_all_reduce(std::span(largest), ReduceOp::max);
    two.wait();
    one.wait();
    for (size_t i = 0; i < n; ++i) {
      ASSERT_EQ(sums[i], (int64_t{1} << 40) * ranks * (ranks + 1) / 2 - ranks * static_cast<int64_t>(i));
      ASSERT_EQ(largest[i], static_cast<int32_t>(i));
    }
  }
}

void check_floating_point_sums_are_in_the_order_of_ranks(const Group& group) {
  for (const size_t n : message_lengths) {
    std::vector<float> sums(n);
    std::vector<double> wide(n);
    for (size_t i = 0; i < n; ++i) {
      sums[i] = value_of(group.rank(), i);
      wide[i] = 1.0 / value_of(group.rank(), i);
    }
    group.all_reduce(std::span(sums), ReduceOp::sum);
    group.all_reduce(std::span(wide), ReduceOp::sum);
    for (size_t i = 0; i < n; ++i) {
      float sum = value_of(0, i);
      double wide_sum = 1.0 / value_of(0, i);
      for (int rank = 1; rank < group.size(); ++rank) {
        sum += value_of(rank, i);
        wide_sum += 1.0 / value_of(rank, i);
      }
      ASSERT_EQ(sums[i], sum) << i;
      ASSERT_EQ(wide[i], wide_sum) << i;
    }
  }
}

void check_sections_are_reduced_and_gathered(const Group& group) {
  const int ranks = group.size();
  for (const size_t n : message_lengths) {
    const std::vector<size_t> counts = sections_of(ranks, n);
    std::vector<size_t> bytes;
    size_t total = 0;
    size_t own_begin = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      if (rank == group.rank()) own_begin = total;
      total += counts[static_cast<size_t>(rank)];
      bytes.push_back(counts[static_cast<size_t>(rank)] * sizeof(float));
    }
    std::vector<float> all(total);
    for (size_t i = 0; i < total; ++i) all[i] = value_of(group.rank(), i);
    std::vector<float> whole = all;
    group.all_reduce(std::span(whole), ReduceOp::sum);

    // Reduced in place, then gathered in place.
    const std::span<float> own(all.data() + own_begin, counts[static_cast<size_t>(group.rank())]);
    group.begin_reduce_scatter<float>(own, all, counts, ReduceOp::sum).wait();
    for (size_t i = 0; i < total; ++i) {
      const bool mine = i >= own_begin && i < own_begin + own.size();
      ASSERT_EQ(all[i], mine ? whole[i] : value_of(group.rank(), i)) << i;
    }
    group.begin_all_gather(std::as_writable_bytes(std::span(all)), std::as_bytes(own), bytes).wait();
    ASSERT_EQ(all, whole);
  }
}

void check_broadcast_text_and_one_value(const Group& group) {
  const int ranks = group.size();
  for (int root = 0; root < ranks; ++root) {
    std::vector<double> values(100, group.rank());
    group.begin_broadcast(std::as_writable_bytes(std::span(values)), root).wait();
    EXPECT_EQ(values, std::vector<double>(100, root));
  }
  const std::vector<std::string> texts = group.gather(std::string(static_cast<size_t>(group.rank()), 'x'));
  ASSERT_EQ(texts.size(), static_cast<size_t>(ranks));
  for (size_t rank = 0; rank < texts.size(); ++rank) EXPECT_EQ(texts[rank], std::string(rank, 'x'));
  EXPECT_EQ(group.all_sum<int64_t>(group.rank()), ranks * (ranks - 1) / 2);
  EXPECT_EQ(group.all_max<double>(group.rank()), ranks - 1);
}

void check_messages_arrive_in_order(const Group& group) {
  if (group.size() == 1) return;
  const int to = (group.rank() + 1) % group.size();
  const int from = (group.rank() + group.size() - 1) % group.size();
  for (int round = 0; round < 100; ++round) {
    const std::vector<int> first(static_cast<size_t>(round), group.rank());
    const std::vector<int> second(1, round);
    std::vector<int> got_first(static_cast<size_t>(round));
    std::vector<int> got_second(1);
    Operation sent_first = group.begin_send(std::as_bytes(std::span(first)), to);
    Operation sent_second = group.begin_send(std::as_bytes(std::span(second)), to);
    Operation receive_first = group.begin_receive(std::as_writable_bytes(std::span(got_first)), from);
    Operation receive_second = group.begin_receive(std::as_writable_bytes(std::span(got_second)), from);
    if (round % 2 == 1) receive_second.wait();  // in any order
    receive_first.wait();
    receive_second.wait();
    sent_first.wait();
    sent_second.wait();
    ASSERT_EQ(got_first, std::vector<int>(static_cast<size_t>(round), from));
    ASSERT_EQ(got_second, second);
  }
}

void check_many_operations_at_once(const Group& group) {
  const int64_t sum = int64_t{group.size()} * (group.size() - 1) / 2;
  std::vector<std::vector<int64_t>> values(50);
  std::vector<Operation> operations;
  for (size_t i = 0; i < values.size(); ++i) {
    values[i].assign(i * 400, group.rank());
    operations.push_back(group.begin_all_reduce(std::span(values[i]), ReduceOp::sum));
  }
  for (size_t i = 0; i < values.size(); ++i) {
    operations[group.rank() % 2 == 0 ? i : values.size() - 1 - i].wait();
  }
  for (size_t i = 0; i < values.size(); ++i) ASSERT_EQ(values[i], std::vector<int64_t>(i * 400, sum));
}

void check_subgroups_work_independently(const Group& group) {
  // Even ranks in order, odd ranks in reverse, then subgroups of these.
  const int color = group.rank() % 2;
  const int size = (group.size() + 1 - color) / 2;
  const Group part = group.split(color, color == 0 ? group.rank() : -group.rank(), "part");
  EXPECT_EQ(part.size(), size);
  EXPECT_EQ(part.rank(), color == 0 ? group.rank() / 2 : size - 1 - group.rank() / 2);
  EXPECT_EQ(part.all_sum<int64_t>(group.rank()), int64_t{size} * (size - 1) + int64_t{color} * size);
  const Group alone = part.split(part.rank(), 0, "alone");
  EXPECT_EQ(alone.size(), 1);
  EXPECT_EQ(alone.all_sum<int64_t>(7), 7);
  const int even = (group.size() + 1) / 2;
  const int odd = group.size() / 2;
  EXPECT_EQ(group.all_sum<int64_t>(part.size()), int64_t{even} * even + int64_t{odd} * odd);
}

}  // namespace ingot::comm
