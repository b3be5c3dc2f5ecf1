// Which order of reading weights (RowOrder, simd/skinny_gemm.h) suits a processor.
#pragma once

#include <array>
#include <optional>

#include "backend/cpu/simd/skinny_gemm.h"
#include "base/processor.h"
#include "ops/context.h"

namespace ingot::cpu {

constexpr std::array row_orders = {RowOrder::streams, RowOrder::interleaved, RowOrder::prefetched};

const char* name(RowOrder order);

// The order that was the fastest when this kind of processor was measured (bench/reports); absent for others.
std::optional<RowOrder> known_row_order(const ProcessorId& processor);

// The fastest order on this machine, measured with the context's threads in about 150 ms and 256 MiB of memory.
RowOrder measure_row_order(ops::Context& context);

}  // namespace ingot::cpu
