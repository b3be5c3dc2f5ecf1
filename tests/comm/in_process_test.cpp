#include "comm/in_process.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <thread>
#include <vector>

#include "base/error.h"

namespace ingot::comm {
namespace {

using Body = std::function<void(const Group&)>;

Error error_of(const InProcess& settings, const Body& body) {
  try {
    run_in_process(settings, body);
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "nothing was thrown";
  return {ErrorKind::internal, ""};
}

// Values whose sums depend on their order in f32.
float value_of(int rank, size_t i) {
  return std::ldexp(1.0F + static_cast<float>(i % 97) / 97, (rank * 7 + static_cast<int>(i)) % 23);
}

const std::vector<int> rank_counts = {1, 2, 3, 5};
const std::vector<size_t> lengths = {0, 1, 3, 2048, 5000, 40000};

TEST(InProcess, IntegerSumsAndMaxima) {
  for (const int ranks : rank_counts) {
    for (const size_t n : lengths) {
      run_in_process({.ranks = ranks}, [&](const Group& group) {
        std::vector<int64_t> sums(n);
        std::vector<int32_t> largest(n);
        for (size_t i = 0; i < n; ++i) {
          sums[i] = (int64_t{1} << 40) * (group.rank() + 1) - static_cast<int64_t>(i);
          largest[i] = static_cast<int32_t>(i) * (group.rank() % 2 == 0 ? 1 : -1);
        }
        Operation one = group.begin_all_reduce(std::span(sums), Combine::sum);
        Operation two = group.begin_all_reduce(std::span(largest), Combine::max);
        two.wait();
        one.wait();
        for (size_t i = 0; i < n; ++i) {
          ASSERT_EQ(sums[i], (int64_t{1} << 40) * ranks * (ranks + 1) / 2 - ranks * static_cast<int64_t>(i));
          ASSERT_EQ(largest[i], static_cast<int32_t>(i));
        }
      });
    }
  }
}

TEST(InProcess, FloatingPointSumsAreInTheOrderOfRanks) {
  for (const int ranks : rank_counts) {
    for (const size_t n : lengths) {
      run_in_process({.ranks = ranks}, [&](const Group& group) {
        std::vector<float> sums(n);
        std::vector<double> wide(n);
        for (size_t i = 0; i < n; ++i) {
          sums[i] = value_of(group.rank(), i);
          wide[i] = 1.0 / value_of(group.rank(), i);
        }
        group.all_reduce(std::span(sums), Combine::sum);
        group.all_reduce(std::span(wide), Combine::sum);
        for (size_t i = 0; i < n; ++i) {
          float sum = value_of(0, i);
          double wide_sum = 1.0 / value_of(0, i);
          for (int rank = 1; rank < ranks; ++rank) {
            sum += value_of(rank, i);
            wide_sum += 1.0 / value_of(rank, i);
          }
          ASSERT_EQ(sums[i], sum) << i;
          ASSERT_EQ(wide[i], wide_sum) << i;
        }
      });
    }
  }
}

// Sections of different lengths, one of them empty.
std::vector<size_t> sections_of(int ranks, size_t n) {
  std::vector<size_t> counts;
  for (int rank = 0; rank < ranks; ++rank) counts.push_back(rank == 1 ? 0 : n + static_cast<size_t>(rank));
  return counts;
}

TEST(InProcess, SectionsAreReducedAndGathered) {
  for (const int ranks : rank_counts) {
    for (const size_t n : lengths) {
      run_in_process({.ranks = ranks}, [&](const Group& group) {
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
        group.all_reduce(std::span(whole), Combine::sum);

        // In its own place, then gathered from there.
        const std::span<float> own(all.data() + own_begin, counts[static_cast<size_t>(group.rank())]);
        group.begin_reduce_scatter<float>(own, all, counts, Combine::sum).wait();
        for (size_t i = 0; i < total; ++i) {
          const bool mine = i >= own_begin && i < own_begin + own.size();
          ASSERT_EQ(all[i], mine ? whole[i] : value_of(group.rank(), i)) << i;
        }
        group.begin_all_gather(std::as_writable_bytes(std::span(all)), std::as_bytes(own), bytes).wait();
        ASSERT_EQ(all, whole);
      });
    }
  }
}

TEST(InProcess, BroadcastTextBarrierAndOneValue) {
  for (const int ranks : rank_counts) {
    std::atomic<int> before = 0;
    run_in_process({.ranks = ranks}, [&](const Group& group) {
      EXPECT_EQ(group.size(), ranks);
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
      ++before;
      group.barrier();
      EXPECT_EQ(before, ranks);
    });
  }
}

TEST(InProcess, MessagesArriveInTheirOrder) {
  run_in_process({.ranks = 3}, [](const Group& group) {
    const int to = (group.rank() + 1) % 3;
    const int from = (group.rank() + 2) % 3;
    for (int round = 0; round < 100; ++round) {
      const std::vector<int> first(static_cast<size_t>(round), group.rank());
      const std::vector<int> second(1, round);
      group.begin_send(std::as_bytes(std::span(first)), to).wait();
      group.begin_send(std::as_bytes(std::span(second)), to).wait();
      std::vector<int> got_first(static_cast<size_t>(round));
      std::vector<int> got_second(1);
      Operation one = group.begin_receive(std::as_writable_bytes(std::span(got_first)), from);
      one.wait();
      group.begin_receive(std::as_writable_bytes(std::span(got_second)), from).wait();
      ASSERT_EQ(got_first, std::vector<int>(static_cast<size_t>(round), from));
      ASSERT_EQ(got_second, second);
    }
  });
}

TEST(InProcess, PartsWorkByThemselves) {
  run_in_process({.ranks = 5}, [](const Group& group) {
    // Even ranks in their order, odd ones turned round; then parts of parts.
    const int color = group.rank() % 2;
    const Group part = group.split(color, color == 0 ? group.rank() : -group.rank(), "part");
    EXPECT_EQ(part.size(), color == 0 ? 3 : 2);
    EXPECT_EQ(part.rank(), color == 0 ? group.rank() / 2 : 1 - group.rank() / 2);
    EXPECT_EQ(part.all_sum<int64_t>(group.rank()), color == 0 ? 6 : 4);
    const Group alone = part.split(part.rank(), 0, "alone");
    EXPECT_EQ(alone.size(), 1);
    EXPECT_EQ(alone.all_sum<int64_t>(7), 7);
    EXPECT_EQ(group.all_sum<int64_t>(part.size()), 13);
  });
}

TEST(InProcess, ManyOperationsAtOnceWaitedForInAnyOrder) {
  run_in_process({.ranks = 4}, [](const Group& group) {
    std::vector<std::vector<int64_t>> values(50);
    std::vector<Operation> operations;
    for (size_t i = 0; i < values.size(); ++i) {
      values[i].assign(i * 400, group.rank());
      operations.push_back(group.begin_all_reduce(std::span(values[i]), Combine::sum));
    }
    for (size_t i = 0; i < values.size(); ++i) {
      operations[group.rank() % 2 == 0 ? i : values.size() - 1 - i].wait();
    }
    for (size_t i = 0; i < values.size(); ++i) ASSERT_EQ(values[i], std::vector<int64_t>(i * 400, 6));
  });
}

TEST(InProcess, OneRanksErrorEndsAllWithItsReason) {
  std::atomic<int> told = 0;
  const Error error = error_of({.ranks = 4, .timeout_s = 60}, [&](const Group& group) {
    std::vector<int64_t> values(100000, 1);
    group.all_reduce(std::span(values), Combine::sum);
    if (group.rank() == 2) throw_hint(ErrorKind::resource, "make room", "the disk is full");
    try {
      while (true) {
        Operation begun = group.begin_all_reduce(std::span(values), Combine::max);
        group.barrier();
      }
    } catch (const Error& other) {
      EXPECT_EQ(other.kind(), ErrorKind::resource);
      EXPECT_EQ(other.message(), "rank 2 failed: the disk is full");
      EXPECT_EQ(other.hint(), "make room");
      ++told;
      throw;
    }
  });
  EXPECT_EQ(told, 3);
  EXPECT_EQ(error.kind(), ErrorKind::resource);
  EXPECT_EQ(error.message(), "rank 2: the disk is full");
  EXPECT_EQ(error.hint(), "make room");
}

TEST(InProcess, AnExceptionOfAnotherTypeEndsAllToo) {
  const Error error = error_of({.ranks = 2}, [](const Group& group) {
    if (group.rank() == 1) throw std::runtime_error("bad luck");
    std::byte one{};
    group.begin_receive({&one, 1}, 1).wait();
  });
  EXPECT_EQ(error.kind(), ErrorKind::internal);
  EXPECT_EQ(error.message(), "rank 1: bad luck");
}

TEST(InProcess, ARankThatDoesNotComeIsNamed) {
  const Error error = error_of({.ranks = 3, .timeout_s = 0.2}, [](const Group& group) {
    group.barrier();
    if (group.rank() == 1) {
      // Busy with something else until the others have given up.
      while (true) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        group.begin_send({}, 1).wait();
      }
    }
    group.all_sum<int64_t>(1);
  });
  EXPECT_EQ(error.kind(), ErrorKind::unavailable);
  EXPECT_NE(error.message().find("has waited 0.2 s for rank 1 to come to operation 1, all_reduce of 1"),
            std::string::npos)
      << error.message();
}

TEST(InProcess, ARankThatCannotBeEndedIsReported) {
  std::atomic<bool> reported = false;
  const InProcess settings{.ranks = 2, .timeout_s = 0.1, .stuck = [&](const Error& error) {
                             EXPECT_EQ(error.message(), "rank 0: no more");
                             reported = true;
                           }};
  const Error error = error_of(settings, [&](const Group& group) {
    if (group.rank() == 0) throw_error(ErrorKind::unavailable, "no more");
    while (!reported) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  });
  EXPECT_EQ(error.message(), "rank 0: no more");
}

TEST(InProcess, DisagreementIsAnError) {
  const Error sizes = error_of({.ranks = 2}, [](const Group& group) {
    std::vector<float> values(group.rank() == 0 ? 3 : 4);
    group.all_reduce(std::span(values), Combine::sum);
  });
  EXPECT_EQ(sizes.kind(), ErrorKind::internal);
  EXPECT_NE(sizes.message().find("operation 0 of 'world' is all_reduce of"), std::string::npos) << sizes.message();

  const Error bytes = error_of({.ranks = 2}, [](const Group& group) {
    std::vector<std::byte> data(group.rank() == 0 ? 3 : 4);
    if (group.rank() == 0) {
      group.begin_send(data, 1).wait();
    } else {
      group.begin_receive(data, 0).wait();
    }
  });
  EXPECT_NE(bytes.message().find("got 3 bytes from rank 0 and takes 4"), std::string::npos) << bytes.message();
}

TEST(InProcess, SumsThatDoNotFitAreErrors) {
  const Error error = error_of({.ranks = 2}, [](const Group& group) {
    group.all_sum(group.rank() == 0 ? std::numeric_limits<int64_t>::max() : int64_t{1});
  });
  EXPECT_EQ(error.kind(), ErrorKind::internal);
  EXPECT_NE(error.message().find("does not fit"), std::string::npos) << error.message();
}

TEST(InProcess, ThereIsAtLeastOneRank) {
  EXPECT_EQ(error_of({.ranks = 0}, [](const Group&) {}).kind(), ErrorKind::usage);
}

}  // namespace
}  // namespace ingot::comm
