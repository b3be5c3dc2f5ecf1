// Compression of whole byte blocks with the compressions of MDS shards: br, bz2, gz, snappy (raw block format), zstd.
// All except snappy may have a level after a colon ("zstd:7").
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace ingot::formats {

// The name before the colon. Errors: unsupported, without saying where, for another name, for a level out of range (br
// 0 to 11, bz2 1 to 9, gz 0 to 9, zstd 1 to 22), and for a level with snappy.
std::string compression_name(std::string_view text);

// Deterministic for the same version of the library; gz has no time stamp. Default levels: br 11, bz2 9, gz 9, zstd 3.
// Errors: those of compression_name; resource for more than 2^31 - 1 bytes and when the library fails.
std::string compress(std::string_view kind, std::span<const std::byte> bytes);

// Decompresses exactly `size` bytes. Memory grows with the decompressed data, whatever `size` says. Errors: those of
// compression_name; corrupt, beginning with `source`, for damaged data and for another size.
std::string decompress(std::string_view kind, std::span<const std::byte> bytes, uint64_t size,
                       const std::string& source);

}  // namespace ingot::formats
