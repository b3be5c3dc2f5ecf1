#include "backend/cpu/row_order.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <limits>

#include "backend/cpu/isa.h"
#include "base/thread_pool.h"
#include "ops/matmul.h"

namespace ingot::cpu {
namespace {

struct KnownProcessors {
  const char* vendor;
  int64_t family, first_model, last_model;
  RowOrder order;
};

// AMD: as Linux names families 19h and 1Ah (arch/x86/kernel/cpu/amd.c); Intel: CPUID signatures of its Software
// Developer's Manual, volume 4, table 2-1. Zen 5 and Sapphire Rapids were measured before `streams` existed: they keep
// what they had.
constexpr KnownProcessors known_processors[] = {
    {"AuthenticAMD", 0x19, 0x10, 0x1f, RowOrder::streams},      // Zen 4: EPYC 9004, Threadripper 7000
    {"AuthenticAMD", 0x19, 0x60, 0x7f, RowOrder::streams},      // Zen 4: Ryzen 7000 and 8000
    {"AuthenticAMD", 0x19, 0xa0, 0xaf, RowOrder::streams},      // Zen 4c: EPYC 97x4
    {"AuthenticAMD", 0x1a, 0x00, 0x2f, RowOrder::interleaved},  // Zen 5: EPYC 9005, Ryzen AI 300
    {"AuthenticAMD", 0x1a, 0x40, 0x4f, RowOrder::interleaved},  // Zen 5: Ryzen 9000
    {"AuthenticAMD", 0x1a, 0x60, 0x7f, RowOrder::interleaved},  // Zen 5: Ryzen AI 300 and Max
    {"GenuineIntel", 6, 0x8f, 0x8f, RowOrder::interleaved},     // Sapphire Rapids
};

}  // namespace

const char* name(RowOrder order) {
  switch (order) {
    case RowOrder::streams: return "streams";
    case RowOrder::interleaved: return "interleaved";
    case RowOrder::prefetched: return "prefetched";
  }
  return "?";
}

std::optional<RowOrder> known_row_order(const ProcessorId& processor) {
  for (const KnownProcessors& known : known_processors) {
    if (processor.vendor == known.vendor && processor.family == known.family && processor.model >= known.first_model &&
        processor.model <= known.last_model) {
      return known.order;
    }
  }
  return std::nullopt;
}

RowOrder measure_row_order(ops::Context& context) {
  constexpr int rounds = 2;
  constexpr int64_t in = 1024, out = (int64_t{256} << 20) / (in * 2);  // larger than the caches
  const Buffer memory(context.device, static_cast<size_t>(in * out) * 2);
  const Buffer activations(context.device, static_cast<size_t>(in + out) * 2);
  // Pages that were never written would all be one page of zeros.
  context.threads->parallel_for(0, in * out, in * 64, [&](int64_t lo, int64_t hi) {
    std::fill(static_cast<uint16_t*>(memory.data()) + lo, static_cast<uint16_t*>(memory.data()) + hi, uint16_t{0x3c00});
  });
  const Weight weight{
      .storage = StorageType::bf16, .data = memory.data(), .out = out, .in = in, .device = &context.device};
  const Tensor both = activations.view(DType::bf16, {in + out});
  const Tensor x = both.slice(0, in).reshape({1, in});
  const Tensor y = both.slice(in, in + out).reshape({1, out});

  std::array<ops::Registry, row_orders.size()> registries;
  std::array<double, row_orders.size()> seconds;
  seconds.fill(std::numeric_limits<double>::infinity());
  Levels levels = machine_levels();
  for (size_t i = 0; i < row_orders.size(); ++i) {
    levels.row_order = row_orders[i];
    register_ops(registries[i], levels);
  }
  for (int round = 0; round < rounds; ++round) {
    for (size_t i = 0; i < row_orders.size(); ++i) {
      ops::Context measured{context.device, registries[i], context.scratch, context.threads};
      const auto start = std::chrono::steady_clock::now();
      ops::linear(measured, y, x, weight, {});
      const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
      seconds[i] = std::min(seconds[i], taken.count());
    }
  }
  return row_orders[static_cast<size_t>(std::min_element(seconds.begin(), seconds.end()) - seconds.begin())];
}

}  // namespace ingot::cpu
