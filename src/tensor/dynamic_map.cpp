#include "tensor/dynamic_map.h"

namespace ingot {

namespace {

std::array<float, 256> make_map(bool is_signed) {
  std::array<float, 256> map{};  // the code of 0 is 0, or 127 with a sign
  const int zero = is_signed ? 127 : 0;
  map[255] = 1;
  double unit = 1e-6;
  int code = zero;
  for (int decade = 0; decade < dynamic_map_decades; ++decade) {
    const int cells = 1 << (is_signed ? decade : decade + 1);
    for (int cell = 0; cell < cells; ++cell) {
      const auto value = static_cast<float>(unit * (0.1 + 0.9 * (cell + 0.5) / cells));
      ++code;
      map[static_cast<size_t>(code)] = value;
      if (is_signed) map[static_cast<size_t>(2 * zero - code)] = -value;
    }
    unit *= 10;
  }
  return map;
}

}  // namespace

const std::array<float, 256>& dynamic_map(bool is_signed) {
  static const std::array<float, 256> with_sign = make_map(true);
  static const std::array<float, 256> without = make_map(false);
  return is_signed ? with_sign : without;
}

}  // namespace ingot
