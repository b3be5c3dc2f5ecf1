// A token's weight in sampling, as an integer: sums of weights are exact, so they do not depend on their order, and
// every device samples the same token. Depends on no tensor code; the GPU kernels do the same arithmetic.
#pragma once

#include <array>
#include <cstdint>

namespace ingot::ops {

// The weight of the most likely token. Up to 2^23 tokens of this weight can be summed.
constexpr uint64_t sampling_one = uint64_t{1} << 40;

// ln(2)^n / n! * 2^32 for n = 9 .. 1: the Taylor series of 2^f - 1, whose remainder is below 2^-27 for f in [0, 1).
constexpr std::array<uint32_t, 9> sampling_series = {437,      5676,      65510,      661577,    5726720,
                                                     41309550, 238388332, 1031764991, 2977044472};

// 2^40 * 2^power, with a relative error of at most 2^-26 and rounded down, for power <= 0; 0 for power <= -41.
constexpr uint64_t sampling_weight(float power) {
  if (!(power > -48.0F)) return 0;
  const int64_t fixed = static_cast<int64_t>(power * 0x1p32F);  // exact except for bits below 2^-32
  const uint64_t fraction = static_cast<uint32_t>(fixed);
  uint64_t series = 0;
  for (const uint32_t term : sampling_series) series = term + (fraction * series >> 32);
  const uint64_t mantissa = (uint64_t{1} << 32) + (fraction * series >> 32);
  return (mantissa << 8) >> -(fixed >> 32);
}

// floor(total * part / 2^32), for part <= 2^32 and total < 2^63.
constexpr uint64_t scaled_fraction(uint64_t total, uint64_t part) {
  return (total >> 32) * part + ((total & 0xffffffffU) * part >> 32);
}

// floor(a * b / 2^64).
constexpr uint64_t multiply_high(uint64_t a, uint64_t b) {
  const uint64_t a0 = a & 0xffffffffU, a1 = a >> 32, b0 = b & 0xffffffffU, b1 = b >> 32;
  const uint64_t middle = a1 * b0 + (a0 * b0 >> 32);
  const uint64_t other = a0 * b1 + (middle & 0xffffffffU);
  return a1 * b1 + (middle >> 32) + (other >> 32);
}

}  // namespace ingot::ops
