// Asynchronous work on streams: order, waits, and detection of missing waits by the simulated GPU.
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

#include "backend/gpu/ops.h"
#include "backend/gpu/sim/sim_device.h"
#include "base/error.h"
#include "ops/elementwise.h"
#include "tensor/staging.h"
#include "tests/backend/gpu/faulty.h"

namespace ingot::gpu {
namespace {

using sim::Schedule;

class StreamsTest : public testing::TestWithParam<Schedule> {
 protected:
  StreamsTest() : device_(sim::make_device(32, GetParam())) { register_ops(registry_, DeviceKind::sim); }

  PinnedBuffer host(std::vector<float> values) {
    PinnedBuffer buffer(*device_, values.size() * sizeof(float));
    std::memcpy(buffer.data(), values.data(), buffer.bytes());
    return buffer;
  }
  static std::vector<float> values(const PinnedBuffer& buffer) {
    std::vector<float> all(buffer.bytes() / sizeof(float));
    std::memcpy(all.data(), buffer.data(), buffer.bytes());
    return all;
  }
  void scale_by_two(const Tensor& y, const Tensor& x) { ops::scale(context_, y, x, 2); }
  Tensor tensor(const Buffer& buffer) { return buffer.view(DType::f32, Shape{count}); }

  static constexpr int64_t count = 4;
  static constexpr size_t bytes = count * sizeof(float);
  std::unique_ptr<GpuDevice> device_;
  ops::Registry registry_;
  Arena scratch_;
  ops::Context context_{*device_, registry_, scratch_, nullptr};
};

TEST_P(StreamsTest, EventsOrderCopiesAndKernels) {
  const Buffer in(*device_, bytes), out(*device_, bytes);
  const PinnedBuffer from = host({1, 2, 3, 4}), to = host({0, 0, 0, 0});
  const auto uploaded = device_->make_event(), computed = device_->make_event(), arrived = device_->make_event();
  EXPECT_TRUE(uploaded->done());
  device_->copy_from_host_async(Stream::copy, in.data(), from.data(), bytes);
  uploaded->record(Stream::copy);
  uploaded->wait_on(Stream::compute);
  scale_by_two(tensor(out), tensor(in));
  computed->record(Stream::compute);
  computed->wait_on(Stream::copy);
  device_->copy_to_host_async(Stream::copy, to.data(), out.data(), bytes);
  arrived->record(Stream::copy);
  EXPECT_NE(values(to), values(host({2, 4, 6, 8})));
  arrived->wait();
  EXPECT_EQ(values(to), values(host({2, 4, 6, 8})));
  EXPECT_TRUE(computed->done());
}

TEST_P(StreamsTest, QueryingAnEventAdvancesTheStream) {
  const Buffer in(*device_, bytes);
  const auto event = device_->make_event();
  for (int i = 0; i < 3; ++i) scale_by_two(tensor(in), tensor(in));
  event->record(Stream::compute);
  EXPECT_FALSE(event->done());
  int queries = 1;
  while (!event->done()) ++queries;
  EXPECT_LT(queries, 4);
}

// The simulated device reads host memory only when it executes the copy.
TEST_P(StreamsTest, SourcesChangedTooEarlyGiveWrongResults) {
  const Buffer in(*device_, bytes);
  const PinnedBuffer from = host({1, 2, 3, 4}), to = host({0, 0, 0, 0});
  const auto uploaded = device_->make_event();
  device_->copy_from_host_async(Stream::compute, in.data(), from.data(), bytes);
  uploaded->record(Stream::compute);
  std::memset(from.data(), 0, bytes);
  uploaded->wait();
  device_->copy_to_host(to.data(), in.data(), bytes);
  EXPECT_EQ(values(to), values(host({0, 0, 0, 0})));
}

// Without `Event::wait_on` a kernel may run before the copy that it needs, or a copy before the kernel whose result it
// copies. Which of the two happens depends on the schedule.
TEST_P(StreamsTest, MissingWaitsGiveWrongResults) {
  const PinnedBuffer from = host({1, 2, 3, 4}), to = host({0, 0, 0, 0});
  int wrong = 0;
  {
    const Buffer in(*device_, bytes), out(*device_, bytes);
    device_->copy_from_host_async(Stream::copy, in.data(), from.data(), bytes);
    scale_by_two(tensor(out), tensor(in));
    device_->copy_to_host(to.data(), out.data(), bytes);
    wrong += values(to) != values(host({2, 4, 6, 8}));
  }
  {
    const Buffer in(*device_, bytes), out(*device_, bytes);
    const PinnedBuffer early = host({0, 0, 0, 0});
    device_->copy_from_host(in.data(), from.data(), bytes);
    scale_by_two(tensor(out), tensor(in));
    device_->copy_to_host_async(Stream::copy, early.data(), out.data(), bytes);
    const auto both = device_->make_event();
    both->record(Stream::compute);
    both->wait();
    both->record(Stream::copy);
    both->wait();
    wrong += values(early) != values(host({2, 4, 6, 8}));
  }
  if (GetParam() != Schedule::random) EXPECT_EQ(wrong, 1);
}

TEST_P(StreamsTest, AsyncCopiesRequirePinnedMemory) {
  const Buffer in(*device_, bytes);
  const std::vector<float> plain(count);
  EXPECT_THROW(device_->copy_from_host_async(Stream::copy, in.data(), plain.data(), bytes), Error);
  const PinnedBuffer small = host({1});
  EXPECT_THROW(device_->copy_from_host_async(Stream::copy, in.data(), small.data(), bytes), Error);
}

TEST_P(StreamsTest, ChunkedCopiesKeepTheContent) {
  std::vector<int32_t> numbers(1000);
  std::iota(numbers.begin(), numbers.end(), 0);
  const Buffer memory(*device_, numbers.size() * sizeof(int32_t));
  Uploader uploader(*device_, 96);
  const auto* from = reinterpret_cast<const std::byte*>(numbers.data());
  for (size_t done = 0; done < memory.bytes(); done += uploader.chunk_bytes()) {
    const size_t size = std::min(uploader.chunk_bytes(), memory.bytes() - done);
    std::memcpy(uploader.next_chunk(), from + done, size);
    uploader.send(static_cast<std::byte*>(memory.data()) + done, size);
  }
  uploader.finish();

  const std::vector<DeviceRange> ranges{
      {memory.data(), 400}, {memory.data(), 0}, {static_cast<std::byte*>(memory.data()) + 400, 3600}};
  std::vector<std::vector<std::byte>> got(ranges.size());
  download(*device_, ranges, 96, [&](size_t range, std::span<const std::byte> piece) {
    EXPECT_LE(piece.size(), 96U);
    got[range].insert(got[range].end(), piece.begin(), piece.end());
  });
  EXPECT_EQ(got[0].size(), 400U);
  EXPECT_EQ(got[1].size(), 0U);
  got[0].insert(got[0].end(), got[2].begin(), got[2].end());
  ASSERT_EQ(got[0].size(), memory.bytes());
  EXPECT_EQ(std::memcmp(got[0].data(), numbers.data(), memory.bytes()), 0);
}

TEST_P(StreamsTest, ReplayReadsTheCurrentMemory) {
  const Buffer in(*device_, bytes), out(*device_, bytes);
  const PinnedBuffer to = host({0, 0, 0, 0});
  const auto replay = device_->record([&] {
    scale_by_two(tensor(in), tensor(in));
    scale_by_two(tensor(out), tensor(in));
  });
  device_->copy_from_host(in.data(), host({1, 2, 3, 4}).data(), bytes);
  for (float factor = 4; factor < 40; factor *= 2) {
    replay->run();
    device_->copy_to_host(to.data(), out.data(), bytes);
    EXPECT_EQ(values(to), values(host({factor, 2 * factor, 3 * factor, 4 * factor})));
  }
}

TEST_P(StreamsTest, OpsThatCannotBeRecordedAreNamed) {
  const Buffer in(*device_, bytes);
  float one = 0;
  try {
    device_->record([&] {
      scale_by_two(tensor(in), tensor(in));
      device_->copy_to_host(&one, in.data(), sizeof one);
    });
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.message(), "sim32: memory is copied while scale(f32[4], f32[4]) is recorded");
  }
  EXPECT_THROW(device_->record([&] { const Buffer more(*device_, bytes); }), Error);
  scale_by_two(tensor(in), tensor(in));  // runs directly and is not recorded
  device_->copy_to_host(&one, in.data(), sizeof one);
}

TEST_P(StreamsTest, AsynchronousErrorsNameTheOp) {
  const Buffer in(*device_, bytes);
  const Operand operands[] = {{"f32", Shape{4}}};
  for (const KernelInfo& kernel : faulty_kernels()) {
    if (std::string(kernel.name) != "fault_lanes_left") continue;
    void* data = in.data();
    device_->set_current_op("some_op", operands);
    device_->launch(kernel, static_cast<void*>(&data), {}, 0);
  }
  scale_by_two(tensor(in), tensor(in));
  for (int again = 0; again < 2; ++again) {
    try {
      float one = 0;
      device_->copy_to_host(&one, in.data(), sizeof one);
      ADD_FAILURE() << "nothing was thrown";
    } catch (const Error& error) {
      EXPECT_EQ(error.message().find("some_op(f32[4]) on sim32: kernel fault_lanes_left"), 0U) << error.message();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Schedules, StreamsTest,
                         testing::Values(Schedule::forward, Schedule::backward, Schedule::random),
                         [](const auto& info) {
                           if (info.param == Schedule::forward) return "forward";
                           return info.param == Schedule::backward ? "backward" : "random";
                         });

}  // namespace
}  // namespace ingot::gpu
