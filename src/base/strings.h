// Text helpers: number formatting, spelling suggestions, UTF-8, JSON.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ingot {

// "512 B", "1.5 KiB", "13.5 GiB": powers of 1024, three significant digits.
std::string format_bytes(uint64_t bytes);

// "0.25 s", "12 s", "3m 05s", "2h 07m", "4d 03h"; "?" for negative or non-finite seconds.
std::string format_duration(double seconds);

// "950", "1.23k", "135M", "7.24B", "1.5T": powers of 1000, three significant digits.
std::string format_count(double count);

// Levenshtein distance in bytes, where a swap of two adjacent bytes costs one.
size_t edit_distance(std::string_view a, std::string_view b);

// The candidate nearest to `name`, or empty when none is near: at most a third of the longer name's length (but at
// least one edit) may differ. Case is ignored. The first of equals wins.
std::string nearest(std::string_view name, std::span<const std::string> candidates);

// Whether `text` is well-formed UTF-8 as Unicode's table 3-7 has it: no overlong forms, no surrogates, up to U+10FFFF.
bool is_utf8(std::string_view text);

// The number of terminal columns that UTF-8 `text` occupies, counting every code point but combining marks as one.
size_t num_columns(std::string_view text);

// A JSON string literal, quotes included. Control characters, quotes and backslashes are escaped; a byte that is not
// part of well-formed UTF-8 becomes U+FFFD, so the result is always valid JSON.
std::string json_escape(std::string_view text);

// The value of a hexadecimal digit of either case; -1 for any other character.
int hex_digit(char c);

// Pieces between `separator`s; always at least one piece.
std::vector<std::string> split(std::string_view text, char separator);

// Without leading and trailing spaces, tabs and line ends.
std::string_view trim(std::string_view text);

}  // namespace ingot
