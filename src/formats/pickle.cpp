#include "formats/pickle.h"

#include <algorithm>
#include <optional>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "formats/byte_reader.h"
#include "formats/npy_dtype.h"
#include "formats/pickle_names.h"
#include "formats/printable.h"

namespace ingot::formats {
namespace {

using ValueKind = PickleValue::Kind;

using Name = PickleName;
using Callable = PickleCallable;

}  // namespace

// The stack machine. An opcode pushes at most one value.
class PickleReader {
 public:
  PickleReader(Pickle& pickle, std::span<const std::byte> bytes, const std::string& source)
      : pickle_(pickle), reader_(bytes, source), source_(source), size_(bytes.size()) {}

  void read() {
    if (opcode() != '\x80') bad("it does not begin with a protocol");
    const int protocol = number<uint8_t>();
    if (protocol < 2 || protocol > 5) {
      throw_error(ErrorKind::unsupported, "{}: pickle protocol {} is not supported; expected 2 to 5", source_,
                  protocol);
    }
    for (char next = opcode(); next != '.'; next = opcode()) step(next);
    if (!marks_.empty() || stack_.size() != 1) bad("it does not end with exactly one value");
    if (reader_.remaining() != 0) bad("there are bytes after its end");
    pickle_.root_ = stack_.back();
    container_weights_.resize(pickle_.containers_.size());
    array_weights_.resize(pickle_.arrays_.size());
    weigh(pickle_.root_, 0);
  }

 private:
  [[noreturn]] void bad(std::string_view what) const {
    throw_error(ErrorKind::corrupt, "{}: the pickle is malformed at byte {}: {}", source_, reader_.position(), what);
  }
  [[noreturn]] void refuse(const std::string& what) const {
    throw_hint(ErrorKind::unsupported, "save it again as lists, dicts, strings, numbers and numeric arrays",
               "{}: the pickle has {}; only plain values and NumPy arrays are supported, and nothing is executed",
               source_, what);
  }
  [[noreturn]] void too_large(const char* what, int64_t limit) const {
    throw_error(ErrorKind::resource, "{}: the pickle has more than {} {}", source_, limit, what);
  }

  // Reading bytes.

  char opcode() { return static_cast<char>(reader_.number<uint8_t>("the next opcode of the pickle")); }

  template <class T>
  T number() {
    return reader_.number<T>("a value of the pickle");
  }

  std::string_view take(uint64_t size) {
    const std::span<const std::byte> taken = reader_.take(size, "a value of the pickle");
    return {reinterpret_cast<const char*>(taken.data()), taken.size()};
  }

  std::string_view line() {
    const char* begin = nullptr;
    for (size_t size = 0;; ++size) {
      const std::string_view next = take(1);
      if (size == 0) begin = next.data();
      if (next == "\n") return {begin, size};
    }
  }

  // Stack operations above the last mark.

  void push(PickleValue value) {
    if (++num_pushed_ > Pickle::max_values) too_large("values", Pickle::max_values);
    stack_.push_back(value);
  }
  void push(ValueKind kind, int64_t bits) { push(PickleValue(kind, bits)); }

  PickleValue top() const {
    if (stack_.size() <= (marks_.empty() ? 0 : marks_.back())) bad("an opcode lacks its argument");
    return stack_.back();
  }
  PickleValue top(ValueKind kind) const {
    if (top().kind() != kind) bad(fmt::format("found a {} where a {} was expected", name(top().kind()), name(kind)));
    return top();
  }
  PickleValue pop() {
    const PickleValue value = top();
    stack_.pop_back();
    return value;
  }
  PickleValue pop(ValueKind kind) {
    const PickleValue value = top(kind);
    stack_.pop_back();
    return value;
  }
  // Pops everything above the last mark, and the mark.
  std::vector<PickleValue> pop_marked() {
    if (marks_.empty()) bad("an opcode lacks its mark");
    const auto begin = stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back());
    std::vector<PickleValue> items(begin, stack_.end());
    stack_.erase(begin, stack_.end());
    marks_.pop_back();
    return items;
  }
  std::vector<PickleValue> pop_last(size_t number) {
    std::vector<PickleValue> items(number);
    for (size_t i = number; i > 0; --i) items[i - 1] = pop();
    return items;
  }

