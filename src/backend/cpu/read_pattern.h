// Which pattern of reading weights suits a processor (ReadPattern, simd/skinny_gemm.h).
#pragma once

#include <array>
#include <optional>

#include "backend/cpu/simd/skinny_gemm.h"
#include "base/processor.h"
#include "ops/context.h"

namespace ingot::cpu {

constexpr std::array read_patterns = {ReadPattern::sequential, ReadPattern::side_by_side, ReadPattern::prefetched};

const char* name(ReadPattern pattern);

// The pattern that was the fastest when this kind of processor was measured (bench/reports); absent for others.
std::optional<ReadPattern> known_read_pattern(const ProcessorId& processor);

// The fastest of the patterns on this machine, measured with the context's threads in about 100 ms and 64 MiB of
// memory.
ReadPattern measure_read_pattern(ops::Context& context);

}  // namespace ingot::cpu
