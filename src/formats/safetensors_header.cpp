#include "formats/safetensors_header.h"

#include <limits>
#include <nlohmann/json.hpp>
#include <unordered_set>

#include "base/error.h"
#include "formats/printable.h"

namespace ingot::formats {
namespace {

// A SAX handler, because a parsed JSON value would drop duplicate keys. Every event is checked against the only valid
// structure of a header, so nesting is never deeper than header, tensor, list.
class HeaderHandler : public nlohmann::json_sax<nlohmann::json> {
 public:
  HeaderHandler(SafetensorsHeader& header, const std::string& source) : header_(header), source_(source) {}

  bool null() override { wrong("null"); }
  bool boolean(bool) override { wrong("a boolean"); }
  bool number_integer(number_integer_t) override { wrong("a negative number"); }
  bool number_float(number_float_t, const string_t&) override { wrong("a number that is not a 64-bit integer"); }
  bool binary(binary_t&) override { wrong("binary data"); }

  bool number_unsigned(number_unsigned_t value) override {
    if (state_ == State::shape) {
      if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
        throw_error(ErrorKind::corrupt, "{}: dimension {} is too large", where(), value);
      }
      header_.tensors.back().shape.push_back(static_cast<int64_t>(value));
    } else if (state_ == State::offsets) {
      if (num_offsets_ == 2) throw_error(ErrorKind::corrupt, "{}: data_offsets has more than two numbers", where());
      (num_offsets_ == 0 ? header_.tensors.back().begin : header_.tensors.back().end) = value;
      ++num_offsets_;
    } else {
      wrong("a number");
    }
    return true;
  }

  bool string(string_t& value) override {
    if (state_ == State::metadata) {
      header_.metadata[key_] = value;
    } else if (state_ == State::tensor && key_ == "dtype") {
      header_.tensors.back().dtype = value;
    } else {
      wrong("a string");
    }
    return true;
  }

  bool start_object(std::size_t) override {
    if (state_ == State::outside) {
      state_ = State::header;
    } else if (state_ == State::header && key_ == "__metadata__") {
      state_ = State::metadata;
    } else if (state_ == State::header) {
      header_.tensors.push_back({.name = key_});
      state_ = State::tensor;
      seen_fields_ = 0;
    } else {
      wrong("an object");
    }
    return true;
  }

  bool end_object() override {
    if (state_ == State::tensor) {
      for (size_t i = 0; i < field_names.size(); ++i) {
        if ((seen_fields_ & (1U << i)) == 0) throw_error(ErrorKind::corrupt, "{}: no {}", where(), field_names[i]);
      }
    }
    state_ = state_ == State::header ? State::outside : State::header;
    return true;
  }

  bool key(string_t& value) override {
    if (state_ == State::header) {
      if (!names_.insert(value).second) {
        throw_error(ErrorKind::corrupt, "{}: duplicate key {} in the header", source_, printable(value));
      }
    } else if (state_ == State::metadata) {
      if (header_.metadata.contains(value)) {
        throw_error(ErrorKind::corrupt, "{}: duplicate key {} in __metadata__", source_, printable(value));
      }
    } else {
      add_field(value);
    }
    key_ = value;
    return true;
  }

  bool start_array(std::size_t) override {
    if (state_ == State::tensor && key_ == "shape") {
      state_ = State::shape;
    } else if (state_ == State::tensor && key_ == "data_offsets") {
      state_ = State::offsets;
      num_offsets_ = 0;
    } else {
      wrong("a list");
    }
    return true;
  }

  bool end_array() override {
    if (state_ == State::offsets && num_offsets_ != 2) {
      throw_error(ErrorKind::corrupt, "{}: data_offsets has fewer than two numbers", where());
    }
    state_ = State::tensor;
    return true;
  }

  bool parse_error(std::size_t position, const std::string&, const nlohmann::json::exception&) override {
    throw_error(ErrorKind::corrupt, "{}: the header is not valid UTF-8 JSON (byte {} of it)", source_, position);
  }

 private:
  enum class State { outside, header, metadata, tensor, shape, offsets };
  static constexpr std::array<const char*, 3> field_names = {"dtype", "shape", "data_offsets"};

  void add_field(const std::string& field) {
    for (size_t i = 0; i < field_names.size(); ++i) {
      if (field != field_names[i]) continue;
      if ((seen_fields_ & (1U << i)) != 0) throw_error(ErrorKind::corrupt, "{}: duplicate key {}", where(), field);
      seen_fields_ |= 1U << i;
      return;
    }
    throw_error(ErrorKind::corrupt, "{}: unknown key {}", where(), printable(field));
  }

  std::string where() const { return fmt::format("{}: tensor {}", source_, printable(header_.tensors.back().name)); }

  [[noreturn]] void wrong(const char* found) const {
    switch (state_) {
      case State::outside: throw_error(ErrorKind::corrupt, "{}: the header is {}, not an object", source_, found);
      case State::header:
        throw_error(ErrorKind::corrupt, "{}: {} is {}, not an object", source_, printable(key_), found);
      case State::metadata:
        throw_error(ErrorKind::corrupt, "{}: {} in __metadata__ is {}, not a string", source_, printable(key_), found);
      case State::tensor:
        throw_error(ErrorKind::corrupt, "{}: {} is {}, not {}", where(), key_, found,
                    key_ == "dtype" ? "a string" : "a list");
      case State::shape:
      case State::offsets:
        throw_error(ErrorKind::corrupt, "{}: {} holds {}, not just whole numbers", where(), key_, found);
    }
    throw_error(ErrorKind::internal, "{}: unknown state in the safetensors header", source_);
  }

  SafetensorsHeader& header_;
  const std::string& source_;
  State state_ = State::outside;
  std::string key_;                        // the last one read
  std::unordered_set<std::string> names_;  // keys of the header
  unsigned seen_fields_ = 0;               // bit i: field_names[i] of the current tensor
  int num_offsets_ = 0;
};

}  // namespace

SafetensorsHeader parse_safetensors_header(std::string_view text, const std::string& source) {
  if (text.empty() || text.front() != '{') {
    throw_error(ErrorKind::corrupt, "{}: the header does not begin with '{{'", source);
  }
  // The JSON lexer would treat a zero byte as the end of the text.
  if (text.find('\0') != std::string_view::npos) {
    throw_error(ErrorKind::corrupt, "{}: the header is not valid UTF-8 JSON (it holds a zero byte)", source);
  }
  SafetensorsHeader header;
  HeaderHandler handler(header, source);
  nlohmann::json::sax_parse(text.begin(), text.end(), &handler);
  return header;
}

}  // namespace ingot::formats