  // Storage that values refer to by index.

  template <class T, class Thing>
  int64_t keep(T& things, Thing thing) {
    if (++num_held_ > Pickle::max_containers) too_large("texts, lists, dicts and arrays", Pickle::max_containers);
    things.push_back(std::move(thing));
    return static_cast<int64_t>(things.size()) - 1;
  }
  void push_string(ValueKind kind, std::string_view bytes) { push(kind, keep(pickle_.strings_, bytes)); }
  void push_container(ValueKind kind, std::vector<PickleValue> items) {
    push(kind, keep(pickle_.containers_, std::move(items)));
  }

  // Capacity grows by an eighth instead of doubling, because typical lists have millions of tokens.
  void append(const std::vector<PickleValue>& more) {
    std::vector<PickleValue>& list = pickle_.containers_[top(ValueKind::list).index()];
    const size_t size = list.size() + more.size();
    if (size > list.capacity()) list.reserve(std::max(size, list.size() + list.size() / 8));
    list.insert(list.end(), more.begin(), more.end());
  }

  void set(const std::vector<PickleValue>& more) {
    if (more.size() % 2 != 0) bad("a key without a value");
    for (size_t i = 0; i < more.size(); i += 2) {
      if (more[i].kind() != ValueKind::text) refuse(fmt::format("a key of type {} in a dict", name(more[i].kind())));
    }
    std::vector<PickleValue>& dict = pickle_.containers_[top(ValueKind::dict).index()];
    dict.insert(dict.end(), more.begin(), more.end());
  }

  void memoise(uint64_t memo_index) {
    if (std::ssize(memo_) == Pickle::max_containers) too_large("memos", Pickle::max_containers);
    memo_[memo_index] = top();
  }
  void recall(uint64_t memo_index) {
    const auto found = memo_.find(memo_index);
    if (found == memo_.end()) bad(fmt::format("memo {} is not defined", memo_index));
    push(found->second);
  }

  // An integer of any length, two's complement, little-endian.
  void push_long(int64_t size) {
    if (size < 0) bad("an integer of negative length");
    const std::string_view bytes = take(static_cast<uint64_t>(size));
    if (bytes.size() > sizeof(int64_t)) refuse(fmt::format("an integer of {} bytes", size));
    uint64_t value = !bytes.empty() && (bytes.back() & 0x80) != 0 ? ~uint64_t{0} : 0;
    for (size_t i = bytes.size(); i > 0; --i) value = value << 8 | static_cast<uint8_t>(bytes[i - 1]);
    push(ValueKind::integer, static_cast<int64_t>(value));
  }

  void push_name(std::string_view module, std::string_view member) {
    const auto* found = std::find_if(known_pickle_names.begin(), known_pickle_names.end(),
                                     [&](const Name& known) { return known.module == module && known.name == member; });
    if (found == known_pickle_names.end())
      refuse(fmt::format("the global {}", printable(fmt::format("{}.{}", module, member))));
    push(ValueKind::callable, static_cast<int64_t>(found->callable));
  }

