#include "data/token_rows.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/error.h"
#include "formats/npy_dtype.h"
#include "storage/uri.h"

namespace ingot::data {

namespace {

using formats::PickleValue;
using Kind = PickleValue::Kind;

constexpr std::array<std::string_view, 5> known_keys = {"input_ids", "labels", "loss_mask", "attention_mask",
                                                        "seq_start_id"};
constexpr int64_t no_loss = -100;  // torch's ignore_index

// A document of these tokens, all of them in the loss.
Document all_loss_tokens(const std::vector<int64_t>& ids) {
  if (ids.empty()) throw_error(ErrorKind::corrupt, "the row has no tokens");
  Document document;
  document.format = Format::tokens;
  document.ids.reserve(ids.size());
  for (const int64_t id : ids) {
    if (id < 0 || !std::in_range<int32_t>(id)) throw_error(ErrorKind::corrupt, "{} is not a token id", id);
    document.ids.push_back(static_cast<int32_t>(id));
  }
  document.loss_mask.assign(ids.size(), 1);
  return document;
}

void check_size(const std::vector<int64_t>& values, std::string_view key, const Document& document) {
  if (values.size() != document.ids.size()) {
    throw_error(ErrorKind::corrupt, "\"{}\" has {} values for {} tokens", key, values.size(), document.ids.size());
  }
}

void check_mask(const std::vector<int64_t>& mask, std::string_view key, const Document& document) {
  check_size(mask, key, document);
  for (const int64_t value : mask) {
    if (value != 0 && value != 1)
      throw_error(ErrorKind::corrupt, "\"{}\" contains {}; only 0 and 1 are allowed", key, value);
  }
}

Document slice_document(const Document& whole, int64_t begin, int64_t end) {
  Document document;
  document.format = Format::tokens;
  document.ids.assign(whole.ids.begin() + begin, whole.ids.begin() + end);
  document.loss_mask.assign(whole.loss_mask.begin() + begin, whole.loss_mask.begin() + end);
  return document;
}

}  // namespace

TokenRows::TokenRows(const std::filesystem::path& path) : file_(path) {
  const std::vector<int64_t>& shape = file_.shape();
  const bool has_objects = file_.dtype() == "O";
  if (has_objects) {
    num_rows_ = std::ssize(file_.objects());
  } else if (file_.dtype()[0] != 'f' && file_.dtype()[0] != 'b' && !shape.empty() && shape.size() <= 2) {
    num_rows_ = shape.size() == 1 ? (shape[0] > 0 ? 1 : 0) : shape[0];
  } else {
    throw_hint(ErrorKind::unsupported, "token ids must be an array of integers, or of lists or dicts of integers",
               "{}: holds an array of {} dimensions and dtype {}", shown(path.string()), shape.size(), file_.dtype());
  }
}

bool TokenRows::next(Document& document) {
  if (remaining_.empty()) {
    if (row_ == num_rows_) return false;
    const int64_t row = row_++;
    if (file_.dtype() == "O") {
      read_object(file_.objects()[static_cast<size_t>(row)]);
    } else {
      remaining_.push_back(read_numbers(row));
    }
  }
  document = std::move(remaining_.back());
  document.line = row_;
  remaining_.pop_back();
  return true;
}

Document TokenRows::read_numbers(int64_t row) const {
  const size_t item = formats::npy_item_size(file_.dtype());
  const size_t size = static_cast<size_t>(file_.shape().back()) * item;
  const std::span<const std::byte> bytes = file_.bytes().subspan(static_cast<size_t>(row) * size, size);
  Document document = all_loss_tokens(
      formats::npy_integers(file_.dtype(), {reinterpret_cast<const char*>(bytes.data()), bytes.size()}));
  document.splittable = true;
  return document;
}

std::vector<int64_t> TokenRows::numbers(PickleValue value, std::string_view key) const {
  const formats::Pickle& pickle = file_.pickle();
  if (value.kind() == Kind::array) {
    const formats::PickleArray& array = pickle.array(value);
    if (array.shape.size() == 1 && array.dtype[0] != 'f' && array.dtype != "O") {
      return formats::npy_integers(array.dtype, array.data);
    }
  } else if (value.kind() == Kind::list || value.kind() == Kind::tuple) {
    const std::span<const PickleValue> items = pickle.items(value);
    const bool all = std::all_of(items.begin(), items.end(), [](PickleValue item) {
      return item.kind() == Kind::integer || item.kind() == Kind::boolean;
    });
    std::vector<int64_t> values(items.size());
    std::transform(items.begin(), items.end(), values.begin(), [](PickleValue item) { return item.integer(); });
    if (all) return values;
  }
  throw_error(ErrorKind::corrupt, "{} is of type {}; it must be a list or an array of integers", key,
              name(value.kind()));
}

void TokenRows::read_object(PickleValue row) {
  if (row.kind() == Kind::dict) return read_dict(row);
  remaining_.push_back(all_loss_tokens(numbers(row, "the row")));
}

void TokenRows::read_dict(PickleValue row) {
  const formats::Pickle& pickle = file_.pickle();
  for (const std::string_view key : pickle.keys(row)) {
    if (std::find(known_keys.begin(), known_keys.end(), key) == known_keys.end()) {
      throw_hint(ErrorKind::corrupt, "supported keys: input_ids, labels or loss_mask, attention_mask and seq_start_id",
                 "the row has the unknown key '{}'", key);
    }
  }
  const PickleValue* ids = pickle.find(row, "input_ids");
  if (ids == nullptr) throw_error(ErrorKind::corrupt, "the row has no \"input_ids\"");
  Document whole = all_loss_tokens(numbers(*ids, "\"input_ids\""));
  set_loss_mask(row, whole);
  std::vector<int64_t> starts = {0};
  if (const PickleValue* found = pickle.find(row, "seq_start_id")) starts = numbers(*found, "\"seq_start_id\"");
  const int64_t size = std::ssize(whole.ids);
  if (starts.empty() || starts[0] != 0 || starts.back() >= size ||
      std::adjacent_find(starts.begin(), starts.end(), std::greater_equal<>()) != starts.end()) {
    throw_error(ErrorKind::corrupt, "\"seq_start_id\" must ascend from 0 to less than {}, the number of tokens", size);
  }
  starts.push_back(size);
  for (size_t i = starts.size() - 1; i > 0; --i) remaining_.push_back(slice_document(whole, starts[i - 1], starts[i]));
}

// Sets which tokens are in the loss, and removes padding.
void TokenRows::set_loss_mask(PickleValue row, Document& document) const {
  const formats::Pickle& pickle = file_.pickle();
  const PickleValue* labels = pickle.find(row, "labels");
  const PickleValue* mask = pickle.find(row, "loss_mask");
  if (labels != nullptr && mask != nullptr)
    throw_error(ErrorKind::corrupt, "the row has both \"labels\" and \"loss_mask\"");
  if (labels != nullptr) {
    const std::vector<int64_t> values = numbers(*labels, "\"labels\"");
    check_size(values, "labels", document);
    for (size_t i = 0; i < values.size(); ++i) {
      if (values[i] != no_loss && values[i] != document.ids[i]) {
        throw_error(ErrorKind::corrupt, "label {} is {}; expected the token at that position ({}) or -100", i,
                    values[i], document.ids[i]);
      }
      document.loss_mask[i] = values[i] == no_loss ? 0 : 1;
    }
  }
  if (mask != nullptr) {
    const std::vector<int64_t> values = numbers(*mask, "\"loss_mask\"");
    check_mask(values, "loss_mask", document);
    for (size_t i = 1; i < values.size(); ++i) document.loss_mask[i] = static_cast<uint8_t>(values[i - 1]);
  }
  if (const PickleValue* found = pickle.find(row, "attention_mask")) {
    const std::vector<int64_t> values = numbers(*found, "\"attention_mask\"");
    check_mask(values, "attention_mask", document);
    const auto end = std::find(values.begin(), values.end(), 0);
    if (end == values.begin() || std::find(end, values.end(), 1) != values.end()) {
      throw_error(ErrorKind::corrupt, "\"attention_mask\" masks tokens other than padding at the end");
    }
    document.ids.resize(static_cast<size_t>(end - values.begin()));
    document.loss_mask.resize(document.ids.size());
  }
}

}  // namespace ingot::data
