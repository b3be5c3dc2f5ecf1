#include "text/bpe.h"

#include <algorithm>
#include <bit>
#include <queue>

#include "base/error.h"
#include "text/unicode.h"

namespace ingot::text {
namespace {

uint64_t pair_key(int32_t left, int32_t right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

// Mixes the bits of a pair of ids (multiplication by the golden ratio, upper half folded in).
size_t hash_pair(uint64_t pair) {
  const uint64_t product = pair * 0x9E3779B97F4A7C15ULL;
  return static_cast<size_t>(product ^ product >> 32);
}

struct Candidate {
  int32_t rank;
  int32_t left;   // index of the left symbol
  uint64_t pair;  // ids that the two symbols had
  int32_t id;     // what they become

  bool operator<(const Candidate& other) const {  // the top of the queue is the lowest rank, then the leftmost
    return rank != other.rank ? rank > other.rank : left > other.left;
  }
};

}  // namespace

BpeModel::BpeModel(std::vector<std::pair<std::string, int32_t>> tokens, const std::vector<Merge>& merges,
                   const BpeOptions& options, std::string_view name)
    : options_(options) {
  ids_.reserve(tokens.size());
  for (auto& [piece, id] : tokens) ids_.emplace(pieces_.emplace_back(std::move(piece)), id);

  for (size_t byte = 0; byte < byte_ids_.size(); ++byte) {
    const std::string piece =
        options_.byte_level ? std::string(1, static_cast<char>(byte)) : fmt::format("<0x{:02X}>", byte);
    byte_ids_[byte] = find(piece).value_or(-1);
  }

  merge_table_.resize(std::bit_ceil(std::max<size_t>(merges.size() * 2, 16)), MergeTarget{0, -1, 0});
  std::string both;
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const auto& [left, right] = merges[rank];
    both = left;
    both += right;
    const std::optional<int32_t> left_id = find(left), right_id = find(right), id = find(both);
    if (!left_id || !right_id || !id) {
      throw_error(ErrorKind::corrupt,
                  "{}: merge {} (\"{}\" \"{}\") names or makes a piece that is not in the vocabulary", name, rank,
                  replace_invalid_utf8(left), replace_invalid_utf8(right));
    }
    insert_merge(*left_id, *right_id, static_cast<int32_t>(rank), *id);
  }
}

std::optional<int32_t> BpeModel::find(std::string_view piece) const {
  const auto found = ids_.find(piece);
  return found == ids_.end() ? std::nullopt : std::optional(found->second);
}

const BpeModel::MergeTarget* BpeModel::find_merge(int32_t left, int32_t right) const {
  const uint64_t pair = pair_key(left, right);
  const size_t mask = merge_table_.size() - 1;
  for (size_t slot = hash_pair(pair) & mask;; slot = (slot + 1) & mask) {
    const MergeTarget& target = merge_table_[slot];
    if (target.rank < 0) return nullptr;
    if (target.pair == pair) return &target;
  }
}

// A pair that is listed twice keeps its last rank, as in the tokenizers library.
void BpeModel::insert_merge(int32_t left, int32_t right, int32_t rank, int32_t id) {
  const uint64_t pair = pair_key(left, right);
  const size_t mask = merge_table_.size() - 1;
  size_t slot = hash_pair(pair) & mask;
  while (merge_table_[slot].rank >= 0 && merge_table_[slot].pair != pair) slot = (slot + 1) & mask;
  merge_table_[slot] = {pair, rank, id};
}

std::vector<int32_t> BpeModel::start_symbols(std::string_view piece) const {
  std::vector<int32_t> symbols;
  symbols.reserve(piece.size());
  bool after_unk = false;
  for (size_t at = 0; at < piece.size();) {
    const size_t size = options_.byte_level ? 1 : decode_utf8(piece, at).size;
    const std::string_view character = piece.substr(at, size);
    at += size;
    const std::optional<int32_t> id =
        options_.byte_level ? std::optional(byte_ids_[static_cast<uint8_t>(character[0])]) : find(character);
    if (id && *id >= 0) {
      symbols.push_back(*id);
      after_unk = false;
      continue;
    }
    const auto byte_id = [&](char c) { return byte_ids_[static_cast<uint8_t>(c)]; };
    if (options_.byte_fallback && !options_.byte_level &&
        std::all_of(character.begin(), character.end(), [&](char c) { return byte_id(c) >= 0; })) {
      for (const char c : character) symbols.push_back(byte_id(c));
      after_unk = false;
    } else if (options_.unk_id && !(options_.fuse_unk && after_unk)) {
      symbols.push_back(*options_.unk_id);
      after_unk = true;
    }
  }
  return symbols;
}

void BpeModel::merge(const std::vector<int32_t>& start, std::vector<int32_t>& out) const {
  const auto count = static_cast<int32_t>(start.size());
  std::vector<Symbol> symbols(start.size());
  for (int32_t i = 0; i < count; ++i) symbols[static_cast<size_t>(i)] = {start[static_cast<size_t>(i)], i - 1, i + 1};
  const auto symbol = [&](int32_t i) -> Symbol& { return symbols[static_cast<size_t>(i)]; };

  std::priority_queue<Candidate> queue;
  const auto consider = [&](int32_t left) {
    if (left < 0 || symbol(left).next >= count) return;
    const int32_t left_id = symbol(left).id, right_id = symbol(symbol(left).next).id;
    if (const MergeTarget* target = find_merge(left_id, right_id)) {
      queue.push({target->rank, left, target->pair, target->id});
    }
  };
  for (int32_t i = 0; i + 1 < count; ++i) consider(i);
  while (!queue.empty()) {
    const Candidate best = queue.top();
    queue.pop();
    Symbol& left = symbol(best.left);
    if (left.id < 0 || left.next >= count || pair_key(left.id, symbol(left.next).id) != best.pair) continue;
    Symbol& right = symbol(left.next);
    left.id = best.id;
    right.id = -1;
    left.next = right.next;
    if (left.next < count) symbol(left.next).previous = best.left;
    consider(left.previous);
    consider(best.left);
  }
  for (int32_t i = 0; i < count; i = symbol(i).next) out.push_back(symbol(i).id);
}

void BpeModel::encode(std::string_view piece, std::vector<int32_t>& out) const {
  if (cache_.find(piece, out)) return;
  const size_t begin = out.size();
  if (const std::optional<int32_t> id = options_.ignore_merges ? find(piece) : std::nullopt) {
    out.push_back(*id);
  } else {
    merge(start_symbols(piece), out);
  }
  cache_.insert(piece, out.data() + begin, out.size() - begin);
}

}  // namespace ingot::text