  void step(char code) {
    switch (code) {
      case '\x95':  // FRAME
        if (number<uint64_t>() > reader_.remaining()) bad("a frame is longer than the file");
        return;
      case '(': return marks_.push_back(stack_.size());
      case 'N': return push(PickleValue());
      case '\x88': return push(ValueKind::boolean, 1);
      case '\x89': return push(ValueKind::boolean, 0);
      case 'J': return push(ValueKind::integer, number<int32_t>());
      case 'K': return push(ValueKind::integer, number<uint8_t>());
      case 'M': return push(ValueKind::integer, number<uint16_t>());
      case '\x8a': return push_long(number<uint8_t>());
      case '\x8b': return push_long(number<int32_t>());
      case 'G': return push(ValueKind::real, static_cast<int64_t>(__builtin_bswap64(number<uint64_t>())));
      case '\x8c': return push_string(ValueKind::text, take(number<uint8_t>()));
      case 'X': return push_string(ValueKind::text, take(number<uint32_t>()));
      case '\x8d': return push_string(ValueKind::text, take(number<uint64_t>()));
      case 'C': return push_string(ValueKind::bytes, take(number<uint8_t>()));
      case 'B': return push_string(ValueKind::bytes, take(number<uint32_t>()));
      case '\x8e':  // BINBYTES8
      case '\x96':  // BYTEARRAY8
        return push_string(ValueKind::bytes, take(number<uint64_t>()));
      case ']': return push_container(ValueKind::list, {});
      case 'a': return append(pop_last(1));
      case 'e': return append(pop_marked());
      case ')': return push_container(ValueKind::tuple, {});
      case '\x85': return push_container(ValueKind::tuple, pop_last(1));
      case '\x86': return push_container(ValueKind::tuple, pop_last(2));
      case '\x87': return push_container(ValueKind::tuple, pop_last(3));
      case 't': return push_container(ValueKind::tuple, pop_marked());
      case '}': return push_container(ValueKind::dict, {});
      case 's': return set(pop_last(2));
      case 'u': return set(pop_marked());
      case 'q': return memoise(number<uint8_t>());
      case 'r': return memoise(number<uint32_t>());
      case '\x94': return memoise(memo_.size());
      case 'h': return recall(number<uint8_t>());
      case 'j': return recall(number<uint32_t>());
      case 'c': {
        const std::string_view module = line();
        return push_name(module, line());
      }
      case '\x93': {
        const std::string_view member = pickle_.string(pop(ValueKind::text));
        return push_name(pickle_.string(pop(ValueKind::text)), member);
      }
      case 'R': return call();
      case 'b': return build();
      default: break;
    }
    for (const auto& [refused, opcode_name] : refused_pickle_opcodes) {
      if (code == refused) refuse(fmt::format("the opcode {}", opcode_name));
    }
    bad(fmt::format("{:#04x} is not an opcode", static_cast<uint8_t>(code)));
  }

  // NumPy's calls. They are recognised by their arguments and not executed.

  std::span<const PickleValue> arguments(PickleValue tuple, std::initializer_list<ValueKind> kinds,
                                         const char* of) const {
    const std::span<const PickleValue> items = pickle_.items(tuple);
    const auto fits = [](ValueKind kind, PickleValue item) { return item.kind() == kind; };
    if (items.size() < kinds.size() || !std::equal(kinds.begin(), kinds.end(), items.begin(), fits)) {
      bad(fmt::format("the arguments of {} are not those that NumPy writes", of));
    }
    return items;
  }

  void call() {
    const PickleValue tuple = pop(ValueKind::tuple);
    const auto callable = static_cast<Callable>(pop(ValueKind::callable).integer());
    switch (callable) {
      case Callable::reconstruct: {  // (ndarray, (0,), b'b'): an array to be filled by BUILD
        const auto given = arguments(tuple, {ValueKind::callable, ValueKind::tuple, ValueKind::bytes}, "_reconstruct");
        if (given[0].integer() != static_cast<int64_t>(Callable::ndarray))
          bad("_reconstruct of something other than ndarray");
        return push(ValueKind::array, keep(pickle_.arrays_, PickleArray{}));
      }
      case Callable::from_buffer: {  // (bytes, dtype, shape, 'C' or 'F')
        const auto given =
            arguments(tuple, {ValueKind::bytes, ValueKind::dtype, ValueKind::tuple, ValueKind::text}, "_frombuffer");
        PickleArray array;
        fill(array, given[2], given[1], pickle_.string(given[3]) != "C", given[0]);
        return push(ValueKind::array, keep(pickle_.arrays_, std::move(array)));
      }
      case Callable::dtype: {  // ('i8', align, copy); BUILD sets the byte order
        const std::string_view kind = pickle_.string(arguments(tuple, {ValueKind::text}, "dtype")[0]);
        if (kind != "O8" && !is_npy_dtype(kind)) refuse(fmt::format("an array of dtype {}", printable(kind)));
        return push(ValueKind::dtype, keep(dtypes_, kind == "O8" ? std::string("O") : std::string(kind)));
      }
      case Callable::scalar: {  // (dtype, bytes)
        const auto given = arguments(tuple, {ValueKind::dtype, ValueKind::bytes}, "scalar");
        return push(scalar(dtypes_[given[0].index()], pickle_.string(given[1])));
      }
      case Callable::encode: {  // (text, 'latin1')
        const auto given = arguments(tuple, {ValueKind::text, ValueKind::text}, "encode");
        if (pickle_.string(given[1]) != "latin1") bad("bytes in an encoding other than latin1");
        return push_string(ValueKind::bytes, latin1(pickle_.string(given[0])));
      }
      case Callable::bytes:
        if (!pickle_.items(tuple).empty()) bad("a call of bytes with arguments");
        return push_string(ValueKind::bytes, {});
      case Callable::ndarray: break;
    }
    refuse("a call of ndarray");
  }

