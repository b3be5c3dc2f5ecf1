#include "data/byte_stream.h"

#include <unistd.h>
#include <zlib.h>
#include <zstd.h>
#include <zstd_errors.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <vector>

#include "base/descriptor.h"
#include "base/error.h"
#include "base/path.h"
#include "storage/file_cache.h"

namespace ingot::data {

namespace fs = std::filesystem;

namespace {

constexpr size_t buffer_bytes = size_t{1} << 18;
constexpr std::string_view byte_order_mark = "\xef\xbb\xbf";

// File formats that users pass by mistake, recognised by their first bytes.
struct UnsupportedFormat {
  std::string_view magic;
  const char* what;
  const char* hint;
};
constexpr std::array unsupported_formats = {
    UnsupportedFormat{"PAR1", "a Parquet file",
                      "convert it to JSON lines, for instance with Python: import pandas; "
                      "pandas.read_parquet('in.parquet').to_json('out.jsonl', orient='records', lines=True)"},
    UnsupportedFormat{"ARROW1", "an Arrow file",
                      "convert it to JSON lines, for instance with Python: import pandas; "
                      "pandas.read_feather('in.arrow').to_json('out.jsonl', orient='records', lines=True)"},
    UnsupportedFormat{"\x93NUMPY", "a NumPy array", "if it holds token ids, name it .npy, uncompressed"},
    UnsupportedFormat{"BZh", "compressed with bzip2", "decompress it (bunzip2), or compress it with gzip or zstd"},
    UnsupportedFormat{"\xfd"
                      "7zXZ",
                      "compressed with xz", "decompress it (unxz), or compress it with gzip or zstd"},
    UnsupportedFormat{"PK\x03\x04", "a zip archive", "unpack it (unzip) and name the files in it"},
    UnsupportedFormat{"\xff\xfe", "UTF-16 text", "convert it: iconv -f UTF-16 -t UTF-8 in > out"},
    UnsupportedFormat{"\xfe\xff", "UTF-16 text", "convert it: iconv -f UTF-16 -t UTF-8 in > out"}};
constexpr size_t magic_bytes = 6;  // of the longest magic

void refuse_unsupported(std::string_view start, const std::string& name) {
  for (const UnsupportedFormat& unsupported : unsupported_formats) {
    if (start.starts_with(unsupported.magic)) {
      throw_hint(ErrorKind::unsupported, unsupported.hint, "{}: is {}, which is not supported", name, unsupported.what);
    }
  }
}

constexpr int window_log = 27;  // of Zstandard: limits memory to 128 MiB

// Whether the data starts with a Zstandard frame or a skippable frame.
bool is_zstd(std::string_view start) {
  return start.starts_with("\x28\xb5\x2f\xfd") ||
         (start.size() >= 4 && (start[0] & 0xf0) == 0x50 && start.substr(1, 3) == "\x2a\x4d\x18");
}

}  // namespace

// The file as stored on disk, read through one buffer.
class ByteStream::Raw {
 public:
  explicit Raw(const fs::path& path) : file_(input_file(path)), path_(file_.shown), buffer_(buffer_bytes) {
    if (is_folder(file_.path)) {
      throw_hint(ErrorKind::not_found, "list the files in it, one source each", "{}: is a folder, not a data file",
                 path_.string());
    }
    descriptor_ = open_regular_file(file_.path);
  }

  const fs::path& path() const { return path_; }
  std::span<const char> left() const { return {buffer_.data() + begin_, end_ - begin_}; }
  void consume(size_t bytes) {
    begin_ += bytes;
    consumed_ += bytes;
  }
  uint64_t consumed() const { return consumed_; }  // bytes of the stored file

  // Does one read and appends its data to the remaining data; false at the end of the file.
  bool fill() {
    std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
    for (;;) {
      const ssize_t got = ::read(descriptor_.fd, buffer_.data() + end_, buffer_.size() - end_);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) {
        throw_error(ErrorKind::not_found, "{}: cannot be read: {}", path_.string(), errno_message(errno));
      }
      end_ += static_cast<size_t>(got);
      return got > 0;
    }
  }

 private:
  InputFile file_;
  fs::path path_;  // as shown in messages
  std::vector<char> buffer_;
  size_t begin_ = 0, end_ = 0;
  uint64_t consumed_ = 0;
  Descriptor descriptor_;
};

