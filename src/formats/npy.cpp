#include "formats/npy.h"

#include <charconv>

#include "base/error.h"
#include "formats/byte_reader.h"
#include "formats/npy_dtype.h"
#include "formats/printable.h"
#include "storage/file_cache.h"

namespace ingot::formats {
namespace {

constexpr std::string_view magic = "\x93NUMPY";

struct Header {
  std::string dtype;  // without byte order
  std::vector<int64_t> shape;
};

// The header is a Python dict literal with exactly the keys descr, fortran_order and shape, in any order.
class HeaderParser {
 public:
  HeaderParser(std::string_view text, const std::string& source) : text_(text), source_(source) {}

  Header parse() {
    expect('{');
    unsigned seen = 0;
    while (!accept('}')) {
      const std::string_view key = quoted();
      expect(':');
      const unsigned bit = key == "descr" ? 1 : key == "fortran_order" ? 2 : key == "shape" ? 4 : 0;
      if (bit == 0) throw_error(ErrorKind::corrupt, "{}: unknown key {} in the header", source_, printable(key));
      if ((seen & bit) != 0) throw_error(ErrorKind::corrupt, "{}: duplicate key {} in the header", source_, key);
      seen |= bit;
      if (bit == 1) descr();
      if (bit == 2) fortran_order();
      if (bit == 4) shape();
      if (!accept(',')) {
        expect('}');
        break;
      }
    }
    skip_blanks();
    if (!text_.empty()) bad("text after the dictionary");
    if (seen != 7) throw_error(ErrorKind::corrupt, "{}: the header lacks descr, fortran_order or shape", source_);
    return std::move(header_);
  }

 private:
  [[noreturn]] void bad(const char* what) const {
    throw_error(ErrorKind::corrupt, "{}: malformed header ({} before {})", source_, what, printable(text_));
  }

  void skip_blanks() {
    while (!text_.empty() && (text_.front() == ' ' || text_.front() == '\n')) text_.remove_prefix(1);
  }

  bool accept(char wanted) {
    skip_blanks();
    if (text_.empty() || text_.front() != wanted) return false;
    text_.remove_prefix(1);
    return true;
  }

  void expect(char wanted) {
    if (!accept(wanted)) throw_error(ErrorKind::corrupt, "{}: malformed header (no {})", source_, wanted);
  }

  std::string_view quoted() {
    skip_blanks();
    if (text_.empty() || (text_.front() != '\'' && text_.front() != '"')) bad("no string");
    const size_t end = text_.find(text_.front(), 1);
    if (end == std::string_view::npos) bad("a string without end");
    const std::string_view inside = text_.substr(1, end - 1);
    text_.remove_prefix(end + 1);
    return inside;
  }

  void descr() {
    skip_blanks();
    if (!text_.empty() && text_.front() == '[')
      throw_error(ErrorKind::unsupported, "{}: arrays of records are not supported", source_);
    const std::string_view text = quoted();
    const std::string_view kind = text.empty() ? text : text.substr(1);
    if (text != "|O" && !is_npy_dtype(kind))
      throw_error(ErrorKind::unsupported, "{}: dtype {} is not supported", source_, printable(text));
    header_.dtype = kind;
    if (text[0] != '<' && !(text[0] == '|' && (kind == "O" || npy_item_size(kind) == 1))) {
      throw_hint(ErrorKind::unsupported, "save it again in little-endian order", "{}: dtype {} is not little-endian",
                 source_, printable(text));
    }
  }

  void fortran_order() {
    skip_blanks();
    if (text_.starts_with("True")) {
      throw_hint(ErrorKind::unsupported, "save numpy.ascontiguousarray of it",
                 "{}: arrays in Fortran order are not supported", source_);
    }
    if (!text_.starts_with("False")) bad("fortran_order is neither True nor False");
    text_.remove_prefix(5);
  }

  void shape() {
    expect('(');
    bool comma = true;  // whether there was a comma since the last number
    while (!accept(')')) {
      if (!comma) bad("no comma");
      skip_blanks();
      uint64_t dim = 0;
      const auto [end, error] = std::from_chars(text_.data(), text_.data() + text_.size(), dim);
      if (error != std::errc() || !std::in_range<int64_t>(dim)) bad("a bad dimension");
      text_.remove_prefix(static_cast<size_t>(end - text_.data()));
      if (header_.shape.size() == npy_max_dims) bad("more than 64 dimensions");
      header_.shape.push_back(static_cast<int64_t>(dim));
      comma = accept(',');
    }
    if (header_.shape.size() == 1 && !comma) bad("a number where a tuple belongs");
  }

