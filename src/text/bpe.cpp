#include "text/bpe.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <queue>

#include "base/error.h"
#include "text/unicode.h"

namespace ingot::text {
namespace {

constexpr size_t max_few = 192;  // symbols; up to this many, scanning every pair is faster than a queue

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
  uint64_t pair;  // ids of the two symbols when the candidate was queued
  int32_t id;     // id of the merged symbol

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
    const auto c = static_cast<char>(byte);
    if (byte < ascii_ids_.size()) ascii_ids_[byte] = find({&c, 1}).value_or(-1);
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
                  "{}: merge {} (\"{}\" \"{}\") uses or produces a token that is not in the vocabulary", name, rank,
                  replace_invalid_utf8(left), replace_invalid_utf8(right));
    }
    insert_merge(*left_id, *right_id, static_cast<int32_t>(rank), *id);
  }
  find_borders(merges);
}

void BpeModel::find_borders(const std::vector<Merge>& merges) {
  const bool all_bytes =
      options_.byte_fallback && std::none_of(byte_ids_.begin(), byte_ids_.end(), [](int32_t id) { return id < 0; });
  // If characters may be dropped, the characters around them become adjacent, and the merges alone do not tell where a
  // split is safe.
  if (options_.byte_level || options_.ignore_merges || !(all_bytes || options_.unk_id)) return;
  const auto stands_for_other = [&](const std::string& piece) {  // the piece may stand for another text
    const std::optional<int32_t> id = find(piece);
    return piece.empty() || id == options_.unk_id ||
           std::find(byte_ids_.begin(), byte_ids_.end(), id) != byte_ids_.end();
  };
  for (const auto& [left, right] : merges) {
    if (stands_for_other(left) || stands_for_other(right)) return;
    borders_.join(left, right);
  }
  if (!all_bytes) {  // adjacent unknown characters may fuse into one unk
    borders_.join_to_all("\u00e9");
    if (!find("\u2581")) borders_.join_to_all("\u2581");
    for (size_t c = 0; c < ascii_ids_.size(); ++c) {
      if (ascii_ids_[c] < 0) borders_.join_to_all(std::string(1, static_cast<char>(c)));
    }
  }
  cuts_ = true;
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

void BpeModel::append_start_symbols(std::string_view piece, std::vector<int32_t>& out,
                                    const std::vector<bool>* excluded) const {
  if (options_.byte_level && excluded == nullptr) {
    bool all_known = true;
    for (const char c : piece) {
      const int32_t id = byte_ids_[static_cast<uint8_t>(c)];
      all_known &= id >= 0;
      out.push_back(id);
    }
    if (all_known) return;
    out.resize(out.size() - piece.size());
  }
  bool after_unk = false;
  for (size_t at = 0; at < piece.size();) {
    const size_t size = options_.byte_level ? 1 : decode_utf8(piece, at).size;
    const std::string_view character = piece.substr(at, size);
    at += size;
    const auto byte_id = [&](char c) { return byte_ids_[static_cast<uint8_t>(c)]; };
    int32_t id = -1;
    if (options_.byte_level) {
      id = byte_id(character[0]);
    } else if (const auto lead = static_cast<uint8_t>(character[0]); lead < ascii_ids_.size()) {
      id = ascii_ids_[lead];
    } else {
      id = find(character).value_or(-1);
    }
    if (id >= 0 && excluded != nullptr && (*excluded)[static_cast<size_t>(id)]) id = -1;
    if (id >= 0) {
      out.push_back(id);
      after_unk = false;
    } else if (options_.byte_fallback && !options_.byte_level &&
               std::all_of(character.begin(), character.end(), [&](char c) { return byte_id(c) >= 0; })) {
      for (const char c : character) out.push_back(byte_id(c));
      after_unk = false;
    } else if (options_.unk_id && !(options_.fuse_unk && after_unk)) {
      out.push_back(*options_.unk_id);
      after_unk = true;
    }
  }
}

void BpeModel::merge_scan(std::vector<int32_t>& ids, size_t begin) const {
  constexpr int32_t no_rank = std::numeric_limits<int32_t>::max();
  const auto count = static_cast<int32_t>(ids.size() - begin);
  int32_t* symbols = ids.data() + begin;
  // Indexed by the position of a pair's left symbol; positions that were merged into their left neighbour have no rank.
  std::array<int32_t, max_few> ranks, made, previous, next;  // only the first `count` entries are initialised
  const auto consider = [&](int32_t left) {
    const auto at = static_cast<size_t>(left);
    ranks[at] = no_rank;
    if (next[at] >= count) return;
    if (const MergeTarget* target = find_merge(symbols[left], symbols[next[at]])) {
      ranks[at] = target->rank;
      made[at] = target->id;
    }
  };
  for (int32_t i = 0; i < count; ++i) {
    previous[static_cast<size_t>(i)] = i - 1;
    next[static_cast<size_t>(i)] = i + 1;
    consider(i);
  }
  for (;;) {
    int32_t best = no_rank;
    for (int32_t i = 0; i < count; ++i) best = std::min(best, ranks[static_cast<size_t>(i)]);
    if (best == no_rank) break;
    const auto left = static_cast<size_t>(std::find(ranks.begin(), ranks.begin() + count, best) - ranks.begin());
    const auto right = static_cast<size_t>(next[left]);
    symbols[left] = made[left];
    ranks[right] = no_rank;
    next[left] = next[right];
    if (next[left] < count) previous[static_cast<size_t>(next[left])] = static_cast<int32_t>(left);
    consider(static_cast<int32_t>(left));
    if (previous[left] >= 0) consider(previous[left]);
  }
  size_t size = begin;
  for (int32_t i = 0; i < count; i = next[static_cast<size_t>(i)]) ids[size++] = symbols[i];
  ids.resize(size);
}

void BpeModel::merge_queue(std::vector<int32_t>& ids, size_t begin, const std::vector<bool>* excluded) const {
  struct Symbol {
    int32_t id;  // -1 once merged into its left neighbour
    int32_t previous;
    int32_t next;
  };
  const auto count = static_cast<int32_t>(ids.size() - begin);
  std::vector<Symbol> symbols;
  symbols.reserve(ids.size() - begin);
  for (int32_t i = 0; i < count; ++i) symbols.push_back({ids[begin + static_cast<size_t>(i)], i - 1, i + 1});
  const auto symbol = [&](int32_t i) -> Symbol& { return symbols[static_cast<size_t>(i)]; };

  std::priority_queue<Candidate> queue;
  const auto consider = [&](int32_t left) {
    if (left < 0 || symbol(left).next >= count) return;
    const int32_t left_id = symbol(left).id, right_id = symbol(symbol(left).next).id;
    const MergeTarget* target = find_merge(left_id, right_id);
    if (target == nullptr || (excluded != nullptr && (*excluded)[static_cast<size_t>(target->id)])) return;
    queue.push({target->rank, left, target->pair, target->id});
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
  ids.resize(begin);
  for (int32_t i = 0; i < count; i = symbol(i).next) ids.push_back(symbol(i).id);
}

void BpeModel::encode(std::string_view piece, std::vector<int32_t>& out) const {
  if (!cuts_) return encode_part(piece, out);
  for (size_t at = 0; at < piece.size();) {
    const size_t end = borders_.end_of_part(piece, at);
    encode_part(piece.substr(at, end - at), out);
    at = end;
  }
}

void BpeModel::encode_without(const std::vector<bool>& excluded, std::string_view piece,
                              std::vector<int32_t>& out) const {
  const size_t begin = out.size();
  append_start_symbols(piece, out, &excluded);
  merge_queue(out, begin, &excluded);
}

void BpeModel::encode_part(std::string_view part, std::vector<int32_t>& out) const {
  if (cache_.find(part, out)) return;
  const size_t begin = out.size();
  if (const std::optional<int32_t> id = options_.ignore_merges ? find(part) : std::nullopt) {
    out.push_back(*id);
  } else {
    append_start_symbols(part, out);
    if (out.size() - begin <= max_few) {
      merge_scan(out, begin);
    } else {
      merge_queue(out, begin);
    }
  }
  cache_.insert(part, out.data() + begin, out.size() - begin);
}

}  // namespace ingot::text
