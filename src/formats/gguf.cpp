#include "formats/gguf.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "formats/byte_reader.h"
#include "formats/printable.h"

namespace ingot::formats {
namespace {

constexpr uint32_t gguf_magic = 0x46554747;  // "GGUF"
constexpr uint32_t max_alignment = 1U << 20;
constexpr size_t max_name_size = 64;
constexpr uint64_t min_item_size = 8 + 4 + 1;         // key length, value type, one byte of value
constexpr uint64_t min_tensor_size = 8 + 4 + 8 + 12;  // name length, n_dims, one dimension, type and offset
constexpr size_t string_type = 8;
constexpr size_t array_type = 9;

bool read_bool(ByteReader& reader, std::string_view what, const std::string& source) {
  const uint8_t byte = reader.number<uint8_t>(what);
  if (byte > 1) throw_error(ErrorKind::corrupt, "{}: {} is a bool with the value {}", source, what, byte);
  return byte == 1;
}

// Reads a value of type id `type` as the variant alternative of that index. `type` is known only at run time, so `Type`
// counts up recursively until it equals `type`.
template <size_t Type = 0>
GgufValue read_value(size_t type, ByteReader& reader, std::string_view what, const std::string& source);

template <size_t Type = 0>
GgufArray read_items(size_t type, ByteReader& reader, std::string_view what, const std::string& source) {
  if constexpr (Type == std::variant_size_v<decltype(GgufArray::items)>) {
    throw_error(ErrorKind::unsupported, "{}: {} is a list of unknown value type {}", source, what, type);
  } else if (type != Type) {
    return read_items<Type + 1>(type, reader, what, source);
  } else if constexpr (Type == array_type) {
    throw_error(ErrorKind::unsupported, "{}: {} is a list of lists, which is not supported", source, what);
  } else {
    using Items = std::variant_alternative_t<Type, decltype(GgufArray::items)>;
    using Item = typename Items::value_type;
    const uint64_t count = reader.count(Type == string_type ? 8 : sizeof(Item), what);
    Items items;
    items.reserve(count);
    for (uint64_t i = 0; i < count; ++i) {
      if constexpr (Type == string_type) {
        items.emplace_back(reader.string(what));
      } else if constexpr (std::is_same_v<Item, bool>) {
        items.push_back(read_bool(reader, what, source));
      } else {
        items.push_back(reader.number<Item>(what));
      }
    }
    return GgufArray{decltype(GgufArray::items)(std::in_place_index<Type>, std::move(items))};
  }
}

template <size_t Type>
GgufValue read_value(size_t type, ByteReader& reader, std::string_view what, const std::string& source) {
  if constexpr (Type == std::variant_size_v<GgufValue>) {
    throw_error(ErrorKind::unsupported, "{}: {} has unknown value type {}", source, what, type);
  } else if (type != Type) {
    return read_value<Type + 1>(type, reader, what, source);
  } else if constexpr (Type == string_type) {
    return std::string(reader.string(what));
  } else if constexpr (Type == array_type) {
    const uint32_t item_type = reader.number<uint32_t>(what);
    return read_items(item_type, reader, what, source);
  } else {
    using T = std::variant_alternative_t<Type, GgufValue>;
    if constexpr (std::is_same_v<T, bool>) {
      return GgufValue(std::in_place_index<Type>, read_bool(reader, what, source));
    } else {
      return GgufValue(std::in_place_index<Type>, reader.number<T>(what));
    }
  }
}

uint32_t read_version(ByteReader& reader, const std::string& source) {
  if (reader.number<uint32_t>("the magic") != gguf_magic) {
    throw_error(ErrorKind::corrupt, "{}: not a GGUF file: it does not begin with GGUF", source);
  }
  const uint32_t version = reader.number<uint32_t>("the version");
  if ((version & 0xffffU) == 0 && version != 0) {
    throw_hint(ErrorKind::unsupported, "convert it to little-endian with llama.cpp's gguf_convert_endian.py",
               "{}: big-endian GGUF is not supported", source);
  }
  if (version != 2 && version != 3) {
    throw_hint(ErrorKind::unsupported, "convert the model again with a current llama.cpp",
               "{}: GGUF version {}; versions 2 and 3 can be read", source, version);
  }
  return version;
}

uint32_t checked_alignment(const GgufMetadata& metadata, const std::string& source) {
  const GgufValue* value = metadata.find("general.alignment");
  if (value == nullptr) return 32;
  const uint32_t* alignment = std::get_if<uint32_t>(value);
  if (alignment == nullptr) {
    throw_error(ErrorKind::corrupt, "{}: general.alignment is {}, not u32", source,
                gguf_value_type_name(value->index()));
  }
  if (*alignment == 0 || *alignment % 8 != 0 || *alignment > max_alignment) {
    throw_error(ErrorKind::corrupt, "{}: general.alignment is {}; it must be a multiple of 8 up to {}", source,
                *alignment, max_alignment);
  }
  return *alignment;
}

struct TensorInfo {
  GgufTensor tensor;  // `bytes` not set yet
  uint64_t size = 0;
  uint64_t offset = 0;
};

TensorInfo read_tensor_info(ByteReader& reader, uint32_t alignment, const std::string& source) {
  TensorInfo tensor;
  tensor.tensor.name = reader.string("a tensor name");
  const std::string what = fmt::format("{}: tensor {}", source, printable(tensor.tensor.name));
  if (tensor.tensor.name.size() > max_name_size) {
    throw_error(ErrorKind::corrupt, "{}: the name has {} bytes, but the format allows {}", what,
                tensor.tensor.name.size(), max_name_size);
  }
  const uint32_t num_dims = reader.number<uint32_t>("the number of dimensions");
  if (num_dims < 1 || num_dims > 4) {
    throw_error(ErrorKind::corrupt, "{}: {} dimensions, but the format allows 1 to 4", what, num_dims);
  }
  for (uint32_t i = 0; i < num_dims; ++i) tensor.tensor.dims.push_back(reader.number<int64_t>("a dimension"));
  const uint32_t type = reader.number<uint32_t>("a tensor type");
  const GgufTypeInfo* known = find_gguf_type(type);
  if (known == nullptr) throw_error(ErrorKind::unsupported, "{}: unknown tensor type {}", what, type);
  tensor.tensor.type = known->type;
  tensor.size = gguf_size(*known, tensor.tensor.dims, what);
  tensor.offset = reader.number<uint64_t>("a tensor offset");
  if (tensor.offset % alignment != 0) {
    throw_error(ErrorKind::corrupt, "{}: offset {} is not a multiple of the alignment {}", what, tensor.offset,
                alignment);
  }
  return tensor;
}

void check_overlap(const std::vector<TensorInfo>& infos, const std::string& source) {
  std::vector<const TensorInfo*> order;
  for (const TensorInfo& tensor : infos) {
    if (tensor.size != 0) order.push_back(&tensor);
  }
  std::sort(order.begin(), order.end(), [](const auto* a, const auto* b) { return a->offset < b->offset; });
  for (size_t i = 1; i < order.size(); ++i) {
    if (order[i]->offset < order[i - 1]->offset + order[i - 1]->size) {
      throw_error(ErrorKind::corrupt, "{}: tensors {} and {} overlap", source, printable(order[i - 1]->tensor.name),
                  printable(order[i]->tensor.name));
    }
  }
}

}  // namespace

GgufFile::GgufFile(const std::filesystem::path& path) : file_(path), source_(path.string()), metadata_(source_) {
  parse(file_.bytes());
}

GgufFile::GgufFile(std::span<const std::byte> bytes, std::string source)
    : source_(std::move(source)), metadata_(source_) {
  parse(bytes);
}

void GgufFile::parse(std::span<const std::byte> bytes) {
  ByteReader reader(bytes, source_);
  version_ = read_version(reader, source_);
  const uint64_t num_tensors = reader.count(min_tensor_size, "the tensor count");
  const uint64_t num_items = reader.count(min_item_size, "the key-value count");

  for (uint64_t i = 0; i < num_items; ++i) {
    std::string key(reader.string("a key"));
    const uint32_t type = reader.number<uint32_t>("a value type");
    const std::string what = "key " + printable(key);
    GgufValue value = read_value(type, reader, what, source_);
    metadata_.add(std::move(key), std::move(value));
  }
  alignment_ = checked_alignment(metadata_, source_);

  std::vector<TensorInfo> infos;
  infos.reserve(num_tensors);
  for (uint64_t i = 0; i < num_tensors; ++i) infos.push_back(read_tensor_info(reader, alignment_, source_));

  const uint64_t data_begin = (reader.position() + alignment_ - 1) / alignment_ * alignment_;
  const std::span<const std::byte> data = data_begin < bytes.size() ? bytes.subspan(data_begin) : bytes.subspan(0, 0);
  for (const TensorInfo& tensor : infos) {
    if (tensor.offset > data.size() || tensor.size > data.size() - tensor.offset) {
      throw_error(ErrorKind::corrupt,
                  "{}: tensor {}: needs {} bytes at offset {}, but the file has {} bytes of data: cut short", source_,
                  printable(tensor.tensor.name), tensor.size, tensor.offset, data.size());
    }
  }
  check_overlap(infos, source_);

  tensors_.reserve(infos.size());
  for (TensorInfo& tensor : infos) {
    tensor.tensor.bytes = data.subspan(tensor.offset, tensor.size);
    tensors_.push_back(std::move(tensor.tensor));
  }
  by_name_.resize(tensors_.size());
  std::iota(by_name_.begin(), by_name_.end(), size_t{0});
  std::sort(by_name_.begin(), by_name_.end(),
            [this](size_t a, size_t b) { return tensors_[a].name < tensors_[b].name; });
  for (size_t i = 1; i < by_name_.size(); ++i) {
    if (tensors_[by_name_[i]].name == tensors_[by_name_[i - 1]].name) {
      throw_error(ErrorKind::corrupt, "{}: duplicate tensor {}", source_, printable(tensors_[by_name_[i]].name));
    }
  }
}

const GgufTensor* GgufFile::find(std::string_view name) const {
  const auto found = std::lower_bound(by_name_.begin(), by_name_.end(), name,
                                      [this](size_t i, std::string_view wanted) { return tensors_[i].name < wanted; });
  return found != by_name_.end() && tensors_[*found].name == name ? &tensors_[*found] : nullptr;
}

const GgufTensor& GgufFile::at(std::string_view name) const {
  const GgufTensor* tensor = find(name);
  if (tensor == nullptr) throw_error(ErrorKind::not_found, "{}: no tensor {}", source_, printable(name));
  return *tensor;
}

}  // namespace ingot::formats
