// Operations that compute each lane's result from the same lane's operands.
#pragma once

#include <cstring>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

#include "tests/backend/gpu/ptx/warp.h"

namespace ingot::ptx {

// An operation, and the sizes of its operands' registers: a letter for each, p (predicate), 2, 4 or 8 (bytes).
struct Operation {
  Handler run = nullptr;
  std::string form;
};

template <class T>
using BitsOf = std::conditional_t<sizeof(T) == 2, uint16_t, std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>>;

template <class T>
constexpr char form_letter = std::is_same_v<T, bool> ? 'p' : static_cast<char>('0' + sizeof(T));

// The values of an operand over lanes.
template <class T>
struct Source {
  Source(const Warp& warp, uint32_t offset) : values(warp.at<const BitsOf<T>>(offset)) {}
  T operator[](int lane) const { return std::bit_cast<T>(values[lane]); }
  const BitsOf<T>* values;
};
template <>
struct Source<bool> {
  Source(const Warp& warp, uint32_t offset) : bits(*warp.at<const uint32_t>(offset)) {}
  bool operator[](int lane) const { return (bits >> lane & 1) != 0; }
  uint32_t bits;
};

template <class Bits>
void store_lanes(Bits* to, const Bits* values, uint32_t active) {
  if (active == all_lanes) {
    std::memcpy(to, values, lanes * sizeof(Bits));
  } else {
    for (int lane = 0; lane < lanes; ++lane) to[lane] = (active >> lane & 1) != 0 ? values[lane] : to[lane];
  }
}

template <class Function, class Result, class... Arguments>
struct Lanewise {
  static_assert(std::is_same_v<Result, bool> || sizeof(Result) >= 2);

  template <size_t... n>
  static void run_with(const Instruction& instruction, Warp& warp, uint32_t active, std::index_sequence<n...>) {
    const std::tuple<Source<Arguments>...> sources{Source<Arguments>(warp, instruction.at[n + 1])...};
    // All lanes are computed, the active ones stored: functions accept any operand.
    if constexpr (std::is_same_v<Result, bool>) {
      uint32_t result = 0;
      for (int lane = 0; lane < lanes; ++lane) {
        result |= static_cast<uint32_t>(Function{}(std::get<n>(sources)[lane]...)) << lane;
      }
      uint32_t& to = *warp.at<uint32_t>(instruction.at[0]);
      to = (to & ~active) | (result & active);
    } else {
      using Bits = BitsOf<Result>;
      alignas(64) Bits result[lanes];
      for (int lane = 0; lane < lanes; ++lane) {
        result[lane] = std::bit_cast<Bits>(Function{}(std::get<n>(sources)[lane]...));
      }
      store_lanes(warp.at<Bits>(instruction.at[0]), result, active);
    }
  }
  static void run(const Instruction& instruction, Warp& warp, uint32_t active) {
    run_with(instruction, warp, active, std::index_sequence_for<Arguments...>());
  }
};

template <class Function, class Result, class... Arguments>
Operation lanewise_of(Result (Function::*)(Arguments...) const) {
  return {&Lanewise<Function, Result, Arguments...>::run, {form_letter<Result>, form_letter<Arguments>...}};
}

// The operation of a lambda without captures, whose types are those of the operands.
template <class Function>
Operation lanewise(Function) {
  return lanewise_of(&Function::operator());
}

}  // namespace ingot::ptx