class ByteStream::Decoder {
 public:
  explicit Decoder(std::unique_ptr<Raw> source) : raw(std::move(source)) {}
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;
  virtual ~Decoder() = default;
  virtual size_t read(std::span<char> out) = 0;

  const std::unique_ptr<Raw> raw;

 protected:
  [[noreturn]] void damaged(const char* kind, const char* what) const {
    throw_hint(ErrorKind::corrupt, "fetch or compress the file again", "{}: damaged {} data near byte {}: {}",
               raw->path().string(), kind, raw->consumed(), what);
  }
};

class ByteStream::Plain final : public Decoder {
 public:
  using Decoder::Decoder;

  size_t read(std::span<char> out) override {
    if (raw->left().empty() && !raw->fill()) return 0;
    const size_t bytes = std::min(out.size(), raw->left().size());
    std::memcpy(out.data(), raw->left().data(), bytes);
    raw->consume(bytes);
    return bytes;
  }
};

class ByteStream::Gzip final : public Decoder {
 public:
  explicit Gzip(std::unique_ptr<Raw> source) : Decoder(std::move(source)) {
    // Adding 16 to the window bits selects gzip framing with header and checksum.
    if (inflateInit2(&state_, 16 + MAX_WBITS) != Z_OK) throw_error(ErrorKind::resource, "zlib: out of memory");
  }
  ~Gzip() override { inflateEnd(&state_); }

  size_t read(std::span<char> out) override {
    state_.next_out = reinterpret_cast<Bytef*>(out.data());
    state_.avail_out = static_cast<uInt>(std::min(out.size(), buffer_bytes));
    const uInt room = state_.avail_out;
    while (state_.avail_out == room) {
      if (raw->left().empty() && !raw->fill()) {
        if (inside_) damaged("gzip", "it ends too early");
        return 0;
      }
      inside_ = true;
      state_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(raw->left().data()));
      state_.avail_in = static_cast<uInt>(raw->left().size());
      const uInt given = state_.avail_in;
      const int code = inflate(&state_, Z_NO_FLUSH);
      raw->consume(given - state_.avail_in);
      if (code == Z_STREAM_END) {  // a file may hold several members in sequence
        inside_ = false;
        inflateReset(&state_);
      } else if (code == Z_MEM_ERROR) {
        throw_error(ErrorKind::resource, "{}: out of memory while decompressing it", raw->path().string());
      } else if (code != Z_OK) {
        damaged("gzip", state_.msg != nullptr ? state_.msg : "not a gzip stream");
      }
    }
    return room - state_.avail_out;
  }

 private:
  z_stream state_{};
  bool inside_ = false;  // within a member
};

class ByteStream::Zstd final : public Decoder {
 public:
  explicit Zstd(std::unique_ptr<Raw> source) : Decoder(std::move(source)), state_(ZSTD_createDStream()) {
    if (state_ == nullptr) throw_error(ErrorKind::resource, "zstd: out of memory");
    ZSTD_DCtx_setParameter(state_, ZSTD_d_windowLogMax, window_log);
  }
  ~Zstd() override { ZSTD_freeDStream(state_); }

  size_t read(std::span<char> out) override {
    ZSTD_outBuffer output{out.data(), out.size(), 0};
    while (output.pos == 0) {
      // The decoder may still hold output of earlier input, so it is drained before more of the file is read.
      if (raw->left().empty() && !holds_output_ && !raw->fill()) {
        if (inside_) damaged("Zstandard", "it ends too early");
        return 0;
      }
      ZSTD_inBuffer input{raw->left().data(), raw->left().size(), 0};
      const size_t code = ZSTD_decompressStream(state_, &output, &input);
      if (ZSTD_isError(code) != 0) refuse(code);
      raw->consume(input.pos);
      inside_ = code != 0;
      holds_output_ = output.pos == output.size;
    }
    return output.pos;
  }

 private:
  [[noreturn]] void refuse(size_t code) const {
    switch (ZSTD_getErrorCode(code)) {
      case ZSTD_error_frameParameter_windowTooLarge:
        throw_hint(ErrorKind::unsupported, "compress it again without --long, or with --long=27",
                   "{}: decompressing it needs a window of more than {} MiB of memory", raw->path().string(),
                   (size_t{1} << window_log) >> 20);
      case ZSTD_error_dictionary_wrong:
        throw_hint(ErrorKind::unsupported, "decompress it with its dictionary first",
                   "{}: was compressed with a dictionary", raw->path().string());
      default: damaged("Zstandard", ZSTD_getErrorName(code));
    }
  }