  std::string_view text_;  // unparsed rest
  const std::string& source_;
  Header header_;
};

// Bytes of the array (or elements, for item_size 1). `kind` is the error's kind on overflow.
uint64_t size_of(std::span<const int64_t> shape, uint64_t item_size, ErrorKind kind, const std::string& source) {
  uint64_t size = item_size;
  for (const int64_t dim : shape) {
    if (dim < 0 || __builtin_mul_overflow(size, static_cast<uint64_t>(dim), &size)) {
      throw_error(kind, "{}: the product of the dimensions overflows", source);
    }
  }
  return size;
}

}  // namespace

NpyFile::NpyFile(const std::filesystem::path& path) {
  const InputFile file = input_file(path);
  file_ = MappedFile(file.path);
  source_ = file.shown;
  parse(file_.bytes());
}

NpyFile::NpyFile(std::span<const std::byte> bytes, std::string source) : source_(std::move(source)) { parse(bytes); }

void NpyFile::parse(std::span<const std::byte> bytes) {
  ByteReader reader(bytes, source_);
  const std::span<const std::byte> begin = reader.take(magic.size(), "the magic");
  if (std::string_view(reinterpret_cast<const char*>(begin.data()), begin.size()) != magic) {
    throw_error(ErrorKind::corrupt, "{}: not a .npy file: it does not begin with \\x93NUMPY", source_);
  }
  const int major = reader.number<uint8_t>("the version");
  const int minor = reader.number<uint8_t>("the version");
  if ((major != 1 && major != 2) || minor != 0) {
    throw_error(ErrorKind::unsupported, "{}: .npy version {}.{}; 1.0 and 2.0 can be read", source_, major, minor);
  }
  const uint64_t header_size =
      major == 1 ? reader.number<uint16_t>("the header size") : reader.number<uint32_t>("the header size");
  const std::span<const std::byte> text = reader.take(header_size, "the header");
  Header header = HeaderParser({reinterpret_cast<const char*>(text.data()), text.size()}, source_).parse();
  dtype_ = std::move(header.dtype);
  shape_ = std::move(header.shape);
  const uint64_t size = size_of(shape_, dtype_ == "O" ? 1 : npy_item_size(dtype_), ErrorKind::corrupt, source_);
  if (dtype_ == "O") {
    read_objects(reader.take(reader.remaining(), "the objects"), size);
    return;
  }
  if (size != reader.remaining()) {
    throw_error(ErrorKind::corrupt, "{}: dtype and shape need {} bytes of data, the file has {}", source_, size,
                reader.remaining());
  }
  data_ = reader.take(size, "the data");
}

void NpyFile::read_objects(std::span<const std::byte> bytes, uint64_t number) {
  pickle_ = Pickle(bytes, source_);
  const PickleValue root = pickle_.root();
  if (root.kind() != PickleValue::Kind::array || pickle_.array(root).dtype != "O") {
    throw_error(ErrorKind::corrupt, "{}: the pickle holds a value that is not an object array", source_);
  }
  objects_ = pickle_.items(pickle_.array(root).objects);
  if (objects_.size() != number) {
    throw_error(ErrorKind::corrupt, "{}: the shape needs {} objects, the file has {}", source_, number,
                objects_.size());
  }
}

NpyWriter::NpyWriter(std::filesystem::path path, std::span<const int64_t> shape)
    : path_(path), remaining_(size_of(shape, 1, ErrorKind::internal, path.string())), file_(std::move(path)) {
  std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': (";
  for (size_t i = 0; i < shape.size(); ++i) header += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
  header += shape.size() == 1 ? ",), }" : "), }";
  // NumPy reserves room for the first dimension to grow to 21 digits, for files that are appended to.
  if (!shape.empty()) header.append(21 - std::to_string(shape[0]).size(), ' ');
  constexpr size_t before = 10;  // magic, version, u16 header size
  const size_t padding = 64 - (before + header.size() + 1) % 64;
  header.append(padding, ' ');
  header += '\n';
  std::string prefix(magic);
  prefix += '\1';
  prefix += '\0';
  prefix += static_cast<char>(header.size() & 0xff);
  prefix += static_cast<char>(header.size() >> 8);
  file_.write(prefix);
  file_.write(header);
}

void NpyWriter::write(std::span<const float> values) {
  if (values.size() > remaining_) {
    throw_error(ErrorKind::internal, "{}: {} values more than the shape holds", path_.string(),
                values.size() - remaining_);
  }
  file_.write(std::as_bytes(values));
  remaining_ -= values.size();
}

void NpyWriter::finish() {
  if (remaining_ != 0) throw_error(ErrorKind::internal, "{}: {} values are missing", path_.string(), remaining_);
  file_.publish();
}

}  // namespace ingot::formats
