#include "base/in_order.h"

#include <gtest/gtest.h>

#include <atomic>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace ingot {
namespace {

struct Item {
  int number = 0;
  int64_t worked = 0;
};

// The results that reach the last stage, of `count` items. `fail` may throw at a stage; the error's number is then
// appended, negated.
std::vector<int64_t> results_of(int threads, int count, FunctionRef<void(const std::string&, int)> fail) {
  ThreadPool pool(threads);
  std::atomic<int> in_first_stage = 0, in_last_stage = 0, started = 0, ended = 0;
  std::vector<int64_t> put;
  int taken = 0;
  try {
    ordered_pipeline<Item>(
        pool,
        [&](Item& item) {
          EXPECT_EQ(++in_first_stage, 1);
          item.number = taken++;
          fail("take", item.number);
          EXPECT_LE(item.number - ended, 4 * threads);
          --in_first_stage;
          return item.number < count ? std::optional<int64_t>(1) : std::nullopt;
        },
        [&](Item& item) {
          ++started;
          fail("work", item.number);
          for (int i = 0; i < (item.number % 7) * 1000; ++i) item.worked += i % 3;
          item.worked = int64_t{item.number} * item.number;
        },
        [&](Item& item) {
          EXPECT_EQ(++in_last_stage, 1);
          fail("put", item.number);
          EXPECT_EQ(item.number, std::ssize(put));
          put.push_back(item.worked);
          ++ended;
          --in_last_stage;
          return true;
        });
  } catch (const std::runtime_error& error) {
    put.push_back(-std::stoi(error.what()));
  }
  EXPECT_LE(started, count);
  return put;
}

TEST(InOrder, ItemsArriveOnceInOrder) {
  std::vector<int64_t> expected(500);
  for (size_t i = 0; i < expected.size(); ++i) expected[i] = static_cast<int64_t>(i * i);
  for (const int threads : {1, 2, 5}) {
    EXPECT_EQ(results_of(threads, 500, [](const std::string&, int) {}), expected) << threads;
    EXPECT_TRUE(results_of(threads, 0, [](const std::string&, int) {}).empty());
  }
}

// All items before a failed one arrive and none after it, whichever stage throws and on whichever thread.
TEST(InOrder, AnErrorArrivesAtItsItemsPosition) {
  for (const int threads : {1, 2, 5}) {
    for (const std::string where : {"take", "work", "put"}) {
      const std::vector<int64_t> put = results_of(threads, 100, [&](const std::string& stage, int number) {
        if (stage == where && (number == 40 || number == 41)) throw std::runtime_error(std::to_string(number));
      });
      ASSERT_EQ(put.size(), 41U) << where;
      EXPECT_EQ(put.back(), -40);
    }
  }
}

TEST(InOrder, TheLastStageCanStop) {
  ThreadPool pool(3);
  int taken = 0, put = 0;
  ordered_pipeline<int>(
      pool, [&](int& item) { return std::optional<int64_t>(item = taken++); }, [](int&) {},
      [&](int& item) { return ++put, item < 20; });
  EXPECT_EQ(put, 21);
  EXPECT_LE(taken, 21 + 4 * 3);
}

// Items above the memory limit are processed one at a time.
TEST(InOrder, BytesInFlightAreBounded) {
  ThreadPool pool(3);
  std::atomic<int> between = 0;
  int taken = 0, put = 0;
  ordered_pipeline<int>(
      pool,
      [&](int&) {
        if (taken++ == 50) return std::optional<int64_t>();
        EXPECT_EQ(++between, 1);
        return std::optional<int64_t>(3 * in_order_bytes);
      },
      [](int&) {},
      [&](int&) {
        ++put;
        --between;
        return true;
      });
  EXPECT_EQ(put, 50);
}

// An item whose copy throws while it waits for its turn ends the pipeline without a deadlock.
TEST(InOrder, AnItemThatCannotBeCopiedEndsIt) {
  struct Fragile {
    int number = 0;
    Fragile() = default;
    Fragile(const Fragile& other) : number(other.number) {
      if (number == 40) throw std::runtime_error("40");
    }
    Fragile& operator=(const Fragile&) = default;
  };
  for (const int threads : {1, 2, 5}) {
    ThreadPool pool(threads);
    int taken = 0;
    EXPECT_THROW(ordered_pipeline<Fragile>(
                     pool, [&](Fragile& item) { return std::optional<int64_t>(item.number = taken++); },
                     [](Fragile&) {}, [](Fragile& item) { return item.number < 1000; }),
                 std::runtime_error);
  }
}

}  // namespace
}  // namespace ingot
