// Adapter slots on a device whose memory the host cannot access: copies in progress, and how they end.
#include "infer/adapter_slots.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "spec/lora.h"
#include "tests/counting_device.h"

namespace ingot::infer {
namespace {

constexpr int64_t rank = 64;

// A device that counts the bytes copied to it outside ops.
class FarDevice : public CountingDevice {
 public:
  FarDevice() : CountingDevice(false) {}
  void copy_from_host_async(Stream stream, void* to, const void* from, size_t bytes) override {
    EXPECT_EQ(stream, Stream::copy);
    copied += bytes;
    CountingDevice::copy_from_host_async(stream, to, from, bytes);
  }
  size_t copied = 0;
};

// Adapters large enough for several chunks of the copy thread.
class AdapterSlotsTest : public testing::Test {
 protected:
  AdapterSlotsTest() {
    model_.family = "llama";
    model_.vocab = 64;
    model_.hidden = 1024;
    spec::LayerSpec layer;
    layer.attention.heads = layer.attention.kv_heads = 8;
    layer.attention.head_dim = 128;
    layer.mlp = spec::Dense{.features = 2048};
    model_.layers = spec::repeated(3, layer);
    model_.context = 64;
    for (const spec::LoraParam& p : layers()) bytes_ += weight_bytes(p);
    EXPECT_GT(bytes_, 2 * CopyThread::chunk_bytes);
  }

  std::vector<spec::LoraParam> layers() const {
    return spec::lora_parameters(model_, {.rank = rank, .alpha = 1, .targets = {"all-linear"}});
  }
  static size_t weight_bytes(const spec::LoraParam& p) { return static_cast<size_t>(p.rank * (p.in + p.out)) * 4; }

  // All weights are `value`. They are in `memory`, which the adapter does not own.
  std::shared_ptr<const HostAdapter> adapter(std::vector<float>& memory, float value) {
    memory.assign(bytes_ / 4, value);
    float* next = memory.data();
    nn::Adapter weights;
    weights.layers.resize(spec::parameters(model_).size());
    for (const spec::LoraParam& p : layers()) {
      weights.layers[p.base].a = {next, DType::f32, Shape{p.rank, p.in}, nullptr};
      next += p.rank * p.in;
      weights.layers[p.base].b = {next, DType::f32, Shape{p.out, p.rank}, nullptr};
      next += p.rank * p.out;
    }
    return shared_adapter(&weights);
  }

  struct Slots {
    Arena arena;
    AdapterSlots slots;
    Slots(FarDevice& device, const spec::ModelSpec& model, int64_t count)
        : arena(device, AdapterSlots::bytes(model, {}, count, rank, DType::f32, false), "adapters"),
          slots(device, arena, model, {}, count, rank, DType::f32) {}
  };

  // Whether all weights that the slot's entries point to are `value`.
  bool weights_are(const AdapterSlots& slots, int64_t slot, float value) const {
    const auto* entries = static_cast<const ops::LoraEntry*>(slots.entries().data) + slot * slots.entries().shape[1];
    bool all = true;
    for (const spec::LoraParam& p : layers()) {
      const ops::LoraEntry& entry = entries[p.base];
      const auto equal = [&](const void* at, int64_t count) {
        const auto* numbers = static_cast<const float*>(at);
        return std::all_of(numbers, numbers + count, [&](float number) { return number == value; });
      };
      all = all && entry.rank == rank && equal(entry.a, p.rank * p.in) && equal(entry.b, p.out * p.rank);
    }
    return all;
  }

  FarDevice device_;
  spec::ModelSpec model_;
  size_t bytes_ = 0;
};

// `acquire` copies nothing. The copy starts in the thread that asks whether the slot is ready.
TEST_F(AdapterSlotsTest, ASlotIsFilledInTheBackground) {
  Slots made(device_, model_, 2);
  AdapterSlots& slots = made.slots;
  std::vector<float> first, second;
  const int64_t one = slots.acquire(adapter(first, 1)), other = slots.acquire(adapter(second, 2));
  EXPECT_EQ(device_.copied, 0U);
  while (!slots.ready(one)) {
  }
  EXPECT_GT(device_.copied, bytes_);
  EXPECT_LT(device_.copied, 2 * bytes_);
  slots.wait(other);
  EXPECT_TRUE(slots.ready(other));
  EXPECT_GT(device_.copied, 2 * bytes_);
  EXPECT_TRUE(weights_are(slots, one, 1));
  EXPECT_TRUE(weights_are(slots, other, 2));
}

// A second user shares the copy in progress; when one user releases the slot, the other keeps it.
TEST_F(AdapterSlotsTest, TwoUsersShareACopyInProgress) {
  Slots made(device_, model_, 2);
  AdapterSlots& slots = made.slots;
  std::vector<float> memory;
  const auto shared = adapter(memory, 3);
  const int64_t slot = slots.acquire(shared);
  EXPECT_EQ(slots.acquire(shared), slot);
  slots.release(slot);
  slots.wait(slot);
  EXPECT_TRUE(weights_are(slots, slot, 3));
  slots.release(slot);
  EXPECT_EQ(slots.acquire(shared), slot);
  EXPECT_TRUE(slots.ready(slot)) << "the slot is still filled";
  EXPECT_EQ(slots.uploads(), 1);
}

// When the last user releases a slot, its copy ends and the adapter is not read any more, whether the copy had started
// or was queued. The slot can be used again.
TEST_F(AdapterSlotsTest, ACopyEndsWithItsLastUser) {
  Slots made(device_, model_, 2);
  AdapterSlots& slots = made.slots;
  for (float time = 0; time < 8; ++time) {
    std::vector<float> first, second, third;
    const int64_t held = slots.acquire(adapter(first, 1)), other = slots.acquire(adapter(second, 2));
    EXPECT_NE(held, other);
    const std::vector<int64_t> order =
        static_cast<int>(time) % 2 == 0 ? std::vector{held, other} : std::vector{other, held};
    for (const int64_t slot : order) {
      slots.release(slot);
      std::vector<float>& memory = slot == held ? first : second;
      std::fill(memory.begin(), memory.end(), -1.0F);
    }
    // An interrupted copy starts again from the beginning.
    const auto again = adapter(third, 3 + time);
    slots.release(slots.acquire(again));
    const int64_t uploads = slots.uploads();
    const int64_t slot = slots.acquire(again);
    slots.wait(slot);
    EXPECT_EQ(slots.uploads(), uploads + 1);
    EXPECT_TRUE(weights_are(slots, slot, 3 + time));
    slots.release(slot);
  }
}

// The thread sanitizer detects a copy that reads weights after the slots were destroyed.
TEST_F(AdapterSlotsTest, SlotsCanBeDestroyedDuringACopy) {
  std::vector<float> first, second;
  {
    Slots made(device_, model_, 2);
    made.slots.acquire(adapter(first, 1));
    made.slots.acquire(adapter(second, 2));
    EXPECT_EQ(made.slots.uploads(), 2);
  }
  EXPECT_EQ(device_.copied, 0U) << "nothing asked whether the slots are ready";
  std::fill(first.begin(), first.end(), -1.0F);
  std::fill(second.begin(), second.end(), -1.0F);
}

}  // namespace
}  // namespace ingot::infer
