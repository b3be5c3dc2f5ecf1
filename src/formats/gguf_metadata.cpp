#include "formats/gguf_metadata.h"

#include <limits>
#include <optional>

#include "base/error.h"
#include "formats/printable.h"

namespace ingot::formats {
namespace {

template <class T>
constexpr bool is_integer = std::is_integral_v<T> && !std::is_same_v<T, bool>;

// nullopt when the value is not an integer or does not fit.
struct AsInteger {
  template <class T>
  std::optional<int64_t> operator()(const T& value) const {
    if constexpr (is_integer<T>) {
      if (std::in_range<int64_t>(value)) return static_cast<int64_t>(value);
    }
    return std::nullopt;
  }
};

struct AsReal {
  template <class T>
  std::optional<double> operator()(const T& value) const {
    if constexpr (is_integer<T> || std::is_floating_point_v<T>) return static_cast<double>(value);
    return std::nullopt;
  }
};

// Converts every element; nullopt when the list has another type or an element does not fit.
template <class Out, class Convert>
std::optional<std::vector<Out>> convert_items(const GgufArray& array, Convert convert) {
  return std::visit(
      [&]<class Items>(const Items& items) -> std::optional<std::vector<Out>> {
        if constexpr (std::is_same_v<Items, std::monostate>) {
          return std::nullopt;
        } else {
          std::vector<Out> out;
          out.reserve(items.size());
          for (size_t i = 0; i < items.size(); ++i) {
            const std::optional<Out> converted = convert(items[i]);
            if (!converted) return std::nullopt;
            out.push_back(*converted);
          }
          return out;
        }
      },
      array.items);
}

}  // namespace

std::string_view gguf_value_type_name(size_t type_id) {
  static constexpr std::array<std::string_view, 13> names = {"u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                                                             "bool", "string", "array", "u64", "i64", "f64"};
  return type_id < names.size() ? names[type_id] : "unknown";
}

void GgufMetadata::add(std::string key, GgufValue value) {
  const GgufArray* list = std::get_if<GgufArray>(&value);
  if (list != nullptr && std::holds_alternative<std::monostate>(list->items)) {
    throw_error(ErrorKind::internal, "{}: key {} is a list without an item type", source_, printable(key));
  }
  if (!index_by_key_.emplace(key, items_.size()).second) {
    throw_error(ErrorKind::corrupt, "{}: duplicate key {}", source_, printable(key));
  }
  items_.emplace_back(std::move(key), std::move(value));
}

const GgufValue* GgufMetadata::find(std::string_view key) const {
  const auto found = index_by_key_.find(key);
  return found == index_by_key_.end() ? nullptr : &items_[found->second].second;
}

const GgufValue& GgufMetadata::at(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) throw_error(ErrorKind::not_found, "{}: no key {}", source_, printable(key));
  return *value;
}

void GgufMetadata::wrong(std::string_view key, const GgufValue& found, std::string_view wanted) const {
  const GgufArray* list = std::get_if<GgufArray>(&found);
  throw_error(ErrorKind::corrupt, "{}: key {} holds {}{}, not {}", source_, printable(key),
              list != nullptr ? "a list of " : "", gguf_value_type_name(list ? list->items.index() : found.index()),
              wanted);
}

int64_t GgufMetadata::integer(std::string_view key) const {
  const GgufValue& value = at(key);
  const std::optional<int64_t> converted = std::visit(AsInteger{}, value);
  if (!converted) wrong(key, value, "an integer below 2^63");
  return *converted;
}

int64_t GgufMetadata::integer(std::string_view key, int64_t fallback) const {
  return contains(key) ? integer(key) : fallback;
}

double GgufMetadata::real(std::string_view key) const {
  const GgufValue& value = at(key);
  const std::optional<double> converted = std::visit(AsReal{}, value);
  if (!converted) wrong(key, value, "a number");
  return *converted;
}

double GgufMetadata::real(std::string_view key, double fallback) const { return contains(key) ? real(key) : fallback; }

bool GgufMetadata::boolean(std::string_view key) const {
  const GgufValue& value = at(key);
  if (!std::holds_alternative<bool>(value)) wrong(key, value, "a bool");
  return std::get<bool>(value);
}

bool GgufMetadata::boolean(std::string_view key, bool fallback) const {
  return contains(key) ? boolean(key) : fallback;
}

const std::string& GgufMetadata::text(std::string_view key) const {
  const GgufValue& value = at(key);
  if (!std::holds_alternative<std::string>(value)) wrong(key, value, "a string");
  return std::get<std::string>(value);
}

std::string GgufMetadata::text(std::string_view key, std::string_view fallback) const {
  return contains(key) ? text(key) : std::string(fallback);
}

const GgufArray& GgufMetadata::array(std::string_view key, std::string_view wanted) const {
  const GgufValue& value = at(key);
  if (!std::holds_alternative<GgufArray>(value)) wrong(key, value, wanted);
  return std::get<GgufArray>(value);
}

const std::vector<std::string>& GgufMetadata::texts(std::string_view key) const {
  const GgufArray& list = array(key, "a list of strings");
  const auto* texts = std::get_if<std::vector<std::string>>(&list.items);
  if (texts == nullptr) wrong(key, at(key), "a list of strings");
  return *texts;
}

std::vector<int64_t> GgufMetadata::integers(std::string_view key) const {
  auto converted = convert_items<int64_t>(array(key, "a list of integers"), AsInteger{});
  if (!converted) wrong(key, at(key), "a list of integers below 2^63");
  return *std::move(converted);
}

std::vector<double> GgufMetadata::reals(std::string_view key) const {
  auto converted = convert_items<double>(array(key, "a list of numbers"), AsReal{});
  if (!converted) wrong(key, at(key), "a list of numbers");
  return *std::move(converted);
}

}  // namespace ingot::formats
