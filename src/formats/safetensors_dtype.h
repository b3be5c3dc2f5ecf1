// The dtypes of safetensors by ascending rank. The official writer sorts tensors by descending rank, then by name.
#pragma once

#include <array>
#include <string_view>

namespace ingot::formats {

struct SafetensorsDtype {
  std::string_view name;
  int bits;
};

inline constexpr std::array<SafetensorsDtype, 22> safetensors_dtypes = {{
    {"BOOL", 8},    {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6},     {"U8", 8},          {"I8", 8},
    {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"I16", 16},
    {"U16", 16},    {"F16", 16},    {"BF16", 16},   {"I32", 32},        {"U32", 32},        {"F32", 32},
    {"C64", 64},    {"F64", 64},    {"I64", 64},    {"U64", 64},
}};

// Index into safetensors_dtypes; -1 for an unknown name.
int safetensors_rank(std::string_view dtype);

}  // namespace ingot::formats
