#include "tests/backend/gpu/ptx/warp_wide.h"

#include <array>

#include "base/error.h"
#include "tests/backend/gpu/ptx/arithmetic.h"

namespace ingot::ptx {
namespace {

void check_members(const Warp& warp, uint32_t operand) {
  const uint32_t members = warp.at<const uint32_t>(operand)[0];
  if (members != all_lanes) throw_error(ErrorKind::unsupported, "the member mask {:#x} is not supported", members);
}

void check_whole(const Warp& warp) {
  if (warp.live != all_lanes) throw_error(ErrorKind::internal, "lanes of the warp have ended before it");
}

void barrier(const Instruction& instruction, Warp& warp, uint32_t) {
  check_members(warp, instruction.at[0]);
  warp.shared->warp_barrier(warp.index);
}

enum class Shuffle { up, down, bfly, idx };

// d|p, a, b, c, members: "shfl.sync" has this in pseudocode.
template <Shuffle mode>
void shuffle(const Instruction& instruction, Warp& warp, uint32_t active) {
  check_members(warp, instruction.at[5]);
  const auto* a = warp.at<const uint32_t>(instruction.at[2]);
  const auto* b = warp.at<const uint32_t>(instruction.at[3]);
  const auto* c = warp.at<const uint32_t>(instruction.at[4]);
  uint32_t result[lanes], in_range = 0;
  for (int lane = 0; lane < lanes; ++lane) {
    const auto distance = static_cast<int>(b[lane] & 31);
    const auto clamp = static_cast<int>(c[lane] & 31);
    const auto segment = static_cast<int>(c[lane] >> 8 & 31);
    const int first = lane & segment;
    const int last = first | (clamp & ~segment);
    int from = 0;
    switch (mode) {
      case Shuffle::up: from = lane - distance; break;
      case Shuffle::down: from = lane + distance; break;
      case Shuffle::bfly: from = lane ^ distance; break;
      case Shuffle::idx: from = first | (distance & ~segment); break;
    }
    const bool valid = mode == Shuffle::up ? from >= last : from <= last;
    if (!valid) from = lane;
    if ((active >> lane & 1) != 0 && (active >> from & 1) == 0) {
      throw_error(ErrorKind::internal, "lane {} reads lane {}, which has ended", lane, from);
    }
    result[lane] = a[from];
    in_range |= static_cast<uint32_t>(valid) << lane;
  }
  store_lanes(warp.at<uint32_t>(instruction.at[0]), result, active);
  uint32_t& valid = *warp.at<uint32_t>(instruction.at[1]);
  valid = (valid & ~active) | (in_range & active);
}

void ballot(const Instruction& instruction, Warp& warp, uint32_t active) {
  check_members(warp, instruction.at[2]);
  const uint32_t votes = *warp.at<const uint32_t>(instruction.at[1]) & active;
  for_each_lane(active, [&](int lane) { warp.at<uint32_t>(instruction.at[0])[lane] = votes; });
}

// Lane 8 m + r has the address of row r (16 bytes) of matrix m. Lane l gets two elements of each matrix in a register:
// (l / 4, 2 (l % 4)) and the next in the row; if transposed (2 (l % 4), l / 4) and the next in the column.
template <bool transposed>
void load_matrices(const Instruction& instruction, Warp& warp, uint32_t) {
  check_whole(warp);
  const auto* addresses = warp.at<const uint32_t>(instruction.at[4]);
  for (int matrix = 0; matrix < 4; ++matrix) {
    uint16_t elements[8][8];
    for (int row = 0; row < 8; ++row) {
      const auto address = static_cast<uint32_t>(addresses[matrix * 8 + row] + instruction.literal);
      std::memcpy(elements[row], warp.shared->read(address, 16, {warp.index, 0, true}), 16);
    }
    auto* to = warp.at<uint32_t>(instruction.at[matrix]);
    for (int lane = 0; lane < lanes; ++lane) {
      const int i = lane / 4;
      const int j = lane % 4 * 2;
      const uint16_t low = transposed ? elements[j][i] : elements[i][j];
      const uint16_t high = transposed ? elements[j + 1][i] : elements[i][j + 1];
      to[lane] = low | static_cast<uint32_t>(high) << 16;
    }
  }
}

std::array<float, 65536> values_of_f16() {
  std::array<float, 65536> values;
  for (uint32_t code = 0; code < 65536; ++code) values[code] = static_cast<float>(small_float(code, 5, 10));
  return values;
}

// Types of matrix elements: `bits` of each, `value` of its code.
struct Bf16 {
  static constexpr int bits = 16;
  static float value(uint32_t code) { return std::bit_cast<float>(code << 16); }
};
struct F16 {
  static constexpr int bits = 16;
  static float value(uint32_t code) {
    static const std::array<float, 65536> values = values_of_f16();
    return values[code];
  }
};
struct E4m3 {
  static constexpr int bits = 8;
  static float value(uint32_t code) { return static_cast<float>(small_float(code, 4, 3, true)); }
};
struct E5m2 {
  static constexpr int bits = 8;
  static float value(uint32_t code) { return static_cast<float>(small_float(code, 5, 2)); }
};

// d, a, b, c: d = a b + c with a 16 x k, b k x 8, c and d 16 x 8. With g = lane / 4, t = lane % 4 and n elements in a
// register
// ("Matrix fragments for mma.m16n8k16 with floating point type", "... for mma.m16n8k32"):
//   a: register r has row g + 8 (r % 2), columns n t + k / 2 (r / 2) and following
//   b: register r has column g, rows n t + k / 2 r and following
//   c, d: register r has row g + 8 (r / 2), column 2 t + r % 2
template <class A, class B>
void multiply_matrices(const Instruction& instruction, Warp& warp, uint32_t) {
  check_whole(warp);
  static_assert(A::bits == B::bits);
  constexpr int n = 32 / A::bits;
  constexpr int k = 8 * n;
  constexpr uint32_t mask = (1U << A::bits) - 1;
  float a[16][k], b[k][8];
  double sums[16][8];
  for (int lane = 0; lane < lanes; ++lane) {
    const int g = lane / 4;
    const int t = lane % 4;
    for (int r = 0; r < 4; ++r) {
      const uint32_t codes = warp.at<const uint32_t>(instruction.at[4 + r])[lane];
      for (int i = 0; i < n; ++i) {
        a[g + 8 * (r % 2)][n * t + k / 2 * (r / 2) + i] = A::value(codes >> A::bits * i & mask);
      }
      sums[g + 8 * (r / 2)][2 * t + r % 2] =
          std::bit_cast<float>(warp.at<const uint32_t>(instruction.at[10 + r])[lane]);
    }
    for (int r = 0; r < 2; ++r) {
      const uint32_t codes = warp.at<const uint32_t>(instruction.at[8 + r])[lane];
      for (int i = 0; i < n; ++i) b[n * t + k / 2 * r + i][g] = B::value(codes >> B::bits * i & mask);
    }
  }
  for (int row = 0; row < 16; ++row) {
    for (int i = 0; i < k; ++i) {
      for (int column = 0; column < 8; ++column) {
        sums[row][column] += static_cast<double>(a[row][i]) * static_cast<double>(b[i][column]);
      }
    }
  }
  for (int lane = 0; lane < lanes; ++lane) {
    for (int r = 0; r < 4; ++r) {
      const auto sum = static_cast<float>(sums[lane / 4 + 8 * (r / 2)][2 * (lane % 4) + r % 2]);
      warp.at<uint32_t>(instruction.at[r])[lane] = sum == sum ? std::bit_cast<uint32_t>(sum) : 0x7fffffff;
    }
  }
}

struct Named {
  std::string_view opcode;
  Handler run;
  const char* form;
};

constexpr const char* mma_form = "44444444444444";
constexpr Named operations[] = {
    {"bar.warp.sync", barrier, "4"},
    {"shfl.sync.up.b32", shuffle<Shuffle::up>, "4p4444"},
    {"shfl.sync.down.b32", shuffle<Shuffle::down>, "4p4444"},
    {"shfl.sync.bfly.b32", shuffle<Shuffle::bfly>, "4p4444"},
    {"shfl.sync.idx.b32", shuffle<Shuffle::idx>, "4p4444"},
    {"vote.sync.ballot.b32", ballot, "4p4"},
    {"ldmatrix.sync.aligned.m8n8.x4.shared.b16", load_matrices<false>, "44444"},
    {"ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16", load_matrices<true>, "44444"},
    {"mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", multiply_matrices<Bf16, Bf16>, mma_form},
    {"mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", multiply_matrices<F16, F16>, mma_form},
    {"mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32", multiply_matrices<E4m3, E4m3>, mma_form},
    {"mma.sync.aligned.m16n8k32.row.col.f32.e5m2.e4m3.f32", multiply_matrices<E5m2, E4m3>, mma_form},
};

}  // namespace

Operation warp_wide_operation(std::string_view opcode) {
  for (const Named& operation : operations) {
    if (operation.opcode == opcode) return {operation.run, operation.form};
  }
  return {};
}

}  // namespace ingot::ptx
