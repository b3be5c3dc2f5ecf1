#include "tests/backend/gpu/ptx/warpgroup.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstring>

#include "base/error.h"

namespace ingot::ptx {
namespace {

constexpr int k_size = 16;                         // of bf16
constexpr int warp_rows = 16;                      // of the 64
constexpr uint32_t in_flight_bits = 0xffb0b0b0;    // a NaN that no arithmetic makes
constexpr size_t array_bytes = 4 * size_t{lanes};  // of a register

void check_whole(const Warp& warp) {
  if (warp.live != all_lanes) throw_error(ErrorKind::internal, "lanes of the warp have ended before it");
}

// "Matrix Descriptor": addresses and offsets in units of 16 bytes.
struct Matrix {
  uint32_t start = 0, leading = 0, stride = 0;  // bytes
};
Matrix matrix_of(uint64_t descriptor) {
  constexpr uint64_t known_bits = 0xc00e3fff3fff3fff;
  constexpr uint64_t swizzle_128 = 1;
  const auto field = [&](int shift) { return static_cast<uint32_t>(descriptor >> shift & 0x3fff) << 4; };
  const Matrix matrix{field(0), field(16), field(32)};
  const bool has_base_offset = (descriptor >> 49 & 7) != 0;
  if ((descriptor & ~known_bits) != 0 || descriptor >> 62 != swizzle_128 || has_base_offset ||
      matrix.start / 128 % 8 != 0) {
    throw_error(ErrorKind::unsupported, "the matrix descriptor {:#x} is not supported", descriptor);
  }
  return matrix;
}

// Where 8 elements lie. In a pattern of 1024 bytes the 16-byte chunks of its eighth i are permuted by i: "128-Byte
// Swizzle Mode".
uint32_t swizzled(uint32_t address) { return address ^ (address / 128 % 8 * 16); }
// Row `row`, columns 8 chunk and following, of a matrix whose rows are contiguous ("K-major"): groups of 8 rows are
// `stride` apart.
uint32_t k_major_chunk(const Matrix& matrix, int row, int chunk) {
  if (matrix.start % 128 > 96) throw_error(ErrorKind::internal, "the matrix leaves its rows of 128 bytes");
  return swizzled(matrix.start + static_cast<uint32_t>(row / 8) * matrix.stride +
                  static_cast<uint32_t>(row % 8 * 128 + chunk * 16));
}
// Column `k`, rows 8 chunk and following, of a matrix whose columns are contiguous ("MN-major"): groups of 64 rows are
// `leading` apart, those of 8 columns `stride`.
uint32_t mn_major_chunk(const Matrix& matrix, int k, int chunk) {
  if (matrix.start % 128 != 0) throw_error(ErrorKind::unsupported, "a transposed matrix begins within its pattern");
  return swizzled(matrix.start + static_cast<uint32_t>(chunk / 8) * matrix.leading +
                  static_cast<uint32_t>(k / 8) * matrix.stride + static_cast<uint32_t>(k % 8 * 128 + chunk % 8 * 16));
}

// Calls function(row, k, address) for each 8 elements of the product's b (from row 8 i on if it is transposed), and of
// the warp's rows of a.
template <class Function>
void for_each_chunk_of_b(const MatrixProduct& product, Function function) {
  const Matrix matrix = matrix_of(product.b_matrix);
  const int columns = product.instruction->items * 2;
  if ((product.instruction->flags & b_transposed) != 0) {
    for (int k = 0; k < k_size; ++k) {
      for (int chunk = 0; chunk < columns / 8; ++chunk) function(8 * chunk, k, mn_major_chunk(matrix, k, chunk));
    }
  } else {
    for (int column = 0; column < columns; ++column) {
      for (int chunk = 0; chunk < k_size / 8; ++chunk) {
        function(column, 8 * chunk, k_major_chunk(matrix, column, chunk));
      }
    }
  }
}
template <class Function>
void for_each_chunk_of_a(const MatrixProduct& product, int warp, Function function) {
  const Matrix matrix = matrix_of(product.a_matrix);
  for (int row = 0; row < warp_rows; ++row) {
    for (int chunk = 0; chunk < k_size / 8; ++chunk) {
      function(row, 8 * chunk, k_major_chunk(matrix, warp % 4 * warp_rows + row, chunk));
    }
  }
}

float value_of(uint32_t bf16) { return std::bit_cast<float>(bf16 << 16); }

// sums [columns / 2][lanes], in the layout of "Register Fragments for wgmma.mma_async.m64nNk16": with g = lane / 4 and
// t = lane % 4, register r has row g + 8 (r / 2 % 2), column 8 (r / 4) + 2 t + r % 2; register r of a has row
// g + 8 (r % 2), columns 8 (r / 2) + 2 t and the next.
void multiply(const MatrixProduct& product, Warp& warp, std::vector<uint32_t>& sums) {
  constexpr int max_columns = 256;
  const Accessor by{warp.index, 0, true};
  float a[warp_rows][k_size];
  float b[k_size][max_columns];
  if (product.a.empty()) {
    for_each_chunk_of_a(product, warp.index, [&](int row, int k, uint32_t address) {
      uint16_t codes[8];
      std::memcpy(codes, warp.shared->finish_product(address, 16, by), 16);
      for (int i = 0; i < 8; ++i) a[row][k + i] = value_of(codes[i]);
    });
  } else {
    for (int r = 0; r < 4; ++r) {
      for (int lane = 0; lane < lanes; ++lane) {
        const uint32_t codes = product.a[static_cast<size_t>(r * lanes + lane)];
        float* to = &a[lane / 4 + 8 * (r % 2)][8 * (r / 2) + 2 * (lane % 4)];
        to[0] = value_of(codes & 0xffff);
        to[1] = value_of(codes >> 16);
      }
    }
  }
  const bool transposed = (product.instruction->flags & b_transposed) != 0;
  for_each_chunk_of_b(product, [&](int column, int k, uint32_t address) {
    uint16_t codes[8];
    std::memcpy(codes, warp.shared->finish_product(address, 16, by), 16);
    for (int i = 0; i < 8; ++i) {
      b[transposed ? k : k + i][transposed ? column + i : column] = value_of(codes[i]);
    }
  });
  const int columns = product.instruction->items * 2;
  for (int row = 0; row < warp_rows; ++row) {
    double of_row[max_columns] = {};
    for (int k = 0; k < k_size; ++k) {
      const auto factor = static_cast<double>(a[row][k]);
      for (int column = 0; column < columns; ++column) of_row[column] += factor * static_cast<double>(b[k][column]);
    }
    for (int column = 0; column < columns; ++column) {
      const int r = column / 8 * 4 + row / 8 * 2 + column % 2;
      uint32_t& bits = sums[static_cast<size_t>(r * lanes + row % 8 * 4 + column % 8 / 2)];
      const double before = product.accumulates ? static_cast<double>(std::bit_cast<float>(bits)) : 0.0;
      const auto sum = static_cast<float>(before + of_row[column]);
      bits = sum == sum ? std::bit_cast<uint32_t>(sum) : 0x7fffffff;
    }
  }
}

uint64_t descriptor_at(const Warp& warp, uint32_t offset) {
  const auto* values = warp.at<const uint64_t>(offset);
  if (!std::all_of(values, values + lanes, [&](uint64_t value) { return value == values[0]; })) {
    throw_error(ErrorKind::internal, "the lanes have different matrix descriptors");
  }
  return values[0];
}

void check_fenced(const Warp& warp, uint32_t offset) {
  if (std::memcmp(warp.registers + offset, warp.products.fenced.data() + offset, array_bytes) != 0) {
    throw_error(ErrorKind::internal, "its registers were written after the last wgmma.fence");
  }
}

// Sets the registers of the product's sums, which the warp must not have written meanwhile.
void set_sums(const Instruction& instruction, Warp& warp, const uint32_t* values) {
  for (int r = 0; r < instruction.items; ++r) {
    const uint32_t offset = instruction.at[r];
    if (values != nullptr) {
      std::memcpy(warp.registers + offset, values + static_cast<size_t>(r) * lanes, array_bytes);
    } else {
      std::fill_n(warp.at<uint32_t>(offset), lanes, in_flight_bits);
    }
    std::memcpy(warp.products.fenced.data() + offset, warp.registers + offset, array_bytes);
  }
}

void check_in_flight(const Instruction& instruction, const Warp& warp) {
  for (int r = 0; r < instruction.items; ++r) {
    const auto* values = warp.at<const uint32_t>(instruction.at[r]);
    if (!std::all_of(values, values + lanes, [](uint32_t value) { return value == in_flight_bits; })) {
      throw_error(ErrorKind::internal, "the sums of a matrix product were written before it was waited for");
    }
  }
}

void finish(const MatrixProduct& product, Warp& warp) {
  const Instruction& instruction = *product.instruction;
  const auto found = warp.products.sums.find(instruction.at[0]);
  SumsInFlight& sums = found->second;
  check_in_flight(instruction, warp);
  for (size_t r = 0; r * lanes < product.a.size(); ++r) {
    if (std::memcmp(warp.at<const uint32_t>(instruction.at[instruction.items + r]), product.a.data() + r * lanes,
                    array_bytes) != 0) {
      throw_error(ErrorKind::internal, "an operand of a matrix product was written before it was waited for");
    }
  }
  multiply(product, warp, sums.values);
  if (--sums.products > 0) return;
  set_sums(instruction, warp, sums.values.data());
  warp.products.sums.erase(found);
}

}  // namespace

int product_columns(std::string_view opcode) {
  constexpr std::string_view begin = "wgmma.mma_async.sync.aligned.m64n";
  constexpr std::string_view end = "k16.f32.bf16.bf16";
  if (!opcode.starts_with(begin) || !opcode.ends_with(end)) return 0;
  int columns = 0;
  std::from_chars(opcode.data() + begin.size(), opcode.data() + opcode.size() - end.size(), columns);
  return columns % 8 == 0 && columns <= 256 ? columns : 0;
}

void issue_product(const Instruction& instruction, Warp& warp, uint32_t) {
  check_whole(warp);
  MatrixProducts& products = warp.products;
  if (products.fenced.empty()) throw_error(ErrorKind::internal, "there is no wgmma.fence before it");
  const bool in_registers = (instruction.flags & a_in_registers) != 0;
  const uint32_t* operands = instruction.at + instruction.items;
  MatrixProduct product;
  product.instruction = &instruction;
  for (int r = 0; in_registers && r < 4; ++r) {
    check_fenced(warp, operands[r]);
    const auto* values = warp.at<const uint32_t>(operands[r]);
    product.a.insert(product.a.end(), values, values + lanes);
  }
  if (!in_registers) product.a_matrix = descriptor_at(warp, operands[0]);
  operands += in_registers ? 4 : 1;
  product.b_matrix = descriptor_at(warp, operands[0]);
  const uint32_t accumulates = *warp.at<const uint32_t>(operands[1]);
  if (accumulates != 0 && accumulates != all_lanes) {
    throw_error(ErrorKind::internal, "the lanes disagree on whether the product is added");
  }
  product.accumulates = accumulates != 0;
  product.group = products.committed + 1;

  SumsInFlight& sums = products.sums[instruction.at[0]];
  if (sums.products++ > 0) {
    if (sums.values.size() != static_cast<size_t>(instruction.items) * lanes) {
      throw_error(ErrorKind::unsupported, "products of different shapes in the same registers are not supported");
    }
    check_in_flight(instruction, warp);
  } else {
    for (int r = 0; r < instruction.items; ++r) {
      check_fenced(warp, instruction.at[r]);
      const auto* values = warp.at<const uint32_t>(instruction.at[r]);
      sums.values.insert(sums.values.end(), values, values + lanes);
    }
    set_sums(instruction, warp, nullptr);
  }
  const Accessor by{warp.index, 0, true};
  const auto start = [&](int, int, uint32_t address) { warp.shared->start_product(address, 16, by); };
  if (!in_registers) for_each_chunk_of_a(product, warp.index, start);
  for_each_chunk_of_b(product, start);
  for (const uint64_t part : {static_cast<uint64_t>(instruction.line), product.a_matrix, product.b_matrix,
                              static_cast<uint64_t>(product.accumulates)}) {
    products.issued = (products.issued ^ (part + 1)) * 0x9e3779b97f4a7c15;
    products.issued ^= products.issued >> 29;
  }
  products.pending.push_back(std::move(product));
}

void fence_registers(const Instruction&, Warp& warp, uint32_t) {
  check_whole(warp);
  warp.products.fenced.assign(warp.registers, warp.registers + warp.register_bytes);
}

void commit_products(const Instruction&, Warp& warp, uint32_t) {
  check_whole(warp);
  ++warp.products.committed;
}

void wait_products(const Instruction& instruction, Warp& warp, uint32_t) {
  check_whole(warp);
  MatrixProducts& products = warp.products;
  const int last = products.committed - static_cast<int>(instruction.literal);
  auto product = products.pending.begin();
  for (; product != products.pending.end() && product->group <= last; ++product) finish(*product, warp);
  products.pending.erase(products.pending.begin(), product);
}

void fence_proxy(const Instruction&, Warp& warp, uint32_t active) {
  for_each_lane(active, [&](int lane) { warp.shared->fence_proxy(warp.accessor(lane)); });
}

}  // namespace ingot::ptx
