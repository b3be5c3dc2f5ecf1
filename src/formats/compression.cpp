#include "formats/compression.h"

#include <brotli/decode.h>
#include <brotli/encode.h>
#include <bzlib.h>
#include <snappy-c.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <memory>

#include "base/error.h"
#include "formats/printable.h"

namespace ingot::formats {
namespace {

struct Codec {
  std::string_view name;
  int min_level = 0, max_level = 0, level = 0;  // default level; all 0 for snappy, which has no levels
};
constexpr std::array<Codec, 5> kinds = {
    {{"br", 0, 11, 11}, {"bz2", 1, 9, 9}, {"gz", 0, 9, 9}, {"snappy"}, {"zstd", 1, 22, 3}}};

Codec parse(std::string_view text) {
  const size_t colon = text.find(':');
  const auto* found =
      std::find_if(kinds.begin(), kinds.end(), [&](const Codec& kind) { return kind.name == text.substr(0, colon); });
  if (found == kinds.end()) {
    throw_hint(ErrorKind::unsupported, "use br, bz2, gz, snappy or zstd", "the compression {} is not known",
               printable(text));
  }
  Codec kind = *found;
  if (colon == text.npos) return kind;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data() + colon + 1, end, kind.level);
  if (error != std::errc() || stop != end || kind.max_level == 0 || kind.level < kind.min_level ||
      kind.level > kind.max_level) {
    throw_error(ErrorKind::unsupported, "the compression {} has an invalid level", printable(text));
  }
  return kind;
}

[[noreturn]] void no_memory(const char* library) { throw_error(ErrorKind::resource, "{}: out of memory", library); }

using Bytes = std::span<const std::byte>;

// Hands out bytes in portions that fit a library's 32-bit counts.
struct Input {
  Bytes left;
  unsigned portion() const {
    return static_cast<unsigned>(std::min<size_t>(left.size(), std::numeric_limits<unsigned>::max()));
  }
  void consume(size_t size) { left = left.subspan(size); }
};

unsigned room_of(std::span<char> out) {
  return static_cast<unsigned>(std::min<size_t>(out.size(), std::numeric_limits<unsigned>::max()));
}

// Each decoder's fill() writes into `out` and returns the number of bytes written; 0 at the end, -1 for damaged data.
class Gunzip {
 public:
  explicit Gunzip(Bytes bytes) : input_{bytes} {
    if (inflateInit2(&state_, 16 + MAX_WBITS) != Z_OK) no_memory("zlib");
  }
  Gunzip(const Gunzip&) = delete;
  Gunzip& operator=(const Gunzip&) = delete;
  ~Gunzip() { inflateEnd(&state_); }

  int64_t fill(std::span<char> out) {
    const unsigned room = room_of(out);
    state_.next_out = reinterpret_cast<Bytef*>(out.data());
    state_.avail_out = room;
    while (state_.avail_out == room && !(ended_ && input_.left.empty())) {
      if (ended_ && inflateReset(&state_) != Z_OK) no_memory("zlib");  // next member
      const unsigned given = input_.portion();
      state_.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(input_.left.data()));
      state_.avail_in = given;
      const int code = inflate(&state_, Z_NO_FLUSH);
      input_.consume(given - state_.avail_in);
      ended_ = code == Z_STREAM_END;
      if (code != Z_OK && code != Z_STREAM_END) return -1;
    }
    return room - state_.avail_out;
  }

 private:
  Input input_;
  z_stream state_{};
  bool ended_ = false;
};

class Bunzip {
 public:
  explicit Bunzip(Bytes bytes) : input_{bytes} { begin(); }
  Bunzip(const Bunzip&) = delete;
  Bunzip& operator=(const Bunzip&) = delete;
  ~Bunzip() { BZ2_bzDecompressEnd(&state_); }

  int64_t fill(std::span<char> out) {
    const unsigned room = room_of(out);
    unsigned left = room;
    while (left == room && !(ended_ && input_.left.empty())) {
      if (ended_) {  // next stream
        BZ2_bzDecompressEnd(&state_);
        begin();
      }
      const unsigned given = input_.portion();
      state_.next_in = reinterpret_cast<char*>(const_cast<std::byte*>(input_.left.data()));
      state_.avail_in = given;
      state_.next_out = out.data();
      state_.avail_out = left;
      const int code = BZ2_bzDecompress(&state_);
      input_.consume(given - state_.avail_in);
      ended_ = code == BZ_STREAM_END;
      if (code != BZ_OK && code != BZ_STREAM_END) return -1;
      // The library neither fails nor advances when the data is truncated.
      if (!ended_ && state_.avail_out == left && given == state_.avail_in) return -1;
      left = state_.avail_out;
    }
    return room - left;
  }

