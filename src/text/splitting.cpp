#include "text/splitting.h"

#include <algorithm>

#include "text/split_patterns.h"

namespace ingot::text {
namespace {

// Words are cut where small letters are followed by capital ones.
constexpr std::string_view tekken_pattern =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view gpt4o_pattern =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

constexpr std::string_view llama3[] = {llama3_pattern};
constexpr std::string_view qwen2[] = {qwen2_pattern};
constexpr std::string_view tekken[] = {tekken_pattern};
constexpr std::string_view gpt4o[] = {gpt4o_pattern};
// What llama.cpp makes of files that name no splitting, or one that it does not know.
constexpr std::string_view unnamed[] = {R"([\p{P}\$\+<=>\^~\|]+)", gpt2_pattern, R"(\p{N}+)", "[0-9][0-9][0-9]"};

constexpr Splitting table[] = {
    {"gpt-2", {}},
    {"smollm", {}, true},
    {"llama-bpe", llama3, false, false, true, true},
    {"qwen2", qwen2, false, true},
    {"tekken", tekken, false, false, true},
    {"gpt-4o", gpt4o},
    {"dbrx", llama3},
    {"default", unnamed},
    {"mpt", {}},
    {"phi-2", {}},
    {"starcoder", {}, true},
    {"refact", {}, true},
    {"llama3", llama3, false, false, true, true},
    {"llama-v3", llama3, false, false, true, true},
    {"falcon3", llama3, false, false, true, true},
};

}  // namespace

std::span<const Splitting> splittings() { return table; }

const Splitting* find_splitting(std::string_view name) {
  if (name.empty()) name = "default";
  const auto* found = std::find_if(std::begin(table), std::end(table), [&](const auto& s) { return s.name == name; });
  return found == std::end(table) ? nullptr : found;
}

std::string splitting_names() {
  std::string names;
  for (const Splitting& splitting : table) (names += names.empty() ? "" : ", ") += splitting.name;
  return names;
}

}  // namespace ingot::text
