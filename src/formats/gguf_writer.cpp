#include "formats/gguf_writer.h"

#include <bit>
#include <unordered_set>

#include "base/error.h"
#include "formats/printable.h"

namespace ingot::formats {
namespace {

static_assert(std::endian::native == std::endian::little, "values are copied as they lie in memory");

template <class T>
void put(std::string& out, T value) {
  char bytes[sizeof(T)];
  std::memcpy(bytes, &value, sizeof(T));
  out.append(bytes, sizeof(T));
}

void put(std::string& out, bool value) { out += value ? '\1' : '\0'; }

void put(std::string& out, const std::string& text) {
  put(out, static_cast<uint64_t>(text.size()));
  out += text;
}

void put(std::string& out, const GgufArray& array) {
  put(out, static_cast<uint32_t>(array.items.index()));
  std::visit(
      [&]<class Items>(const Items& items) {
        if constexpr (!std::is_same_v<Items, std::monostate>) {
          put(out, static_cast<uint64_t>(items.size()));
          for (size_t i = 0; i < items.size(); ++i) {
            const typename Items::value_type& item = items[i];
            put(out, item);
          }
        }
      },
      array.items);
}

uint64_t alignment_of(const GgufMetadata& metadata, const std::filesystem::path& path) {
  const GgufValue* value = metadata.find("general.alignment");
  if (value == nullptr) return 32;
  const uint32_t* alignment = std::get_if<uint32_t>(value);
  if (alignment == nullptr || *alignment == 0 || *alignment % 8 != 0) {
    throw_error(ErrorKind::internal, "{}: general.alignment must be a u32 and a multiple of 8", path.string());
  }
  return *alignment;
}

uint64_t aligned(uint64_t size, uint64_t alignment) { return (size + alignment - 1) / alignment * alignment; }

}  // namespace

GgufWriter::GgufWriter(std::filesystem::path path, const GgufMetadata& metadata, std::vector<GgufDeclaration> tensors)
    : path_(path), tensors_(std::move(tensors)), file_(std::move(path)), alignment_(alignment_of(metadata, path_)) {
  std::string head = "GGUF";
  put(head, uint32_t{3});
  put(head, static_cast<uint64_t>(tensors_.size()));
  put(head, static_cast<uint64_t>(metadata.items().size()));
  for (const auto& [key, value] : metadata.items()) {
    put(head, key);
    put(head, static_cast<uint32_t>(value.index()));
    std::visit([&](const auto& typed) { put(head, typed); }, value);
  }
  std::unordered_set<std::string_view> names;
  uint64_t offset = 0;
  for (const GgufDeclaration& tensor : tensors_) {
    const std::string what = fmt::format("{}: tensor {}", path_.string(), printable(tensor.name));
    if (!names.insert(tensor.name).second) throw_error(ErrorKind::internal, "{}: declared twice", what);
    if (tensor.name.size() > 64) throw_error(ErrorKind::internal, "{}: the name has more than 64 bytes", what);
    const uint64_t size = gguf_size(info(tensor.type), tensor.dims, what);
    put(head, tensor.name);
    put(head, static_cast<uint32_t>(tensor.dims.size()));
    for (const int64_t dim : tensor.dims) put(head, dim);
    put(head, static_cast<uint32_t>(tensor.type));
    put(head, offset);
    sizes_.push_back(size);
    offset += aligned(size, alignment_);
  }
  file_.write(head);
  if (!tensors_.empty()) pad();
}

void GgufWriter::pad() {
  const std::string zeros(aligned(file_.offset(), alignment_) - file_.offset(), '\0');
  file_.write(zeros);
}

void GgufWriter::skip_complete() {
  while (next_ < tensors_.size() && written_ == sizes_[next_]) {
    pad();
    ++next_;
    written_ = 0;
  }
}

void GgufWriter::write(std::string_view name, std::span<const std::byte> bytes) {
  if (bytes.empty()) return;
  skip_complete();
  if (next_ == tensors_.size() || tensors_[next_].name != name) {
    throw_error(ErrorKind::internal, "{}: tensor {} was written, but the next one is {}", path_.string(),
                printable(name), next_ == tensors_.size() ? "none" : printable(tensors_[next_].name));
  }
  if (bytes.size() > sizes_[next_] - written_) {
    throw_error(ErrorKind::internal, "{}: tensor {} has {} bytes, but {} more were written", path_.string(),
                printable(name), sizes_[next_], bytes.size() - (sizes_[next_] - written_));
  }
  file_.write(bytes);
  written_ += bytes.size();
}

void GgufWriter::finish() {
  skip_complete();
  if (next_ != tensors_.size()) {
    throw_error(ErrorKind::internal, "{}: tensor {} has only {} of {} bytes", path_.string(),
                printable(tensors_[next_].name), written_, sizes_[next_]);
  }
  file_.publish();
}

}  // namespace ingot::formats
