// The numeric element types of NumPy that are read: a letter for the kind, a digit for the bytes of an item.
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

// All of these REQUIRE is_npy_dtype(dtype).
size_t npy_item_size(std::string_view dtype);  // bytes

// The item at the start of little-endian `bytes`, which hold at least one.
// b1, i, u; a boolean is 0 or 1. Nothing for what an int64 does not hold.
std::optional<int64_t> npy_integer(std::string_view dtype, std::string_view bytes);
// All items of `bytes`, whole ones. Errors: `corrupt` for one that an int64 does not hold.
std::vector<int64_t> npy_integers(std::string_view dtype, std::string_view bytes);
// f2, f4, f8.
double npy_real(std::string_view dtype, std::string_view bytes);

}  // namespace ingot::formats
