#include "text/unigram.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "text/unicode.h"

namespace ingot::text {
namespace {

constexpr double unknown_penalty = 10;
constexpr int32_t unknown = -2;  // placeholder for an id

// The best segmentation of the text up to a position (Viterbi).
struct Arrival {
  double score = 0;
  size_t from = 0;
  int32_t id = ByteTrie::none;  // id of the last piece, `unknown`, or none if the position is unreachable
};

}  // namespace

UnigramModel::UnigramModel(const std::vector<std::pair<std::string, double>>& pieces, std::optional<int32_t> unk_id,
                           bool byte_fallback)
    : unk_id_(unk_id), byte_fallback_(byte_fallback) {
  double worst = std::numeric_limits<double>::infinity();
  for (const auto& [piece, score] : pieces) {
    if (!piece.empty()) trie_.insert(piece, static_cast<int32_t>(scores_.size()));
    scores_.push_back(score);
    worst = std::min(worst, score);
  }
  unk_score_ = worst - unknown_penalty;
  for (size_t byte = 0; byte < byte_ids_.size(); ++byte) {
    int32_t node = ByteTrie::root;
    for (const char c : fmt::format("<0x{:02X}>", byte)) {
      if (node != ByteTrie::none) node = trie_.next(node, c);
    }
    byte_ids_[byte] = node == ByteTrie::none ? -1 : trie_.value(node);
  }
}

void UnigramModel::append_unknown(std::string_view text, std::vector<int32_t>& out) const {
  const auto id_of = [&](char c) { return byte_ids_[static_cast<uint8_t>(c)]; };
  if (byte_fallback_ && std::all_of(text.begin(), text.end(), [&](char c) { return id_of(c) >= 0; })) {
    for (const char c : text) out.push_back(id_of(c));
  } else if (unk_id_) {
    out.push_back(*unk_id_);
  }
}

void UnigramModel::encode(std::string_view piece, std::vector<int32_t>& out) const {
  if (cache_.find(piece, out)) return;
  const size_t begin = out.size();
  cut(piece, nullptr, out);
  cache_.insert(piece, out.data() + begin, out.size() - begin);
}

void UnigramModel::encode_without(const std::vector<bool>& excluded, std::string_view piece,
                                  std::vector<int32_t>& out) const {
  cut(piece, &excluded, out);
}

void UnigramModel::cut(std::string_view piece, const std::vector<bool>* excluded, std::vector<int32_t>& out) const {
  std::vector<Arrival> arrivals(piece.size() + 1);
  const auto offer = [&](size_t from, size_t to, int32_t id, double score) {
    Arrival& arrival = arrivals[to];
    const double sum = arrivals[from].score + score;
    if (arrival.id == ByteTrie::none || sum > arrival.score) arrival = {sum, from, id};
  };
  for (size_t at = 0; at < piece.size();) {
    const size_t next = at + decode_utf8(piece, at).size;
    bool covered = false;  // whether the character at `at` is itself a piece
    int32_t node = ByteTrie::root;
    for (size_t end = at; end < piece.size();) {
      node = trie_.next(node, piece[end]);
      if (node == ByteTrie::none) break;
      ++end;
      const int32_t id = trie_.value(node);
      if (id == ByteTrie::none || (excluded != nullptr && (*excluded)[static_cast<size_t>(id)])) continue;
      offer(at, end, id, scores_[static_cast<size_t>(id)]);
      covered = covered || end == next;
    }
    if (!covered) offer(at, next, unknown, unk_score_);
    at = next;
  }
  std::vector<std::pair<std::string_view, int32_t>> parts;  // in reverse order
  for (size_t end = piece.size(); end > 0;) {
    const Arrival& arrival = arrivals[end];
    const std::string_view part = piece.substr(arrival.from, end - arrival.from);
    const bool is_unknown = arrival.id == unknown || (unk_id_ && arrival.id == *unk_id_);
    if (is_unknown && !parts.empty() && parts.back().second == unknown) {
      parts.back().first = {part.data(), part.size() + parts.back().first.size()};
    } else {
      parts.emplace_back(part, is_unknown ? unknown : arrival.id);
    }
    end = arrival.from;
  }
  for (auto part = parts.rbegin(); part != parts.rend(); ++part) {
    if (part->second == unknown) {
      append_unknown(part->first, out);
    } else {
      out.push_back(part->second);
    }
  }
}

}  // namespace ingot::text
