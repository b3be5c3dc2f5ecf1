// One rank of the MPI tests, which CTest starts by mpirun: mpi_ranks PLUGIN RANKS checks|fails|hangs|truncates. Exits
// with 0 when this rank's checks passed; the launcher combines the exit codes.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <thread>

#include "base/error.h"
#include "base/machine.h"
#include "base/shared_library.h"
#include "comm/mpi.h"
#include "comm/mpi_plugin.h"
#include "tests/comm/transport_checks.h"
#include "tests/host_heap.h"

namespace ingot::comm {
namespace {

// Of operations that wait for each other, one has buffers.
void check_waiting_operations_have_no_buffers(const Group& world) {
  if (world.size() == 1) return;
  constexpr int64_t buffers_of_one = int64_t{13} << 20;  // three of 4 MiB, and small objects
  std::vector<std::vector<float>> values(24, std::vector<float>(1 << 20, 1.0F));
  world.barrier();
  const int64_t before = host_heap_bytes();
  std::vector<Operation> operations;
  for (std::vector<float>& each : values) operations.push_back(world.begin_all_reduce(std::span(each), ReduceOp::sum));
  int64_t most = 0;
  for (Operation& operation : operations) {
    most = std::max(most, host_heap_bytes() - before);
    operation.wait();
  }
  EXPECT_LT(most, buffers_of_one);
  EXPECT_LT(host_heap_bytes() - before, int64_t{1} << 20);
  EXPECT_EQ(values.back().back(), static_cast<float>(world.size()));
}

void checks(const MpiRank& rank) {
  const Group& world = rank.world;
  EXPECT_EQ(rank.local, world.rank());  // on one machine
  EXPECT_EQ(rank.locals, world.size());
  check_integer_sums_and_maxima(world);
  check_floating_point_sums_are_in_the_order_of_ranks(world);
  check_sections_are_reduced_and_gathered(world);
  check_broadcast_text_and_one_value(world);
  check_messages_arrive_in_order(world);
  check_many_operations_at_once(world);
  check_subgroups_work_independently(world);
  check_waiting_operations_have_no_buffers(world);
  // More bytes than the staging buffer holds.
  std::vector<int64_t> many(3'000'001, world.rank() + 1);
  world.all_reduce(std::span(many), ReduceOp::sum);
  EXPECT_EQ(many, std::vector<int64_t>(many.size(), int64_t{world.size()} * (world.size() + 1) / 2));
  std::vector<std::byte> bytes(10'000'001, static_cast<std::byte>(world.rank()));
  const int root = world.size() - 1;
  world.begin_broadcast(bytes, root).wait();
  EXPECT_TRUE(std::ranges::all_of(bytes, [&](std::byte byte) { return byte == static_cast<std::byte>(root); }));
}

// Rank 1 fails, and the other ranks, which wait for it, receive its message.
void fails(const Group& world) {
  world.barrier();
  if (world.rank() == 1) throw_hint(ErrorKind::resource, "make room", "the disk is full");
  world.barrier();
}

// Rank 1 does not take part.
void hangs(const Group& world) {
  world.barrier();
  if (world.rank() == 1) std::this_thread::sleep_for(std::chrono::hours(1));
  world.barrier();
}

// A message that is longer than its receive fails in test(), and leaves the request to cancel().
int truncates(const std::string& plugin) {
  const SharedLibrary library({plugin}, {});
  ingot_mpi_open_function* open = nullptr;
  library.bind(open, "ingot_mpi_open");
  char text[512] = "";
  const ingot_mpi* mpi = open(text, sizeof text);
  if (mpi == nullptr) {
    std::fputs(text, stderr);
    return 1;
  }
  const int64_t sent[16] = {};
  int64_t received[1] = {};
  ingot_mpi_request *receive = nullptr, *send = nullptr;
  EXPECT_EQ(mpi->receive(mpi->world, received, sizeof received, 0, &receive), 0);
  EXPECT_EQ(mpi->send(mpi->world, sent, sizeof sent, 0, &send), 0);
  int done = 0;
  int error = 0;
  while (error == 0 && done == 0) error = mpi->test(receive, &done);
  EXPECT_NE(error, 0);
  EXPECT_EQ(done, 0) << "the request is not gone";
  mpi->cancel(receive);
  for (done = 0; done == 0;) EXPECT_EQ(mpi->test(send, &done), 0);
  EXPECT_EQ(mpi->finalize(), 0);
  return testing::Test::HasFailure() ? 1 : 0;
}

int run(const std::string& plugin, int ranks, const std::string& what) {
  if (what == "truncates") return truncates(plugin);
  Mpi settings{.plugin = plugin, .size = ranks};
  if (what == "hangs") settings.timeout_s = 1;
  try {
    run_mpi(settings, [&](const MpiRank& rank) {
      if (what == "checks") {
        checks(rank);
      } else if (what == "fails") {
        fails(rank.world);
      } else {
        hangs(rank.world);
      }
    });
  } catch (const Error& error) {
    fmt::print(stderr, "{}: {} ({})\n", name(error.kind()), error.message(), error.hint());
    const bool names_rank =
        error.message().find(fmt::format("rank 1 on {} is in no operation", host_name())) != std::string::npos;
    return what == "hangs" && !names_rank ? 1 : exit_code(error.kind());
  }
  return testing::Test::HasFailure() ? 1 : 0;
}

}  // namespace
}  // namespace ingot::comm

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (argc != 4) {
    std::fputs("usage: mpi_ranks PLUGIN RANKS checks|fails|hangs|truncates\n", stderr);
    return 2;
  }
  return ingot::comm::run(argv[1], std::stoi(argv[2]), argv[3]);
}
