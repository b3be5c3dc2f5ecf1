// The names and opcodes of pickles that the reader knows (pickle.h).
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <utility>

namespace ingot::formats {

// What a pickle may refer to by name, and call if it is a function.
enum class PickleCallable : uint8_t { reconstruct, ndarray, dtype, scalar, from_buffer, encode, bytes };

struct PickleName {
  std::string_view module, name;
  PickleCallable callable;
};

// NumPy 2 moved these modules into numpy._core; older files have the older names.
inline constexpr std::array<PickleName, 11> known_pickle_names = {{
    {"numpy._core.multiarray", "_reconstruct", PickleCallable::reconstruct},
    {"numpy.core.multiarray", "_reconstruct", PickleCallable::reconstruct},
    {"numpy._core.multiarray", "scalar", PickleCallable::scalar},
    {"numpy.core.multiarray", "scalar", PickleCallable::scalar},
    {"numpy._core.numeric", "_frombuffer", PickleCallable::from_buffer},
    {"numpy.core.numeric", "_frombuffer", PickleCallable::from_buffer},
    {"numpy", "ndarray", PickleCallable::ndarray},
    {"numpy", "dtype", PickleCallable::dtype},
    {"_codecs", "encode", PickleCallable::encode},    // how protocol 2 stores bytes
    {"__builtin__", "bytes", PickleCallable::bytes},  // and how it stores empty bytes
    {"builtins", "bytes", PickleCallable::bytes},
}};

// Opcodes that build something other than plain values, or that are older than protocol 2.
inline constexpr std::array<std::pair<char, const char*>, 28> refused_pickle_opcodes = {{
    {'0', "POP"},
    {'1', "POP_MARK"},
    {'2', "DUP"},
    {'F', "FLOAT"},
    {'I', "INT"},
    {'L', "LONG"},
    {'T', "BINSTRING"},
    {'U', "SHORT_BINSTRING"},
    {'S', "STRING"},
    {'V', "UNICODE"},
    {'P', "PERSID"},
    {'Q', "BINPERSID"},
    {'d', "DICT"},
    {'l', "LIST"},
    {'o', "OBJ"},
    {'i', "INST"},
    {'g', "GET"},
    {'p', "PUT"},
    {'\x81', "NEWOBJ"},
    {'\x82', "EXT1"},
    {'\x83', "EXT2"},
    {'\x84', "EXT4"},
    {'\x8f', "EMPTY_SET"},
    {'\x90', "ADDITEMS"},
    {'\x91', "FROZENSET"},
    {'\x92', "NEWOBJ_EX"},
    {'\x97', "NEXT_BUFFER"},
    {'\x98', "READONLY_BUFFER"},
}};

}  // namespace ingot::formats