  void build() {
    const PickleValue state = pop(ValueKind::tuple);
    const PickleValue built = top();
    if (built.kind() == ValueKind::dtype) {  // (version, byte order, subarray, names, fields, ...)
      const auto given = arguments(
          state, {ValueKind::integer, ValueKind::text, ValueKind::none, ValueKind::none, ValueKind::none}, "a dtype");
      if (pickle_.string(given[1]) == ">") refuse("a dtype in big-endian order");
    } else if (built.kind() == ValueKind::array) {  // (version, shape, dtype, Fortran order, bytes or list)
      const auto given =
          arguments(state, {ValueKind::integer, ValueKind::tuple, ValueKind::dtype, ValueKind::boolean}, "an array");
      if (given.size() != 5) bad("an array without data");
      fill(pickle_.arrays_[built.index()], given[1], given[2], given[3].integer() != 0, given[4]);
    } else {
      refuse(fmt::format("a state for a {}", name(built.kind())));
    }
  }

  void fill(PickleArray& array, PickleValue shape, PickleValue dtype, bool fortran, PickleValue data) {
    if (fortran) refuse("an array in Fortran order");
    array.shape.clear();
    for (const PickleValue dim : pickle_.items(shape)) {
      if (dim.kind() != ValueKind::integer || dim.integer() < 0 || array.shape.size() == npy_max_dims)
        bad("a bad shape");
      array.shape.push_back(dim.integer());
    }
    array.dtype = dtypes_[dtype.index()];
    const int64_t num_items = items_of(array);
    if (array.dtype == "O") {
      if (data.kind() != ValueKind::list) bad("an object array without its list");
      array.objects = data;  // its length is checked at the end, as items may still be appended
      return;
    }
    uint64_t size = npy_item_size(array.dtype);
    if (data.kind() != ValueKind::bytes) bad("an array without its bytes");
    array.data = pickle_.string(data);
    if (__builtin_mul_overflow(size, static_cast<uint64_t>(num_items), &size) || size != array.data.size()) {
      bad("an array with more or fewer bytes than its shape has");
    }
  }

  int64_t items_of(const PickleArray& array) const {
    int64_t number = 1;
    for (const int64_t dim : array.shape) {
      if (__builtin_mul_overflow(number, dim, &number)) bad("a shape whose product overflows");
    }
    return number;
  }

  PickleValue scalar(const std::string& dtype, std::string_view bytes) const {
    if (dtype == "O") refuse("a scalar of dtype 'O'");
    if (bytes.size() != npy_item_size(dtype)) bad("a scalar of the wrong size");
    if (dtype[0] == 'f') return {ValueKind::real, std::bit_cast<int64_t>(npy_real(dtype, bytes))};
    const std::optional<int64_t> value = npy_integer(dtype, bytes);
    if (!value) refuse("an integer of more than 63 bits");
    return {dtype == "b1" ? ValueKind::boolean : ValueKind::integer, *value};
  }

  // The bytes whose code points are in the text. Their total size is limited to the size of the file, so that a text
  // that is used many times cannot exhaust the memory.
  std::string_view latin1(std::string_view text) {
    std::string bytes;
    for (size_t i = 0; i < text.size(); ++i) {
      const auto first = static_cast<uint8_t>(text[i]);
      if (first < 0x80) {
        bytes += text[i];
        continue;
      }
      ++i;
      const bool is_latin1 = (first == 0xc2 || first == 0xc3) && i < text.size() && (text[i] & 0xc0) == 0x80;
      if (!is_latin1) bad("a text that is not latin1");
      bytes += static_cast<char>((first & 3) << 6 | (text[i] & 0x3f));
    }
    size_owned_ += bytes.size();
    if (size_owned_ > size_) too_large("bytes in texts", static_cast<int64_t>(size_));
    return pickle_.owned_.emplace_back(std::move(bytes));
  }