 private:
  void begin() {
    state_ = {};
    if (BZ2_bzDecompressInit(&state_, 0, 0) != BZ_OK) no_memory("bzip2");
  }

  Input input_;
  bz_stream state_{};
  bool ended_ = false;
};

class Unzstd {
 public:
  explicit Unzstd(Bytes bytes) : input_{bytes.data(), bytes.size(), 0}, state_(ZSTD_createDStream(), ZSTD_freeDStream) {
    if (state_ == nullptr) no_memory("zstd");
  }

  int64_t fill(std::span<char> out) {
    ZSTD_outBuffer output{out.data(), out.size(), 0};
    while (output.pos == 0 && !(ended_ && input_.pos == input_.size)) {
      const size_t before = input_.pos;
      const size_t code = ZSTD_decompressStream(state_.get(), &output, &input_);
      if (ZSTD_isError(code) != 0) return -1;
      ended_ = code == 0;
      if (!ended_ && output.pos == 0 && input_.pos == before) return -1;
    }
    return static_cast<int64_t>(output.pos);
  }

 private:
  ZSTD_inBuffer input_;
  std::unique_ptr<ZSTD_DStream, size_t (*)(ZSTD_DStream*)> state_;
  bool ended_ = false;
};

class Unbrotli {
 public:
  explicit Unbrotli(Bytes bytes)
      : next_(reinterpret_cast<const uint8_t*>(bytes.data())),
        left_(bytes.size()),
        state_(BrotliDecoderCreateInstance(nullptr, nullptr, nullptr), BrotliDecoderDestroyInstance) {
    if (state_ == nullptr) no_memory("brotli");
  }

  int64_t fill(std::span<char> out) {
    if (ended_) return left_ == 0 ? 0 : -1;
    size_t room = out.size();
    auto* to = reinterpret_cast<uint8_t*>(out.data());
    const BrotliDecoderResult code = BrotliDecoderDecompressStream(state_.get(), &left_, &next_, &room, &to, nullptr);
    ended_ = code == BROTLI_DECODER_RESULT_SUCCESS;
    if (!ended_ && code != BROTLI_DECODER_RESULT_NEEDS_MORE_OUTPUT) return -1;
    if (ended_ && left_ > 0) return -1;
    return static_cast<int64_t>(out.size() - room);
  }

 private:
  const uint8_t* next_;
  size_t left_;
  std::unique_ptr<BrotliDecoderState, void (*)(BrotliDecoderState*)> state_;
  bool ended_ = false;
};

[[noreturn]] void damaged(std::string_view kind, const std::string& source) {
  throw_hint(ErrorKind::corrupt, "fetch or write the file again", "{}: damaged {} data", source, kind);
}

template <class Decoder>
std::string decoded(std::string_view kind, Bytes bytes, uint64_t size, const std::string& source) {
  constexpr uint64_t min_growth = uint64_t{1} << 16;
  Decoder decoder(bytes);
  std::string out;
  for (;;) {
    const size_t have = out.size();
    out.resize(std::min<uint64_t>(size + 1, have + std::max<uint64_t>(have, min_growth)));
    const int64_t more = decoder.fill(std::span(out).subspan(have));
    if (more < 0) damaged(kind, source);
    out.resize(have + static_cast<size_t>(more));
    if (out.size() > size) {
      throw_error(ErrorKind::corrupt, "{}: decompresses to more than the expected {} bytes", source, size);
    }
    if (more == 0) return out;
  }
}

std::string unsnappy(Bytes bytes, uint64_t size, const std::string& source) {
  constexpr uint64_t max_growth = 64;  // no element of the format expands a byte to more than this
  const char* data = reinterpret_cast<const char*>(bytes.data());
  size_t size_in_stream = 0;
  if (snappy_uncompressed_length(data, bytes.size(), &size_in_stream) != SNAPPY_OK) damaged("snappy", source);
  if (size_in_stream != size || size_in_stream / max_growth > bytes.size()) {
    throw_error(ErrorKind::corrupt, "{}: {} bytes of snappy data declare an uncompressed size of {}, expected {}",
                source, bytes.size(), size_in_stream, size);
  }
  std::string out(size_in_stream, '\0');
  if (snappy_uncompress(data, bytes.size(), out.data(), &size_in_stream) != SNAPPY_OK) damaged("snappy", source);
  return out;
}

