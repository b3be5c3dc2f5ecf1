#include "formats/safetensors.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <tuple>

#include "base/error.h"
#include "formats/printable.h"
#include "formats/safetensors_dtype.h"
#include "formats/safetensors_header.h"

namespace ingot::formats {
namespace {

constexpr uint64_t max_header_size = 100'000'000;

}  // namespace

int safetensors_rank(std::string_view dtype) {
  for (size_t i = 0; i < safetensors_dtypes.size(); ++i) {
    if (safetensors_dtypes[i].name == dtype) return static_cast<int>(i);
  }
  return -1;
}

int safetensors_bits(std::string_view dtype) {
  const int rank = safetensors_rank(dtype);
  return rank < 0 ? 0 : safetensors_dtypes[static_cast<size_t>(rank)].bits;
}

uint64_t safetensors_size(std::string_view dtype, std::span<const int64_t> shape, std::string_view what) {
  const int bits = safetensors_bits(dtype);
  if (bits == 0) throw_error(ErrorKind::unsupported, "{}: unknown dtype {}", what, printable(dtype));
  uint64_t size = static_cast<uint64_t>(bits);
  for (const int64_t dim : shape) {
    if (dim < 0) throw_error(ErrorKind::corrupt, "{}: dimension {} is negative", what, dim);
    if (__builtin_mul_overflow(size, static_cast<uint64_t>(dim), &size)) {
      throw_error(ErrorKind::corrupt, "{}: the product of its dimensions overflows", what);
    }
  }
  if (size % 8 != 0) throw_error(ErrorKind::corrupt, "{}: its {} bits are not a whole number of bytes", what, size);
  return size / 8;
}

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path) : file_(path), source_(path.string()) {
  parse(file_.bytes());
}

SafetensorsFile::SafetensorsFile(std::span<const std::byte> bytes, std::string source) : source_(std::move(source)) {
  parse(bytes);
}

void SafetensorsFile::parse(std::span<const std::byte> bytes) {
  if (bytes.size() < 8) {
    throw_error(ErrorKind::corrupt, "{}: {} bytes are too few for a safetensors file", source_, bytes.size());
  }
  uint64_t header_size = 0;
  for (size_t i = 8; i-- > 0;) header_size = header_size << 8 | std::to_integer<uint64_t>(bytes[i]);
  if (header_size > max_header_size) {
    throw_error(ErrorKind::corrupt, "{}: header of {} bytes, more than the {} that the format allows", source_,
                header_size, max_header_size);
  }
  if (header_size > bytes.size() - 8) {
    throw_error(ErrorKind::corrupt, "{}: header of {} bytes in a file of {}: cut short", source_, header_size,
                bytes.size());
  }
  const std::span<const std::byte> text = bytes.subspan(8, header_size);
  const std::span<const std::byte> data = bytes.subspan(8 + header_size);
  SafetensorsHeader header =
      parse_safetensors_header({reinterpret_cast<const char*>(text.data()), text.size()}, source_);

  std::sort(header.tensors.begin(), header.tensors.end(), [](const auto& a, const auto& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });
  entries_.reserve(header.tensors.size());
  uint64_t end = 0;
  for (SafetensorsHeader::Tensor& tensor : header.tensors) {
    const std::string what = fmt::format("{}: tensor {}", source_, printable(tensor.name));
    if (tensor.begin > tensor.end) {
      throw_error(ErrorKind::corrupt, "{}: data_offsets [{}, {}] are descending", what, tensor.begin, tensor.end);
    }
    if (tensor.begin < end) {
      throw_error(ErrorKind::corrupt, "{}: begins at {} and overlaps the tensor that ends at {}", what, tensor.begin,
                  end);
    }
    if (tensor.begin > end) {
      throw_error(ErrorKind::corrupt, "{}: begins at {}, leaving a gap after byte {}", what, tensor.begin, end);
    }
    if (tensor.end > data.size()) {
      throw_error(ErrorKind::corrupt, "{}: ends at byte {}, but the file has {} bytes of data: cut short", what,
                  tensor.end, data.size());
    }
    const uint64_t size = safetensors_size(tensor.dtype, tensor.shape, what);
    if (size != tensor.end - tensor.begin) {
      throw_error(ErrorKind::corrupt, "{}: dtype and shape need {} bytes, data_offsets give {}", what, size,
                  tensor.end - tensor.begin);
    }
    end = tensor.end;
    entries_.push_back({.name = std::move(tensor.name),
                        .dtype = std::move(tensor.dtype),
                        .shape = std::move(tensor.shape),
                        .bytes = data.subspan(tensor.begin, size)});
  }
  if (end != data.size()) {
    throw_error(ErrorKind::corrupt, "{}: {} bytes of data after the last tensor", source_, data.size() - end);
  }
  metadata_ = std::move(header.metadata);
  by_name_.resize(entries_.size());
  std::iota(by_name_.begin(), by_name_.end(), size_t{0});
  std::sort(by_name_.begin(), by_name_.end(),
            [this](size_t a, size_t b) { return entries_[a].name < entries_[b].name; });
}

const TensorEntry* SafetensorsFile::find(std::string_view name) const {
  const auto found = std::lower_bound(by_name_.begin(), by_name_.end(), name,
                                      [this](size_t i, std::string_view wanted) { return entries_[i].name < wanted; });
  return found != by_name_.end() && entries_[*found].name == name ? &entries_[*found] : nullptr;
}

const TensorEntry& SafetensorsFile::at(std::string_view name) const {
  const TensorEntry* entry = find(name);
  if (entry == nullptr) throw_error(ErrorKind::not_found, "{}: no tensor {}", source_, printable(name));
  return *entry;
}

}  // namespace ingot::formats