  // The number of values visited by a recursive expansion of `value`. Stored weights are 0 for unvisited values and -1
  // for values being visited.
  int64_t weigh(PickleValue value, int depth) {
    switch (value.kind()) {
      case ValueKind::dtype:
      case ValueKind::callable: refuse(fmt::format("a {} as a value", name(value.kind())));
      case ValueKind::text:
      case ValueKind::bytes: return 1 + static_cast<int64_t>(pickle_.string(value).size() / 16);
      case ValueKind::list:
      case ValueKind::tuple:
      case ValueKind::dict: return weigh(value, depth, container_weights_[value.index()]);
      case ValueKind::array: return weigh(value, depth, array_weights_[value.index()]);
      default: return 1;
    }
  }

  int64_t weigh(PickleValue value, int depth, int64_t& weight) {
    if (weight > 0) return weight;
    if (weight < 0) refuse(fmt::format("a {} that contains itself", name(value.kind())));
    if (depth == Pickle::max_depth) too_large("levels", Pickle::max_depth);
    weight = -1;
    int64_t sum = 1;
    const auto add = [&](int64_t more) {
      sum += more;
      if (sum > Pickle::max_values) too_large("values (counting repeated references)", Pickle::max_values);
    };
    if (value.kind() == ValueKind::array) {
      const PickleArray& array = pickle_.arrays_[value.index()];
      if (array.dtype.empty()) bad("an array without shape and data");
      const bool has_objects = array.dtype == "O";
      if (has_objects && std::ssize(pickle_.items(array.objects)) != items_of(array)) {
        bad("an object array with more or fewer items than its shape has");
      }
      add(has_objects ? weigh(array.objects, depth + 1) : items_of(array));
    } else {
      const std::vector<PickleValue>& items = pickle_.containers_[value.index()];
      if (value.kind() == ValueKind::dict) check_keys(value);
      for (const PickleValue item : items) add(weigh(item, depth + 1));
    }
    return weight = sum;
  }

  void check_keys(PickleValue dict) const {
    std::vector<std::string_view> keys = pickle_.keys(dict);
    std::sort(keys.begin(), keys.end());
    const auto twice = std::adjacent_find(keys.begin(), keys.end());
    if (twice != keys.end()) bad(fmt::format("a dict has the key {} twice", printable(*twice)));
  }

  Pickle& pickle_;
  ByteReader reader_;
  const std::string& source_;
  size_t size_;
  std::vector<PickleValue> stack_;
  std::vector<size_t> marks_;  // stack heights
  std::unordered_map<uint64_t, PickleValue> memo_;
  std::vector<std::string> dtypes_;
  int64_t num_pushed_ = 0, num_held_ = 0;
  size_t size_owned_ = 0;
  std::vector<int64_t> container_weights_, array_weights_;
};

Pickle::Pickle(std::span<const std::byte> bytes, const std::string& source) {
  PickleReader(*this, bytes, source).read();
}

const PickleValue* Pickle::find(PickleValue dict, std::string_view key) const {
  const std::vector<PickleValue>& items = containers_[dict.index()];
  for (size_t i = 0; i < items.size(); i += 2) {
    if (string(items[i]) == key) return &items[i + 1];
  }
  return nullptr;
}

std::vector<std::string_view> Pickle::keys(PickleValue dict) const {
  const std::vector<PickleValue>& items = containers_[dict.index()];
  std::vector<std::string_view> keys;
  for (size_t i = 0; i < items.size(); i += 2) keys.push_back(string(items[i]));
  return keys;
}

const char* name(PickleValue::Kind kind) {
  static constexpr std::array<const char*, 12> names = {"NoneType", "bool",    "int",         "float",
                                                        "str",      "bytes",   "list",        "tuple",
                                                        "dict",     "ndarray", "numpy.dtype", "function"};
  return names[static_cast<size_t>(kind)];
}

}  // namespace ingot::formats