std::string gzipped(Bytes bytes, int level) {
  z_stream state{};
  if (deflateInit2(&state, level, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY) != Z_OK) no_memory("zlib");
  std::string out(deflateBound(&state, bytes.size()), '\0');
  state.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(bytes.data()));
  state.avail_in = static_cast<uInt>(bytes.size());
  state.next_out = reinterpret_cast<Bytef*>(out.data());
  state.avail_out = static_cast<uInt>(out.size());
  const int code = deflate(&state, Z_FINISH);
  out.resize(out.size() - state.avail_out);
  deflateEnd(&state);
  if (code != Z_STREAM_END) no_memory("zlib");
  return out;
}

std::string bzipped(Bytes bytes, int level) {
  auto size = static_cast<unsigned>(bytes.size() + bytes.size() / 100 + 601);
  std::string out(size, '\0');
  char* data = reinterpret_cast<char*>(const_cast<std::byte*>(bytes.data()));
  if (BZ2_bzBuffToBuffCompress(out.data(), &size, data, static_cast<unsigned>(bytes.size()), level, 0, 0) != BZ_OK) {
    no_memory("bzip2");
  }
  out.resize(size);
  return out;
}

std::string zstded(Bytes bytes, int level) {
  std::string out(ZSTD_compressBound(bytes.size()), '\0');
  const size_t size = ZSTD_compress(out.data(), out.size(), bytes.data(), bytes.size(), level);
  if (ZSTD_isError(size) != 0) no_memory("zstd");
  out.resize(size);
  return out;
}

std::string brotlied(Bytes bytes, int level) {
  size_t size = BrotliEncoderMaxCompressedSize(bytes.size());
  std::string out(size, '\0');
  if (BrotliEncoderCompress(level, BROTLI_DEFAULT_WINDOW, BROTLI_DEFAULT_MODE, bytes.size(),
                            reinterpret_cast<const uint8_t*>(bytes.data()), &size,
                            reinterpret_cast<uint8_t*>(out.data())) == BROTLI_FALSE) {
    no_memory("brotli");
  }
  out.resize(size);
  return out;
}

std::string snappied(Bytes bytes) {
  size_t size = snappy_max_compressed_length(bytes.size());
  std::string out(size, '\0');
  if (snappy_compress(reinterpret_cast<const char*>(bytes.data()), bytes.size(), out.data(), &size) != SNAPPY_OK) {
    no_memory("snappy");
  }
  out.resize(size);
  return out;
}

}  // namespace

std::string compression_name(std::string_view text) { return std::string(parse(text).name); }

std::string compress(std::string_view text, std::span<const std::byte> bytes) {
  const Codec kind = parse(text);
  if (bytes.size() > std::numeric_limits<uint32_t>::max() / 2) {
    throw_error(ErrorKind::resource, "{} bytes are too many to compress at once", bytes.size());
  }
  if (kind.name == "br") return brotlied(bytes, kind.level);
  if (kind.name == "bz2") return bzipped(bytes, kind.level);
  if (kind.name == "gz") return gzipped(bytes, kind.level);
  if (kind.name == "snappy") return snappied(bytes);
  return zstded(bytes, kind.level);
}

std::string decompress(std::string_view text, std::span<const std::byte> bytes, uint64_t size,
                       const std::string& source) {
  const std::string_view kind = parse(text).name;
  std::string out;
  if (kind == "br") {
    out = decoded<Unbrotli>(kind, bytes, size, source);
  } else if (kind == "bz2") {
    out = decoded<Bunzip>(kind, bytes, size, source);
  } else if (kind == "gz") {
    out = decoded<Gunzip>(kind, bytes, size, source);
  } else if (kind == "snappy") {
    out = unsnappy(bytes, size, source);
  } else {
    out = decoded<Unzstd>(kind, bytes, size, source);
  }
  if (out.size() != size) {
    throw_error(ErrorKind::corrupt, "{}: decompresses to {} bytes, expected {}", source, out.size(), size);
  }
  return out;
}

}  // namespace ingot::formats