  ZSTD_DStream* state_;
  bool inside_ = false;        // within a frame
  bool holds_output_ = false;  // the last call filled its whole output buffer
};

ByteStream::ByteStream(const fs::path& path) {
  auto raw = std::make_unique<Raw>(path);
  while (raw->left().size() < magic_bytes && raw->fill()) {
  }
  const std::string_view start(raw->left().data(), std::min(magic_bytes, raw->left().size()));
  const std::string name = raw->path().string();
  const std::string suffix = raw->path().extension().string();
  refuse_unsupported(suffix == ".parquet" ? "PAR1" : start, name);
  if (start.starts_with("\x1f\x8b")) {
    decoder_ = std::make_unique<Gzip>(std::move(raw));
  } else if (is_zstd(start)) {
    decoder_ = std::make_unique<Zstd>(std::move(raw));
  } else if (suffix == ".gz" || suffix == ".zst") {
    throw_hint(ErrorKind::corrupt, "rename the file if it is not compressed, else fetch it again",
               "{}: does not start as a {} file", name, suffix == ".gz" ? "gzip" : "Zstandard");
  } else {
    decoder_ = std::make_unique<Plain>(std::move(raw));
  }
}

ByteStream::ByteStream(ByteStream&&) noexcept = default;
ByteStream& ByteStream::operator=(ByteStream&&) noexcept = default;
ByteStream::~ByteStream() = default;

size_t ByteStream::read(std::span<char> out) { return out.empty() ? 0 : decoder_->read(out); }

const fs::path& ByteStream::path() const { return decoder_->raw->path(); }

LineReader::LineReader(ByteStream stream, size_t max_text_bytes)
    : stream_(std::move(stream)), max_text_bytes_(max_text_bytes), buffer_(buffer_bytes, '\0') {}

bool LineReader::refill() {
  const bool first = end_ == 0;
  begin_ = 0;
  end_ = stream_.read(buffer_);
  // The decompressed data may also be of an unsupported format.
  if (first) refuse_unsupported(std::string_view(buffer_).substr(0, end_), path().string());
  return end_ > 0;
}

bool LineReader::next(std::string& line) {
  line.clear();
  too_long_ = false;
  if (begin_ == end_ && !refill()) return false;
  ++line_number_;
  for (;;) {
    const size_t found = std::string_view(buffer_).substr(0, end_).find('\n', begin_);
    const size_t stop = found == std::string_view::npos ? end_ : found;
    too_long_ = too_long_ || line.size() + (stop - begin_) > max_line_bytes;
    if (too_long_) {
      line = {};  // the rest of the line is skipped; the next line can be read
    } else {
      line.append(buffer_, begin_, stop - begin_);
    }
    begin_ = stop;
    if (found != std::string_view::npos) {
      ++begin_;
      break;
    }
    if (!refill()) break;
  }
  if (!line.empty() && line.back() == '\r') line.pop_back();
  if (line_number_ == 1 && line.starts_with(byte_order_mark)) line.erase(0, byte_order_mark.size());
  return true;
}

char LineReader::peek() {
  if (begin_ == end_ && !refill()) return '\0';
  const std::string_view left = std::string_view(buffer_).substr(begin_, end_ - begin_);
  const size_t start = left.starts_with(byte_order_mark) ? byte_order_mark.size() : 0;
  const size_t found = left.find_first_not_of(" \t\r\n", start);
  return found == std::string_view::npos ? '\0' : left[found];
}

std::string LineReader::rest() {
  std::string text;
  while (begin_ < end_ || refill()) {
    text.append(buffer_, begin_, end_ - begin_);
    begin_ = end_;
    if (text.size() > max_text_bytes_) {
      throw_hint(ErrorKind::resource, "split it into several files, or convert it to JSON lines",
                 "{}: is a single text of more than {} MiB", path().string(), max_text_bytes_ >> 20);
    }
  }
  if (line_number_ == 0 && text.starts_with(byte_order_mark)) text.erase(0, byte_order_mark.size());
  return text;
}

}  // namespace ingot::data
