// The supported NumPy dtypes. Their names are a letter for the kind and a digit for the bytes per item, as in "i4".
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace ingot::formats {

inline constexpr size_t npy_max_dims = 64;  // NumPy's own limit

// b1, i1, i2, i4, i8, u1, u2, u4, u8, f2, f4 and f8.
bool is_npy_dtype(std::string_view dtype);

// All functions below REQUIRE is_npy_dtype(dtype).
size_t npy_item_size(std::string_view dtype);  // bytes

// The first item of `bytes` (little-endian, at least one item), for dtype b1, i* or u*. A boolean is 0 or 1. nullopt
// when the item does not fit in an int64.
std::optional<int64_t> npy_integer(std::string_view dtype, std::string_view bytes);
// All items of `bytes`, whose size must be a multiple of the item size; dtypes as for npy_integer. Errors: `corrupt`
// for an item that does not fit in an int64.
std::vector<int64_t> npy_integers(std::string_view dtype, std::string_view bytes);
// The first item of `bytes`, for dtypes f2, f4 and f8.
double npy_real(std::string_view dtype, std::string_view bytes);

}  // namespace ingot::formats
